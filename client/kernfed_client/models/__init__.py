"""Models that stay at this client."""
