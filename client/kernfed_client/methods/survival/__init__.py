"""Times to an event: the client's half."""
