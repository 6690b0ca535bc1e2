"""Heads on frozen features, by loss: the client's half."""
