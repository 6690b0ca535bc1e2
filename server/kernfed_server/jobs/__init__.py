"""The life of a job: queue, preparation, rounds, end."""
