"""The client's rows: partitions that are read and checked, and a job's data."""
