"""Columns with types: from what a table holds to the numbers that every method takes."""
