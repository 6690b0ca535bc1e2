"""Weights over the kernels, and which kernels are sent by them."""
