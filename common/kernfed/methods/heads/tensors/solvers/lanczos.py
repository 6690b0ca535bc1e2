"""Newton systems on the leading eigenvectors of the Hessian: curvature where there is much, a gradient step elsewhere.

With H ≈ U Λ U' + θ (I - UU'), X = U Λ⁻¹ U'G + (G - UU'G)/θ, where θ is the least of the kept eigenvalues: no step
beside the kept directions is longer than the curvature there allows.

Source: FedNewton paper, Appendix A.4; Lanczos (1950), here with full orthogonalisation.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernfed.errors import NotPositiveDefiniteError
from kernfed.methods.heads.tensors.losses import HeadHessian
from kernfed.methods.heads.tensors.solvers.interface import Limits, Solution

_OVERSAMPLING = 2
"""Lanczos vectors per eigenvector that is kept: the leading ones have then converged."""


def solve(hessian: HeadHessian, rhs: Tensor, limits: Limits) -> Solution:
    """Solve with the `limits.rank` leading eigenpairs that the Krylov space of G holds.

    Raises:
        NotPositiveDefiniteError: The least eigenvalue kept is not above 0.
    """
    size = float(torch.linalg.vector_norm(rhs))
    if size == 0:
        return Solution(torch.zeros_like(rhs), 0, 0.0)
    values, vectors, products = leading_eigenpairs(hessian, rhs, limits.rank)
    return Solution(on_eigenvectors(values, vectors, rhs), products, 0.0)


def on_eigenvectors(values: Tensor, vectors: Tensor, rhs: Tensor) -> Tensor:
    """Solve by curvature along eigenvectors, and by a gradient step of the least of their eigenvalues beside them.

    Args:
        values: Eigenvalues, (k,).
        vectors: Orthonormal, (D C, k).
        rhs: G, (D, C).

    Raises:
        NotPositiveDefiniteError: The least eigenvalue is not above 0.
    """
    rest = float(values.min())
    if not rest > 0:
        raise NotPositiveDefiniteError(
            f"the least eigenvalue kept is {rest:.3g}; raise damping or ridge, or lower rank"
        )
    g = rhs.reshape(-1)
    along = vectors.T @ g
    return (g / rest + vectors @ (along / values - along / rest)).reshape(rhs.shape)


def basis_size(total: int, rank: int) -> int:
    """Count the vectors of `total` numbers that are kept to find `rank` eigenpairs."""
    return min(total, _OVERSAMPLING * rank + 1)


def leading_eigenpairs(hessian: HeadHessian, start: Tensor, rank: int) -> tuple[Tensor, Tensor, int]:
    """Compute eigenvalues (k,), eigenvectors (D C, k), and how many products it took; k at most `rank`.

    Args:
        hessian: H.
        start: Where the Krylov space starts, not 0, shape (D, C).
        rank: Eigenpairs wanted.
    """
    total = start.numel()
    steps = basis_size(total, rank)
    basis = start.new_empty(steps, total)
    alpha, beta = start.new_zeros(steps), start.new_zeros(steps)
    q = start.reshape(-1) / torch.linalg.vector_norm(start)
    done = 0
    for k in range(steps):
        basis[k] = q
        w = hessian.product(q.reshape(start.shape)).reshape(-1)
        alpha[k] = torch.dot(q, w)
        done = k + 1
        scale = float(torch.linalg.vector_norm(w))
        for _ in range(2):  # twice is enough to stay orthogonal
            w = w - basis[:done].T @ (basis[:done] @ w)
        beta[k] = torch.linalg.vector_norm(w)
        if float(beta[k]) <= 1e-12 * scale:  # the space is invariant: nothing is left to find
            break
        q = w / beta[k]
    off = beta[: done - 1]
    tridiagonal = torch.diag(alpha[:done]) + torch.diag(off, 1) + torch.diag(off, -1)
    values, turn = torch.linalg.eigh(tridiagonal)
    kept = min(rank, done)
    return values[-kept:], basis[:done].T @ turn[:, -kept:], done
