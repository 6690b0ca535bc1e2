"""What predicts with a model, and so needs torch."""
