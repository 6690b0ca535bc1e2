"""Statistics of columns: the coordinator's half."""
