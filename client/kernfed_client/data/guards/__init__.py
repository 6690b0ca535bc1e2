"""What keeps a job's numbers from telling of few rows: who is held out, which rows go together, what is constant."""
