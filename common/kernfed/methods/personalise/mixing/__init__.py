"""What all clients have shared, and ridge models of mixtures of it."""
