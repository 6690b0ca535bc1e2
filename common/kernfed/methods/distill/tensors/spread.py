"""What kernel ridge regression expects of its errors at a point: closed form, from the points that it was fitted to."""

from __future__ import annotations

import torch
from torch import Tensor

from kernfed.methods.distill.tensors.distillation import KernelModel
from kernfed.tensors.in_place import factor_in_place, solve_rows_in_place
from kernfed.tensors.kernels import gram, lower_gram

_ROWS = 256
"""Points at a time."""


def spread(model: KernelModel, x: Tensor) -> Tensor:
    """Deviation that is expected of a target less its prediction, in that of the noise of a row, (m,): √(1 + v/p).

    Ridge regression is the mean of a Gaussian process, of which a target has noise whose variance is the point's
    penalty (Rasmussen & Williams 2006, equations 2.26 and 2.42). With M = K + diag(p) and k = k(x, points), it has the
    variance

        v(x) = k(x, x) - k'M⁻¹k + (1 - k'M⁻¹1)²/(1'M⁻¹1)

    The last term is there where an intercept costs nothing. p is the penalty of an own row, which is the first point.

    Args:
        model: With `penalties`.
        x: Points, (m, d).

    Raises:
        NotPositiveDefiniteError: The ridge is too small for the kernel.
    """
    penalties = model.penalties
    assert penalties is not None  # noqa: S101  # a model from a file of an earlier release is asked for nothing
    system = lower_gram(model.kernel, model.points, x.new_empty(len(model.points), len(model.points)))
    system.diagonal().add_(penalties)
    factor = factor_in_place(system, name="K + diag(p)")
    ones = solve_rows_in_place(factor, x.new_ones(len(model.points), 1))[:, 0]
    found = x.new_empty(len(x))
    for rows, out in zip(torch.split(x, _ROWS), torch.split(found, _ROWS), strict=True):
        half = solve_rows_in_place(factor, gram(model.kernel, model.points, rows))
        out.copy_(gram(model.kernel, rows).diagonal() - half.square().sum(dim=0))
        if model.offset is not None:
            out.add_((1.0 - half.T @ ones).square() / ones.square().sum())
    return (1.0 + found.clamp_min(0.0) / penalties[0]).sqrt()
