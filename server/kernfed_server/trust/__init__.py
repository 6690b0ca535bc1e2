"""Revocations, the coordinator's own certificate, and refused handshakes."""
