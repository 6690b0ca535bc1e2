"""Generalised linear models: what both halves share."""
