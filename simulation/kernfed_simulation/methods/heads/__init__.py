"""Heads on frozen features: the simulation's part."""
