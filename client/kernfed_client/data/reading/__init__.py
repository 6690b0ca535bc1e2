"""Partitions as they are read from files and folders, and checked against a job's schema."""
