"""A test of the lines: the coordinator's half."""
