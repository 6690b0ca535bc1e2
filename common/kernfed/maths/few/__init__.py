"""Rows that are few: sums that tell of them alone."""
