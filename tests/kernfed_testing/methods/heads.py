"""Clients with rows for a head, in plain numpy and torch, and what the golden files say of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from kernfed.methods.heads.messages import HeadLoss, HeadSolver
from kernfed.methods.heads.safe_newton import Point
from kernfed.methods.heads.tensors.losses import Head
from kernfed.methods.heads.tensors.solvers.interface import Limits
from kernfed.methods.heads.tensors.solvers.solve import solve

Matrix = npt.NDArray[np.float64]


def tensor(array: object) -> torch.Tensor:
    """float64, copied."""
    return torch.tensor(np.asarray(array), dtype=torch.float64)


@dataclass(frozen=True)
class HeadClients:
    """Problems of several clients, and their weighted means."""

    heads: Sequence[Head]

    @classmethod
    def of(cls, rows: Sequence[tuple[object, Sequence[int]]], num_classes: int, ridge: float) -> HeadClients:
        """Softmax problems of features and class indices."""
        eye = np.eye(num_classes)
        return cls([Head(HeadLoss.SOFTMAX, tensor(z), tensor(eye[np.asarray(y)]), ridge) for z, y in rows])

    @property
    def shares(self) -> Matrix:
        """p_j."""
        sizes = np.array([head.num_rows for head in self.heads], dtype=np.float64)
        shares: Matrix = sizes / sizes.sum()
        return shares

    def measure(self, w: Matrix) -> Point:
        """The pooled objective at W."""
        found = [head.value_and_gradient(tensor(w)) for head in self.heads]
        value = sum(p * f for p, (f, _) in zip(self.shares, found, strict=True))
        gradient = sum(p * g.numpy() for p, (_, g) in zip(self.shares, found, strict=True))
        return Point(w, float(value), np.asarray(gradient))

    def newton(self, w: Matrix, q: Matrix, damping: float, solver: HeadSolver = HeadSolver.EXACT) -> Matrix:
        """Σ p_j (H_j(W) + damping I)⁻¹ q."""
        parts = [
            p * solve(solver, head.hessian(tensor(w)).with_damping(damping), tensor(q), Limits()).value.numpy()
            for p, head in zip(self.shares, self.heads, strict=True)
        ]
        return np.asarray(sum(parts))

    def mean_curvature(self, w: Matrix) -> float:
        """Σ p_j of the mean diagonal of the clients' Hessians, without the ridge."""
        found = [head.hessian(tensor(w)).mean_diagonal() for head in self.heads]
        return float(np.dot(self.shares, found))
