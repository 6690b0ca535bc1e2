"""Learning while data stream in: the coordinator's half."""
