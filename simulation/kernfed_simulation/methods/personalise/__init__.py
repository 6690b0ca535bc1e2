"""Personalised models: the simulation's part."""
