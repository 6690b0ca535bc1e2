"""Heads on frozen features, by loss: the coordinator's half."""
