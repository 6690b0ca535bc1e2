"""The ridge of a head whose rows are all in one place, by rows kept apart, so that baselines get what the job gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kernfed.maths.folds import num_splits
from kernfed.methods.heads.ridge_path import RIDGE_GAIN, following
from kernfed.methods.heads.tensors.fitting import fit
from kernfed.methods.heads.tensors.losses import Head

_ENOUGH_APART = 100
"""Rows kept apart by which a ridge is chosen: where a part has fewer, more parts are kept apart in turn."""
_TOLERANCE, _MAX_ITERATIONS = 1e-4, 60
"""Of the fits on the way."""


@dataclass(frozen=True, slots=True)
class Split:
    """Rows to train on, and rows kept apart."""

    fitting: Head
    validation: Head


def splits(everything: Head, fold: Tensor) -> list[Split]:
    """The rows parted by their folds, as many times as `_ENOUGH_APART` asks for.

    Args:
        everything: All rows.
        fold: Of each row, from 0 on, shape (n,).
    """
    found = []
    for i in range(num_splits(everything.num_rows, _ENOUGH_APART)):
        apart = fold == i
        found.append(Split(everything.take((~apart).nonzero()[:, 0]), everything.take(apart.nonzero()[:, 0])))
    return found


def chosen_ridge(parted: Sequence[Split], ridge: float) -> float:
    """The ridge, from `ridge` on by factors of 10, with which rows kept apart are predicted best.

    Ridges grow where rows kept apart gain by a smaller W, and go down elsewhere. The first step may be longer: up to
    the ridge that makes up for that gain, or down to the mean curvature, above which every ridge is too strong.

    Args:
        parted: The rows, parted in several ways; what is said by each counts by its rows kept apart.
        ridge: Where to begin; it stays where no row is kept apart, or none is left.
    """
    usable = [s for s in parted if s.validation.num_rows > 0 and s.fitting.num_rows > 0]
    if not usable:
        return ridge
    weights: list[Tensor] = []

    def worth(tried: float) -> float:
        """Mean loss of the rows kept apart."""
        total = 0.0
        begin: Sequence[Tensor | None] = weights or [None] * len(usable)
        weights[:] = [
            fit(replace(part.fitting, ridge=tried), w, tolerance=_TOLERANCE, max_iterations=_MAX_ITERATIONS)
            for part, w in zip(usable, begin, strict=True)
        ]
        for part, w in zip(usable, weights, strict=True):
            total += part.validation.num_rows * part.validation.loss_and_slope(w)[0]
        return total / sum(part.validation.num_rows for part in usable)

    level = worth(ridge)
    missing = _missing(usable, weights)
    up, best = missing > ridge, ridge
    while True:
        curvatures = [p.fitting.hessian(w).mean_diagonal() for p, w in zip(usable, weights, strict=True)]
        curvature = sum(curvatures) / len(curvatures)
        candidate = following(best, up=up, missing=missing, curvature=curvature)
        if candidate is None:
            return best
        reached = worth(candidate)
        if not reached < (1.0 - RIDGE_GAIN) * level:
            return best
        level, best = reached, candidate


def _missing(parted: Sequence[Split], weights: Sequence[Tensor]) -> float:
    """The ridge by which rows trained on would pull at W as hard as those kept apart."""
    gap = square = 0.0
    for part, w in zip(parted, weights, strict=True):
        num = part.validation.num_rows
        gap += num * (part.validation.loss_and_slope(w)[1] - part.fitting.loss_and_slope(w)[1])
        shrunk = w[:-1] if part.fitting.free_bias else w
        square += num * float(torch.square(shrunk).sum())
    return gap / square if square > 0 else 0.0
