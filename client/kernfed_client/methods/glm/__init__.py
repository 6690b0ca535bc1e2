"""Generalised linear models: the client's half."""
