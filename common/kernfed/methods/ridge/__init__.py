"""Ridge regression on features: local, dkrr, newton, fedavg, fedprox: what both halves share."""
