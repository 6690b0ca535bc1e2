"""Operators: what they signed, and who of them was revoked."""
