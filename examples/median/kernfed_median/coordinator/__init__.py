"""The coordinator's half."""
