"""Sums over a client's rows in one pass, made before it is known which means are subtracted from them.

A ridge problem is that of features and targets less means of all clients, which are known once each client has told its
own. Sums around a shift that lies among the rows stand in for a second pass. With d = z - s and e = y - t, the means a
and b to subtract, δ = a - s and ε = b - t,

    Σ (z - a)(z - a)' = Σ d d' - (Σ d) δ' - δ (Σ d)' + n δ δ'
    Σ (z - a)(y - b)' = Σ d e' - (Σ d) ε' - δ (Σ e)' + n δ ε'

s is the mean of the first rows, and t that of all targets, so next to nothing cancels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernfed.tensors.ridge import uses_rows
from kernfed.tensors.rows import SMALL, FeatureRows
from kernfed.tensors.shifted_gram import GramSum, ShiftedGram

_FIRST = 256
"""Rows whose mean is the shift."""


@dataclass(frozen=True, slots=True)
class _Sums:
    gram: GramSum
    total: Tensor
    """Σ d, (M,)."""
    moment: Tensor
    """Σ d e', (M, C)."""
    shift: Tensor
    """s, (M,)."""
    target_shift: Tensor
    """t, (C,)."""
    target_total: Tensor
    """Σ e, (C,)."""


class RowSums:
    """Sums over rows that are made when they are first asked for. M features, C outputs."""

    def __init__(self, rows: FeatureRows, y: Tensor) -> None:
        """Take rows and targets from which nothing is subtracted yet.

        Args:
            rows: Features, shape (n, M), n at least 1.
            y: Targets, shape (n, C), of their type and device.
        """
        self._rows, self._y = rows, y
        self._made: _Sums | None = None

    @staticmethod
    def saves(num_rows: int, num_features: int) -> bool:
        """Whether a pass over the rows is worth saving: they are many, and an M x M matrix is made of them."""
        return num_rows * num_features > SMALL and not uses_rows(num_rows, num_features)

    def mean(self) -> Tensor:
        """Compute the mean of the rows, shape (M,)."""
        made = self._make()
        return made.shift + made.total / self._rows.shape[0]

    def around(self, mean: Tensor, target_mean: Tensor) -> tuple[ShiftedGram, Tensor]:
        """Compute Z'Z/n, and Z'Y/n, shape (M, C), of features less `mean`, (M,), and targets less `target_mean`, (C,).

        The matrix is given away, so a second call takes a pass of its own.
        """
        made, self._made = self._make(), None
        n = self._rows.shape[0]
        delta, epsilon = mean - made.shift, target_mean - made.target_shift
        made.gram.subtract(made.total - delta * (n / 2.0), delta)
        moment = made.moment.addr(made.total - delta * n, epsilon, alpha=-1.0)
        return made.gram.done(1.0 / n), moment.addr_(delta, made.target_total, alpha=-1.0).div_(n)

    def _make(self) -> _Sums:
        if self._made is None:
            rows, y = self._rows, self._y
            first = torch.arange(min(_FIRST, rows.shape[0]), device=rows.device)
            shift, target_shift = rows.take(first).mean(0), y.mean(0)
            e = y - target_shift
            gram, total = GramSum(rows.shape[1], rows.dtype, rows.device), torch.zeros_like(shift)
            moment = total.new_zeros(rows.shape[1], y.shape[1])
            start = 0
            for d in rows.minus(shift).blocks():
                gram.add(d)
                total += d.sum(0)
                moment.addmm_(d.T, e[start : start + len(d)])
                start += len(d)
            self._made = _Sums(gram, total, moment, shift, target_shift, e.sum(0))
        return self._made
