"""A test of the lines: what both halves share."""
