"""Personal networks: how their numbers are scaled, and whose weights they choose."""
