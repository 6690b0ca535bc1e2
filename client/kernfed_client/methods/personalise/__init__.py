"""Personalised models from a mix of all clients: the client's half."""
