"""Learning while data stream in: the client's half."""
