"""Errors of kernel ridge regression on rows that are left out, copies together, in closed form.

Where M c = y is the problem that is solved, leaving out the rows U changes their residuals to (M⁻¹)_UU⁻¹ c_U; with a
free intercept M⁻¹ less s s'/s'1, where s = M⁻¹ 1. Nothing is fitted again. (M⁻¹)_UU⁻¹ is also what a Gaussian process
expects of these residuals, whose noise has the penalty of a row as its variance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kernfed.arrays import Integers
from kernfed.tensors.in_place import inverse_diagonal, solve_rows_in_place

_TOGETHER = 512
"""Rows of repeated units whose block of the inverse is made at a time."""


class LeftOut(NamedTuple):
    """Rows against models that saw no row of their unit."""

    errors: Tensor
    """Targets less predictions, (n, C)."""
    spread: Tensor
    """Deviation that is expected of them, in that of a row's noise, (n,): √(1 + v/p), as `spread.spread` has it."""


def left_out(
    coefficients: Tensor,
    factor: Tensor,
    unit: Integers,
    penalty: float,
    *,
    scale: float = 1.0,
    ones: Tensor | None = None,
) -> LeftOut:
    """Predict each row by the model that saw no row of its unit.

    Args:
        coefficients: c of these rows, (n, C).
        factor: Cholesky factor L, from `kernfed.tensors.in_place.factor_in_place`, (n, n).
        unit: Which rows are left out together, (n,); see `kernfed.maths.folds.units`.
        penalty: p, what a row's kernel value has added in M.
        scale: The block of M⁻¹ that belongs to these rows is this times (L L')⁻¹, ...
        ones: ... less o o' with these o, (n,); unset: there is no free intercept.
    """
    inverse = inverse_diagonal(factor).mul_(scale)
    if ones is not None:
        inverse -= ones.square()
    errors, variances = coefficients / inverse[:, None], inverse.reciprocal()
    for together in _batches(repeated(unit)):
        rows = torch.from_numpy(np.concatenate(together)).to(factor.device)
        half = factor.new_zeros(len(factor), len(rows))
        half[rows, torch.arange(len(rows), device=rows.device)] = 1.0
        half = solve_rows_in_place(factor, half)
        block = (half.T @ half).mul_(scale)
        if ones is not None:
            block -= torch.outer(ones[rows], ones[rows])
        for part, at in zip(torch.split(rows, sizes := [len(u) for u in together]), _slices(sizes), strict=True):
            together_with = torch.linalg.inv(block[at, at])
            errors[part], variances[part] = together_with @ coefficients[part], together_with.diagonal()
    return LeftOut(errors, (variances / penalty).clamp_min(1.0).sqrt())


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
