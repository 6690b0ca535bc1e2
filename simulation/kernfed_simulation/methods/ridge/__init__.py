"""Ridge regression: the simulation's part."""
