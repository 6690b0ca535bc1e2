"""Personalised models from a mix of all clients: what both halves share."""
