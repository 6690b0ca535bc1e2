"""Newton systems by Cholesky, in the smallest of the forms that the loss allows.

- Squared loss: H is the same d x d block for every output: one factor, C right-hand sides.
- Logistic loss: one d x d matrix.
- Softmax: outputs are coupled, C d x C d, of which the blocks above the diagonal are mirrored.
- Fewer rows than features: H = s I + X'X/n for some X with n (softmax: n C) rows, so that X X' is factored in place of
  X'X (Woodbury), and nothing of d² numbers is ever formed. A free bias, which has no ridge, is then eliminated last:
  the block A of the other features is solved as before, for G and for the bias's columns.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernfed.errors import DataError
from kernfed.methods.heads.losses import FACTS
from kernfed.methods.heads.solver_sizes import exact_bytes, exact_matrix
from kernfed.methods.heads.tensors.losses import HeadHessian
from kernfed.methods.heads.tensors.solvers.interface import Limits, Solution, relative_residual
from kernfed.tensors.linalg import cholesky, self_product


def solve(hessian: HeadHessian, rhs: Tensor, limits: Limits) -> Solution:
    """Solve H X = G; see `kernfed.methods.heads.tensors.solvers.interface.solve`.

    Raises:
        DataError: The matrix and its factor need more than `limits.max_bytes`.
        NotPositiveDefiniteError: Without damping and ridge, H is singular.
    """
    n, (d, c) = len(hessian.z), hessian.shape
    needed = exact_bytes(hessian.loss, n, d, c)
    if needed > limits.max_bytes:
        raise DataError(
            f"an exact Newton step on {d} features and {c} outputs factors a matrix of "
            f"{exact_matrix(hessian.loss, n, d, c)} rows, {needed / 2**30:.2f} GiB with its factor, more than the "
            f'{limits.max_bytes / 2**30:.2f} GiB allowed; use solver = "cg" or "auto", or raise max_solver_bytes'
        )
    few_rows = 0 < n < d and hessian.shift > 0
    if FACTS[hessian.loss].couples_outputs:
        x = _softmax_few_rows(hessian, rhs) if few_rows else _softmax(hessian, rhs)
    else:
        x = _uncoupled_few_rows(hessian, rhs) if few_rows else _uncoupled(hessian, rhs)
    return Solution(x, 0, relative_residual(hessian, x, rhs))


def dense(hessian: HeadHessian) -> Tensor:
    """Form a softmax Hessian, shape (C D, C D), in the order of outputs, then features."""
    z, p, n = hessian.z, hessian.p, max(len(hessian.z), 1)
    d, c = hessian.shape
    full = z.new_empty(c, d, c, d)
    for a in range(c):
        for b in range(a + 1):
            weight = p[:, a] * ((1.0 if a == b else 0.0) - p[:, b]) / n
            block = z.T @ (z * weight[:, None])
            full[a, :, b, :] = block
            if a != b:
                full[b, :, a, :] = block.T
    matrix = full.reshape(c * d, c * d)
    matrix.diagonal().add_(hessian.shift)
    if hessian.freed:
        bias = matrix[d - 1 :: d, d - 1 :: d]
        bias.diagonal().sub_(hessian.freed)
        bias.add_(hessian.bias_mean_ridge / c)
    return matrix


def _softmax(hessian: HeadHessian, rhs: Tensor) -> Tensor:
    d, c = hessian.shape
    factor = cholesky(dense(hessian), name="softmax Hessian")
    return factor.solve(rhs.T.reshape(c * d, 1)).reshape(c, d).T.contiguous()


def _softmax_few_rows(hessian: HeadHessian, rhs: Tensor) -> Tensor:
    """By diag(p) - pp' = B'B with q = √p and B = (I - qq') diag(q): X has the rows B_i ⊗ z_i."""
    n, c = hessian.p.shape
    q = hessian.p.sqrt()
    b = (torch.eye(c, dtype=q.dtype, device=q.device) - q[:, :, None] * q[:, None, :]) * q[:, None, :]  # (n, C, C)
    flat = b.reshape(n * c, c)
    z, g = (hessian.z[:, :-1], rhs[:-1]) if hessian.freed else (hessian.z, rhs)
    inner = (flat @ flat.T).reshape(n, c, n, c) * (z @ z.T)[:, None, :, None]
    kernel = inner.reshape(n * c, n * c)
    kernel.diagonal().add_(n * hessian.shift)
    factor = cholesky(kernel, name="softmax Hessian on rows")
    image = torch.einsum("iab,ib->ia", b, z @ g)
    found = factor.solve(image.reshape(n * c, 1)).reshape(n, c)
    inside = (g - z.T @ torch.einsum("iab,ia->ib", b, found)) / hessian.shift
    if not hessian.freed:
        return inside
    along = factor.solve(flat).reshape(n, c, c)
    border = torch.einsum("id,iab,iae->dbe", z, b, along)  # A⁻¹ times the bias's columns
    own = hessian.shift * torch.einsum("iab,iae->be", b, along)
    own.diagonal().add_(hessian.shift - hessian.freed)
    own.add_(hessian.bias_mean_ridge / c)
    bias = cholesky(own, name="softmax Hessian of the bias").solve(
        (rhs[-1] - torch.einsum("dbe,db->e", border, g)).reshape(c, 1)
    )
    return torch.cat([inside - border @ bias.reshape(c), bias.T])


def _uncoupled(hessian: HeadHessian, rhs: Tensor) -> Tensor:
    matrix = self_product(_weighted_rows(hessian)) / max(len(hessian.z), 1)
    matrix.diagonal().add_(hessian.shift)
    matrix[-1, -1] -= hessian.freed
    return cholesky(matrix, name="Hessian").solve(rhs)


def _uncoupled_few_rows(hessian: HeadHessian, rhs: Tensor) -> Tensor:
    rows = _weighted_rows(hessian)
    x, g = (rows[:, :-1], rhs[:-1]) if hessian.freed else (rows, rhs)
    kernel = x @ x.T
    kernel.diagonal().add_(len(x) * hessian.shift)
    factor = cholesky(kernel, name="Hessian on rows")
    inside = (g - x.T @ factor.solve(x @ g)) / hessian.shift
    if not hessian.freed:
        return inside
    one = rows[:, -1:]
    along = factor.solve(one)
    border = x.T @ along  # A⁻¹ times the bias's column, (D - 1, 1)
    own = hessian.shift * float((one * along).sum()) + hessian.shift - hessian.freed
    bias = (rhs[-1:] - border.T @ g) / own
    return torch.cat([inside - border @ bias, bias])


def _weighted_rows(hessian: HeadHessian) -> Tensor:
    curvature = hessian.row_curvature()
    return hessian.z if curvature is None else hessian.z * curvature.sqrt()
