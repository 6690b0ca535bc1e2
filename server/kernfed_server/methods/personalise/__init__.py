"""Personalised models from a mix of all clients: the coordinator's half."""
