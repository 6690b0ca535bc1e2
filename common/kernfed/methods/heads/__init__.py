"""Heads on frozen features, by loss: what both halves share."""
