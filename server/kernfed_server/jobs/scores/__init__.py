"""What the scores of a job are worth, at its end."""
