"""Kernels between points."""
