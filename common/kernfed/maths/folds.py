"""Folds that copies do not cross: rows of the same content, or of the same group, lie in one fold.

A copy of a row among those that are kept apart tells what was learned by heart, not what was learned.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np

from kernfed.arrays import Array, Floats, Integers

FOLDS = 5
"""Parts of the rows, each of which may be kept apart."""


def num_splits(num_rows: int, enough_apart: int) -> int:
    """How many of the `FOLDS` parts are kept apart in turn: as many as hold enough rows, at most all."""
    return min(FOLDS, math.ceil(enough_apart * FOLDS / max(num_rows, 1)))


def units(content: Floats, groups: Integers | None = None) -> Integers:
    """Number rows so that those which belong together have one number, shape (n,).

    Args:
        content: Numbers of each row, shape (n, d): inputs, and targets where they count; -0 is 0.
        groups: Number of each row's group, e.g. its patient, shape (n,); unset: every row is a group of its own.
    """
    copies = number(row_digests(content))
    return copies if groups is None else joined(copies, groups)


def joined(copies: Integers, groups: Integers) -> Integers:
    """Number rows so that those of one group, and copies, have one number, (n,); chains of both are one.

    Where rows of few columns are equal by chance, such chains would tie most groups to each other: where less than half
    as many units as groups would be left, groups alone count.

    Args:
        copies: Number of each row's content, from 0 on, (n,).
        groups: Number of each row's group, (n,).
    """
    _, group = np.unique(groups, return_inverse=True)
    lowest = _lowest_reached(copies, group)
    first, found = np.unique(lowest, return_inverse=True)
    joint: Integers = (found if 2 * len(first) >= group.max(initial=-1) + 1 else group).astype(np.int64)
    return joint


def _lowest_reached(copies: Integers, group: Array) -> Array:
    """The lowest number of a content that each row's chain of copies and groups holds, (n,)."""
    total = int(copies.max(initial=-1)) + 1
    reached = np.arange(total)
    while True:
        lowest = np.full(len(copies), total)
        np.minimum.at(lowest, group, reached[copies])
        further = reached.copy()
        np.minimum.at(further, reached[copies], lowest[group])
        while not np.array_equal(further, further[further]):
            further = further[further]
        if np.array_equal(further, reached):
            return reached[copies]
        reached = further


def row_digests(content: Floats, labels: Sequence[str] | None = None) -> list[bytes]:
    """Digest of each row's content, n of 16 bytes.

    Args:
        content: Numbers of each row, shape (n, d); -0 is 0.
        labels: What else belongs to the content of each row; unset: nothing.
    """
    plain = np.ascontiguousarray(content, dtype=np.float64) + 0.0
    if labels is None:
        return [hashlib.blake2b(row.data, digest_size=16).digest() for row in plain]
    rows = zip(plain, labels, strict=True)
    return [hashlib.blake2b(row.tobytes() + label.encode(), digest_size=16).digest() for row, label in rows]


def number(digests: Sequence[bytes]) -> Integers:
    """Number rows by their digests in the order in which those come first, shape (n,)."""
    seen: dict[bytes, int] = {}
    return np.array([seen.setdefault(found, len(seen)) for found in digests], dtype=np.int64)


def deal(order: Array, unit: Array, num_folds: int) -> Integers:
    """Deal rows to folds of about the same size, shape (n,): each unit, in turn, goes to the smallest.

    Args:
        order: A permutation of the rows, which says whose turn it is, shape (n,).
        unit: From `units`, shape (n,).
        num_folds: Folds.
    """
    sizes = np.bincount(unit)
    filled = np.zeros(num_folds, dtype=np.int64)
    fold = np.full(len(sizes), -1, dtype=np.int64)
    for row in order:
        u = unit[row]
        if fold[u] < 0:
            fold[u] = int(np.argmin(filled))
            filled[fold[u]] += sizes[u]
    dealt: Integers = fold[unit]
    return dealt


def keep_apart(order: Array, unit: Array, num: int) -> Array:
    """Mark whole units, in turn, for as long as they are no more than `num` rows; shape (n,), bool."""
    sizes = np.bincount(unit)
    apart, seen, left = np.zeros(len(sizes), dtype=bool), np.zeros(len(sizes), dtype=bool), num
    for row in order:
        u = unit[row]
        if left <= 0:
            break
        if not seen[u]:
            seen[u] = True
            if sizes[u] <= left:
                apart[u], left = True, left - int(sizes[u])
    marked: Array = apart[unit]
    return marked


def variance_of_means(values: Floats, unit: Integers | None) -> Floats:
    """Variance of the mean of each row of `values` over n rows of data, shape (J,): copies vary as one, by their sum.

    Args:
        values: Shape (J, n).
        unit: From `units`, shape (n,); None: no row has a copy.
    """
    n = values.shape[1]
    if unit is None or len(np.unique(unit)) == n:
        plain: Floats = np.var(values, axis=1) / max(1, n - 1)
        return plain
    sums = sums_of_deviations(values, unit)
    num = sums.shape[1]
    found: Floats = np.square(sums).sum(axis=1) / n**2 * (num / max(1, num - 1))
    return found


def sums_of_deviations(values: Floats, unit: Integers) -> Floats:
    """Sums over the copies of each row of the deviations from the mean, shape (J, U); arguments as above."""
    _, place = np.unique(unit, return_inverse=True)
    sums = np.zeros((int(place.max()) + 1, len(values)))
    np.add.at(sums, place, (values - values.mean(axis=1, keepdims=True)).T)
    found: Floats = sums.T
    return found
