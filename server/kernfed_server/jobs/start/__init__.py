"""The start of a job: what the clients have is checked, and what they work on is agreed, before round 1."""
