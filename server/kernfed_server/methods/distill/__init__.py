"""Learning from each other's predictions: the coordinator's half."""
