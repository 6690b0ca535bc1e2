"""Input and output of every solver of a Newton system, and the table of solvers."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import torch
from torch import Tensor

from kernfed.methods.heads.tensors.losses import HeadHessian


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a solver: when it stops."""

    tolerance: float = 1e-10
    """Relative residual at which iterations stop."""
    max_iterations: int = 1000
    """Iterations at which they stop in any case."""
    rank: int = 20
    """Eigenvectors of the Lanczos solver."""
    max_bytes: int = 1 << 30
    """Most memory of a formed matrix and its factor."""


class Stop(enum.StrEnum):
    """Why a solver stopped. TOLERANCE: the residual is small enough, or nothing is iterated. ITERATIONS: there were as
    many as allowed. ROUNDING: the residual fell no further.
    """

    TOLERANCE = "tolerance"
    ITERATIONS = "iterations"
    ROUNDING = "rounding"


@dataclass(frozen=True, slots=True)
class Solution:
    """An answer X and how good it is."""

    value: Tensor
    """X, shape (D, C)."""
    iterations: int
    """Hessian-vector products that it took."""
    residual: float
    """|A X - G| over |G|, for the matrix A that the solver solves; 0 for G = 0."""
    stop: Stop = Stop.TOLERANCE
    """Why iterations stopped; a solve that was cut short is a regularised one."""


def relative_residual(hessian: HeadHessian, x: Tensor, rhs: Tensor) -> float:
    """Compute |H X - G| over |G|; 0 for G = 0."""
    size = float(torch.linalg.vector_norm(rhs))
    return float(torch.linalg.vector_norm(hessian.product(x) - rhs)) / size if size > 0 else 0.0
