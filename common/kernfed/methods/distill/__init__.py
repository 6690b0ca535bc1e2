"""Learning from each other's predictions: what both halves share."""
