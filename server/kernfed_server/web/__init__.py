"""The operator's page: what runs, who is there, and what a job has reached, in a browser."""
