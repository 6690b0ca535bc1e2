"""A test of the lines: the client's half."""
