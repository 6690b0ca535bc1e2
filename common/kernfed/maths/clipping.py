"""Columns without the rows that stand far out: what one bad row may do to scales and models, by a stated rule."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernfed.arrays import Floats

FEWEST_ROWS = 8
"""Below it nobody can tell whether a row stands far out."""

SHARE = 100
"""One row in so many, and at least one, may stand far out; the others say how far is far."""

TIMES = 8.0
"""A row stands far out beyond so many times the distance of the farthest of the others."""

BOUND = 10.0
"""In a column where one client stands apart, standardised training rows are taken at most so many deviations from 0."""


def clip_rows(x: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Take the values of rows that stand far out at the farthest of the others, column by column.

    Let d be the distance from a column's median, and r = n/100 rounded down, at least 1. The others' farthest is the
    (r + 1)-th largest d. A row stands far out if its d is more than `TIMES` that; it is moved to the farthest of the
    others on its side. Nothing is moved with fewer than `FEWEST_ROWS` rows. Nor is it where the others' farthest is
    0: nearly all rows are alike then, and the few others may be what the column is there for.

    Args:
        x: Rows, shape (n, d).

    Returns:
        The rows, `x` itself where none stands far out; and how many do, per column, (d,).
    """
    num_rows, d = x.shape
    if num_rows < FEWEST_ROWS:
        return x, np.zeros(d, np.int64)
    centre = np.median(x, axis=0)
    distance = np.abs(x - centre)
    rank = num_rows - 1 - max(1, num_rows // SHARE)
    farthest = np.partition(distance, rank, axis=0)[rank]
    far = (distance > TIMES * farthest) & (farthest > 0)
    counts: npt.NDArray[np.int64] = far.sum(axis=0)
    return (np.where(far, centre + np.sign(x - centre) * farthest, x) if far.any() else x), counts
