"""Ridge regression on features: local, dkrr, newton, fedavg, fedprox: the client's half."""
