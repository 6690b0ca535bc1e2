"""Errors of kernel ridge regression on rows that are left out, copies together, in closed form.

Where M c = y is the problem that is solved, leaving out the rows U changes their residuals to (M⁻¹)_UU⁻¹ c_U; with a
free intercept M⁻¹ less s s'/s'1, where s = M⁻¹ 1. Nothing is fitted again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from kernfed.arrays import Integers
from kernfed.tensors.in_place import inverse_diagonal, solve_rows_in_place

_TOGETHER = 512
"""Rows of repeated units whose block of the inverse is made at a time."""


def unit_errors(
    coefficients: Tensor, factor: Tensor, unit: Integers, *, scale: float = 1.0, ones: Tensor | None = None
) -> Tensor:
    """What each row's target differs by from the prediction of a model that saw no row of its unit, (n, C).

    Args:
        coefficients: c of these rows, (n, C).
        factor: Cholesky factor L, from `kernfed.tensors.in_place.factor_in_place`, (n, n).
        unit: Which rows are left out together, (n,); see `kernfed.maths.folds.units`.
        scale: The block of M⁻¹ that belongs to these rows is this times (L L')⁻¹, ...
        ones: ... less o o' with these o, (n,); unset: there is no free intercept.
    """
    inverse = inverse_diagonal(factor).mul_(scale)
    if ones is not None:
        inverse -= ones.square()
    errors = coefficients / inverse[:, None]
    for together in _batches(repeated(unit)):
        rows = torch.from_numpy(np.concatenate(together)).to(factor.device)
        half = factor.new_zeros(len(factor), len(rows))
        half[rows, torch.arange(len(rows), device=rows.device)] = 1.0
        half = solve_rows_in_place(factor, half)
        block = (half.T @ half).mul_(scale)
        if ones is not None:
            block -= torch.outer(ones[rows], ones[rows])
        for part, at in zip(torch.split(rows, sizes := [len(u) for u in together]), _slices(sizes), strict=True):
            errors[part] = torch.linalg.solve(block[at, at], coefficients[part])
    return errors


def repeated(unit: Integers) -> list[Integers]:
    """Units of more than one row, each as its rows."""
    order = np.argsort(unit, kind="stable")
    return [rows for rows in np.split(order, np.flatnonzero(np.diff(unit[order])) + 1) if len(rows) > 1]


def _batches(units: list[Integers]) -> Iterator[list[Integers]]:
    together: list[Integers] = []
    for rows in units:
        if together and sum(map(len, together)) + len(rows) > _TOGETHER:
            yield together
            together = []
        together.append(rows)
    if together:
        yield together


def _slices(sizes: list[int]) -> list[slice]:
    ends = np.cumsum(sizes).tolist()
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
