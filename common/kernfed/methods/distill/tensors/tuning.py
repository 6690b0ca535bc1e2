"""Errors of rows that are left out for many penalties at once: of kernel ridge regression of own rows alone.

One decomposition of the kernel matrix, K = U diag(μ) U', gives the errors for each penalty p. With
P = U diag(1/(μ + p)) U', leaving out the rows V changes their residuals to P_VV⁻¹ (P y)_V. With a free intercept K is
centred from both sides, and the eigenvector of ones, with μ = 0, is taken out of P again.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kernfed.arrays import Integers
from kernfed.features.kernels import KernelSpec
from kernfed.methods.distill.tensors.held_out import repeated
from kernfed.tensors.kernels import gram


def held_out_sums(
    kernel: KernelSpec, x: Tensor, y: Tensor, penalties: Sequence[float], unit: Integers, *, free: bool
) -> Tensor:
    """Squared errors of predicting each unit of rows from the others, summed over rows and outputs, (R,).

    Args:
        kernel: The kernel.
        x: Rows, float64 (n, d), of at least 3 units.
        y: Targets, (n, C).
        penalties: R numbers p above 0 that are added to the diagonal of K.
        unit: Which rows are left out together, (n,); see `kernfed.maths.folds.units`.
        free: Whether there is an intercept that costs nothing.
    """
    k, n = gram(kernel, x), len(x)
    if free:
        k -= k.mean(dim=0)
        k -= k.mean(dim=1, keepdim=True)
        y = y - y.mean(dim=0)
    values, vectors = torch.linalg.eigh(k)
    weights = 1.0 / (values.clamp(min=0.0)[:, None] + values.new_tensor(penalties))  # (n, R)
    constant = 1.0 / (n * values.new_tensor(penalties)) if free else values.new_zeros(len(penalties))
    spread = vectors.mT @ y
    together = [torch.from_numpy(rows).to(x.device) for rows in repeated(unit)]
    single = torch.ones(n, dtype=torch.bool, device=x.device)
    for rows in together:
        single[rows] = False
    diagonal = vectors[single].square() @ weights - constant
    sums = []
    for r in range(len(penalties)):
        residuals = vectors @ (weights[:, r, None] * spread)
        total = (residuals[single] / diagonal[:, r, None]).square().sum()
        for rows in together:
            part = vectors[rows]
            block = (part * weights[:, r]) @ part.mT - constant[r]
            total = total + torch.linalg.solve(block, residuals[rows]).square().sum()
        sums.append(total)
    return torch.stack(sums)
