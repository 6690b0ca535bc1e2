"""Newton systems on the true leading eigenvectors of the Hessian, whatever the right-hand side.

`lanczos` takes those that the Krylov space of G holds; both readings fit Appendix A.4, which projects on "the top-k
eigenvectors" by "a truncated Krylov subspace method". Beside them both take a gradient step, with the least eigenvalue
kept. Eigenvalues that come several times, as those of uncoupled outputs, are all found.

Source: FedNewton paper, Appendix A.4; Knyazev (2001), Algorithm 4.1, without a preconditioner.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernfed import rng
from kernfed.methods.heads.tensors.losses import HeadHessian
from kernfed.methods.heads.tensors.solvers.interface import Limits, Solution
from kernfed.methods.heads.tensors.solvers.lanczos import on_eigenvectors

_MORE = 5
"""Directions beside those wanted, so that the last one wanted converges as the others do."""
_FOUND = 1e-6
"""Residual of an eigenpair, over the largest eigenvalue, below which it is found."""
_MOST_ITERATIONS = 100


def solve(hessian: HeadHessian, rhs: Tensor, limits: Limits) -> Solution:
    """Solve with the `limits.rank` leading eigenpairs; the residual is that of the eigenpairs, 0 below 1e-6.

    Raises:
        NotPositiveDefiniteError: The least eigenvalue kept is not above 0.
    """
    if not rhs.any():
        return Solution(torch.zeros_like(rhs), 0, 0.0)
    values, vectors, products, residual = top_eigenpairs(hessian, rhs, limits.rank)
    return Solution(on_eigenvectors(values, vectors, rhs), products, 0.0 if residual <= _FOUND else residual)


def block_size(total: int, rank: int) -> int:
    """Count the vectors of `total` numbers that are iterated at once to find `rank` eigenpairs."""
    return min(total, rank + _MORE)


def top_eigenpairs(hessian: HeadHessian, like: Tensor, rank: int) -> tuple[Tensor, Tensor, int, float]:
    """Compute the largest eigenvalues (k,), their eigenvectors (D C, k), the products taken, and the largest residual.

    Args:
        hessian: H.
        like: A tensor of the shape of right-hand sides, (D, C).
        rank: Eigenpairs wanted, k at most.
    """
    total = like.numel()
    width, kept = block_size(total, rank), min(rank, total)
    drawn = rng.stream(0, "head", "eigenvectors").normal(total, width)
    basis = torch.linalg.qr(torch.as_tensor(drawn, dtype=like.dtype, device=like.device)).Q
    products, residual, before = 0, 1.0, basis[:, :0]
    for _ in range(_MOST_ITERATIONS):
        image = torch.stack([hessian.product(v.reshape(like.shape)).reshape(-1) for v in basis.T], dim=1)
        products += basis.shape[1]
        small = basis.T @ image
        values, turn = torch.linalg.eigh((small + small.T) / 2)
        values, turn = values[-width:], turn[:, -width:]
        x = basis @ turn
        away = image @ turn - x * values
        residual = float(torch.linalg.vector_norm(away[:, -kept:], dim=0).max()) / max(float(values[-1]), 1e-300)
        if residual <= _FOUND or basis.shape[1] == total:
            break
        moved = x - before @ (before.T @ x) if before.shape[1] else before
        basis, before = _orthonormal(torch.cat([x, away, moved], dim=1), total), x
    return values[-kept:], x[:, -kept:], products, residual


def _orthonormal(columns: Tensor, total: int) -> Tensor:
    """An orthonormal basis of what they span, (total, at most `total`); directions that are rounding are left out."""
    size = torch.linalg.vector_norm(columns, dim=0)
    u, s, _ = torch.linalg.svd(columns[:, size > 0] / size[size > 0], full_matrices=False)
    basis: Tensor = u[:, s > 1e-10 * s[0]][:, :total]
    return basis
