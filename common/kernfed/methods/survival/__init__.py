"""Times to an event: what both halves share."""
