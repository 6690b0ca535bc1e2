"""Symmetric positive definite systems: factor once, solve many, and say so when a matrix is not one.

Rule: nothing is ever added to a matrix in silence. A matrix that has no Cholesky factor, or whose factor shows that
it is singular to working precision, raises with its extreme eigenvalues.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernfed.errors import NotPositiveDefiniteError, NumericalError


@dataclass(frozen=True, slots=True)
class Cholesky:
    """A factored symmetric positive definite matrix A = L L'."""

    factor: Tensor
    """Lower triangle L, shape (m, m)."""

    def solve(self, b: Tensor) -> Tensor:
        """Compute A⁻¹ b by two triangular solves, for b of shape (m, k)."""
        return torch.cholesky_solve(b, self.factor)


def cholesky(a: Tensor, *, name: str = "matrix") -> Cholesky:
    """Factor a symmetric positive definite matrix; only its lower triangle is read.

    Args:
        a: Matrix, shape (m, m); m may be 0.
        name: What the matrix is, for the error.

    Raises:
        NotPositiveDefiniteError: There is no factor, or (max L_ii / min L_ii)², a lower bound of the condition
            number, exceeds 1/eps, where solutions have no correct digit. States the extreme eigenvalues.
        NumericalError: The matrix holds NaN or infinity.
    """
    if a.shape[0] == 0:
        return Cholesky(a)
    factor, info = torch.linalg.cholesky_ex(a)
    diagonal = factor.diagonal()
    singular = bool(info) or not bool(diagonal.min() > diagonal.max() * torch.finfo(a.dtype).eps ** 0.5)
    if singular:
        raise not_positive_definite(a, name)
    return Cholesky(factor)


def self_product(z: Tensor) -> Tensor:
    """Compute z'z, shape (m, m), for z of shape (n, m).

    On CPU through numpy, which sees the symmetry and does half the work.
    """
    if z.device.type == "cpu":
        array = z.numpy()
        return torch.from_numpy(array.T @ array)
    return z.T @ z


def eigenvalues(a: Tensor) -> Tensor:
    """Compute the eigenvalues of a symmetric matrix in ascending order, shape (m,); the lower triangle is read."""
    values: Tensor = torch.linalg.eigvalsh(a)
    return values


def largest_eigenvalue(a: Tensor) -> float:
    """Compute the largest eigenvalue of a symmetric matrix, shape (m, m), m at least 1.

    All eigenvalues are computed: power iteration and Lanczos approach the largest from below, and a step size that
    follows from too small a value diverges.
    """
    return float(eigenvalues(a)[-1])


def not_positive_definite(a: Tensor, name: str) -> NumericalError:
    """The error that a matrix without a Cholesky factor is told by, with its extreme eigenvalues."""
    if not bool(torch.isfinite(a).all()):
        return NumericalError(f"{name} of size {a.shape[0]} holds NaN or infinity; check the data behind it")
    values = eigenvalues(a)
    low, high = float(values[0]), float(values[-1])
    condition = f"condition number {high / low:.3g}" if low > 0 else "no positive smallest eigenvalue"
    return NotPositiveDefiniteError(
        f"{name} of size {a.shape[0]} is not positive definite to working precision: eigenvalues from {low:.3g} to "
        f"{high:.3g}, {condition}; increase the ridge, or remove repeated rows or columns"
    )
