"""What clients learn of their columns alone, without a target: components, densities and centres of mixtures."""
