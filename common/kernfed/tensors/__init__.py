"""Maths that needs torch."""
