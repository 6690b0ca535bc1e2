"""Learning from each other's predictions: the client's half."""
