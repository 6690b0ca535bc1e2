"""The coordinator's half of each method."""
