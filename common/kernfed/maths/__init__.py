"""Maths that needs numpy and scipy alone."""
