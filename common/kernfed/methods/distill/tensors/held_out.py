"""Errors of kernel ridge regression on rows that are left out one at a time, in closed form.

Leaving out row i changes its residual to c_i/(M⁻¹)_ii, where M c = y is the problem that is solved; with a free
intercept M⁻¹ less s s'/s'1, where s = M⁻¹ 1. Nothing is fitted again.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kernfed.features.kernels import KernelSpec
from kernfed.methods.distill.tensors.distillation import free_intercept, own_factor
from kernfed.tensors.in_place import inverse_diagonal, solve_rows_in_place
from kernfed.tensors.kernels import gram


def held_out_errors(kernel: KernelSpec, x: Tensor, y: Tensor, ridge: float, *, free: bool) -> Tensor:
    """What each row's target differs by from the prediction of `kernel_ridge` without that row, (N, C).

    Args:
        kernel: The kernel.
        x: Rows, (N, d), at least 2 with a free intercept.
        y: Targets, (N, C).
        ridge: λ; the penalty stays N λ where a row is left out.
        free: Whether there is an intercept that costs nothing.

    Raises:
        NotPositiveDefiniteError: The ridge is too small for the kernel.
    """
    factor = own_factor(kernel, x, ridge)
    targets = torch.cat([y - y.mean(dim=0) if free else y, y.new_ones(len(y), 1)], dim=1)
    half = solve_rows_in_place(factor, targets)
    solved = solve_rows_in_place(factor, half, transposed=True)
    inverse = inverse_diagonal(factor)
    if not free:
        return solved[:, :-1] / inverse[:, None]
    inverse -= solved[:, -1].square() / solved[:, -1].sum()
    coefficients, _ = free_intercept(solved)
    return coefficients / inverse[:, None]


def held_out_sums(kernel: KernelSpec, x: Tensor, y: Tensor, ridges: Sequence[float], *, free: bool) -> Tensor:
    """Sums of squared `held_out_errors` over rows and outputs, one per ridge, by one decomposition of K.

    Args:
        kernel: The kernel.
        x: Rows, (N, d), at least 3.
        y: Targets, (N, C).
        ridges: λ, each above 0.
        free: Whether there is an intercept that costs nothing.

    Returns:
        Shape (number of ridges,); infinity where rounding leaves no prediction.
    """
    k, targets = gram(kernel, x), y
    level = torch.zeros_like(k[:, 0])
    if free:
        targets = y - y.mean(dim=0)
        k -= k.mean(dim=0)
        k -= k.mean(dim=1, keepdim=True)
        level += 1.0 / len(x)
    values, vectors = torch.linalg.eigh(k)
    values = values.clamp(min=0.0)
    rotated = vectors.mT @ targets
    sums = []
    for ridge in ridges:
        kept = values / (values + len(x) * ridge)
        residuals = targets - vectors @ (kept[:, None] * rotated)
        free_share = 1.0 - level - vectors.square() @ kept
        found = (residuals / free_share[:, None]).square().sum()
        usable = bool(free_share.min() > 1e-10) and bool(found.isfinite())
        sums.append(found if usable else found.new_tensor(float("inf")))
    return torch.stack(sums)
