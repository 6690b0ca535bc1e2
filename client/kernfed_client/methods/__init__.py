"""The client's half of every method: one room a family."""
