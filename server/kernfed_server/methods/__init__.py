"""The coordinator's half of every method: one room a family."""
