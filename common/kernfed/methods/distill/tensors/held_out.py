"""Errors of kernel ridge regression on rows that are left out one at a time, in closed form.

Leaving out row i changes its residual to c_i/(M⁻¹)_ii, where M c = y is the problem that is solved; with a free
intercept M⁻¹ less s s'/s'1, where s = M⁻¹ 1. Nothing is fitted again.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernfed.features.kernels import KernelSpec
from kernfed.methods.distill.tensors.distillation import free_intercept, own_factor
from kernfed.tensors.in_place import inverse_diagonal, solve_rows_in_place


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
