"""Folds over which sums are told: each holds as many rows as a sum must stand for, or none."""

from __future__ import annotations

import numpy as np

from kernfed.arrays import Array, Integers
from kernfed.maths.folds import deal


def whole_folds(order: Array, unit: Integers, num_folds: int, least: int, first: int = 0) -> Integers:
    """Deal rows to folds of about the same size, (n,): a client of few rows fills fewer of them.

    Args:
        order: A permutation of the n rows, which says whose turn it is.
        unit: Rows of one number go to one fold, (n,).
        num_folds: Folds at most.
        least: Fewest rows of a fold, `policy.min_rows`.
        first: The fold that is filled first.
    """
    num = max(1, min(num_folds, len(order) // max(1, least)))
    while True:
        dealt = deal(order, unit, num)
        if num == 1 or np.bincount(dealt, minlength=num).min() >= least:
            found: Integers = (dealt + first) % num_folds
            return found
        num -= 1
