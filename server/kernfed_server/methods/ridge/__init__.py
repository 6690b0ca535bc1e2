"""Ridge regression on features: local, dkrr, newton, fedavg, fedprox: the coordinator's half."""
