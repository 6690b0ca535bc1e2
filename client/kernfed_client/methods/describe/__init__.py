"""Statistics of columns: the client's half."""
