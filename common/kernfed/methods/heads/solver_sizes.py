"""Costs of solvers, by sizes alone; at the coordinator too, which has no rows and no torch."""

from __future__ import annotations

from kernfed.methods.heads.losses import FACTS
from kernfed.methods.heads.messages import HeadLoss


def exact_matrix(loss: HeadLoss, num_rows: int, num_features: int, num_outputs: int) -> int:
    """Count the rows of the matrix that an exact solve factors: features or rows, times the outputs that it couples."""
    coupled = num_outputs if FACTS[loss].couples_outputs else 1
    return coupled * min(max(num_rows, 1), num_features)


def exact_bytes(loss: HeadLoss, num_rows: int, num_features: int, num_outputs: int) -> int:
    """Estimate the memory of that matrix and its factor, float64."""
    return 2 * 8 * exact_matrix(loss, num_rows, num_features, num_outputs) ** 2


def exact_operations(loss: HeadLoss, num_rows: int, num_features: int, num_outputs: int) -> float:
    """Estimate the multiplications of forming and factoring it."""
    size = float(exact_matrix(loss, num_rows, num_features, num_outputs))
    return size**3 / 3 + size**2 * max(num_rows, num_features) / 2


def product_operations(num_rows: int, num_features: int, num_outputs: int) -> float:
    """Estimate the multiplications of one Hessian-vector product."""
    return 2.0 * num_rows * num_features * num_outputs
