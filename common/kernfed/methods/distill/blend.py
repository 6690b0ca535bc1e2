"""How much of the distilled model a client keeps beside the model of its own rows alone.

A choice between the two by some ten held-out rows is often wrong. A mean of both, weighed by the same rows, is seldom
much worse than either: its error is at most the weighed mean of theirs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernfed.arrays import Flags, Floats, Integers

SPREAD = 0.5
"""Standard deviation of the shares that are expected before any row is seen, around 0, which is own rows alone."""


def distilled_share(alone: Floats, distilled: Floats, unit: Integers, near: Flags) -> float:
    """Weight s of the distilled model in (1 - s) f_alone + s f_distilled, from 0 to 1.

    With errors e of the model of own rows alone, and d of the distilled one, least squares give
    s = -e'(d - e)/|d - e|². Its variance v is estimated by the scatter of the units' scores, and s is divided by
    1 + v/`SPREAD`²: what few rows say of the distilled model counts little. Rows without a public point near them say
    nothing of what public points teach: s is that of the rows near one, times the part that these are of all. Where a
    mean with this weight has no less squared error over all rows, s is 0.

    Args:
        alone: Errors on held-out rows of the model of own rows alone, (n, C).
        distilled: Errors of the distilled model on the same rows, (n, C).
        unit: Which rows belong together, (n,); see `kernfed.maths.folds.units`.
        near: Which rows have a public point near them, (n,).
    """
    share = _least_squares(alone[near], distilled[near], unit[near]) * float(near.mean())
    with np.errstate(over="ignore", invalid="ignore"):
        left = np.square(blend(alone, distilled, share)).sum()
    return share if left < np.square(alone).sum() else 0.0


def _least_squares(alone: Floats, distilled: Floats, unit: Integers) -> float:
    step = distilled - alone
    with np.errstate(over="ignore", invalid="ignore"):
        size = float(np.square(step).sum())
        if not (np.isfinite(size) and size > 0.0):
            return 0.0
        share = -float((alone * step).sum()) / size
        left = alone + min(max(share, 0.0), 1.0) * step
        scores = np.bincount(unit, weights=(step * left).sum(axis=1))
        variance = float(np.square(scores / size).sum())
    shrunk = share / (1.0 + variance / SPREAD**2)
    return min(max(shrunk, 0.0), 1.0) if np.isfinite(shrunk) else 0.0


def blend(alone: Floats, distilled: Floats, share: float) -> Floats:
    """(1 - s) f_alone + s f_distilled.

    The same mean of deviations that both models expect is what theirs is at most, for nobody knows how far their errors
    go together.
    """
    if share == 0.0:
        return alone  # whatever the other is, finite or not
    found: Floats = (1.0 - share) * alone + share * distilled
    return found


class Gain(NamedTuple):
    """By which part of the squared error of own rows alone another model has less."""

    less: float
    error: float
    """Standard error of that, by the scatter of the units."""


def gain(alone: Floats, distilled: Floats, share: float, unit: Integers) -> Gain:
    """Say what a mean of both models gains on held-out rows, and how sure that is: a quotient of sums over units.

    Args:
        alone: Errors of the model of own rows alone, (n, C).
        distilled: Errors of the distilled one, (n, C); finite where `share` is above 0.
        share: Weight s of the distilled model.
        unit: Which rows belong together, (n,), of two units at least.
    """
    total = float(np.square(alone).sum())
    if not (share > 0.0 and np.isfinite(total) and total > 0.0):
        return Gain(0.0, 0.0)
    before = np.bincount(unit, weights=np.square(alone).sum(axis=1))
    after = np.bincount(unit, weights=np.square(alone + share * (distilled - alone)).sum(axis=1))
    left = float(after.sum()) / total
    scatter = float(np.square(after - left * before).sum()) * len(before) / (len(before) - 1)
    return Gain(1.0 - left, float(np.sqrt(scatter)) / total)
