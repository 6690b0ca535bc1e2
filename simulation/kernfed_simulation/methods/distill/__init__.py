"""Distillation: the simulation's part."""
