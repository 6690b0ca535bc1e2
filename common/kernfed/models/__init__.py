"""Models that jobs leave."""
