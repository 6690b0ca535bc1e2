"""Times to an event: the coordinator's half."""
