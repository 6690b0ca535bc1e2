"""Learning while data stream in: what both halves share."""
