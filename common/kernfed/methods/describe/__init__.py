"""Statistics of columns: what both halves share."""
