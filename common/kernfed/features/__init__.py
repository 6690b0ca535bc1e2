"""Feature maps as plain values."""
