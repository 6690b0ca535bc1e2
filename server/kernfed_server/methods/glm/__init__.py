"""Generalised linear models: the coordinator's half."""
