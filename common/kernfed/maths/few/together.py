"""Two or three columns that together single out a few rows, of which sums over random features nearly tell.

A random feature is a cosine of a sum of columns, so it has a part of each product of columns, the smaller the more
columns there are in it. Of as many features as there are products of two and of three, sums over these nearly follow.
"""

from __future__ import annotations

import itertools

import numpy as np

from kernfed.arrays import Floats
from kernfed.maths.few.rows import two_commonest

_MOST_MARKS = 60
"""Marks that are looked at: those that the fewest rows have."""
_MOST_ROWS = 20_000
"""Of more rows none are looked at."""


def few_together(x: Floats, least: int) -> list[tuple[int, ...]]:
    """Find columns of which a few rows, and not none, have other values than most rows in each of two, or of three.

    Args:
        x: (n, P).
        least: Fewest rows that are not few; columns that single out fewer by themselves do not count.

    Returns:
        Places of the columns of each set, those of two first; no set of three has one of two in it.
    """
    if not 1 < least <= len(x) <= _MOST_ROWS:
        return []
    column, marks = _marks(x, least)
    if not len(column):
        return []
    apart = np.less.outer(column, column)  # two marks of one column are no set
    few = _few(marks.T @ marks, least) & apart
    pairs = {(int(column[i]), int(column[k])) for i, k in np.argwhere(few)}
    triples = set()
    for i, mark in enumerate(marks.T):
        with_it = _few((marks * mark[:, None]).T @ marks, least) & apart & apart[i][:, None]
        triples |= {(int(column[i]), int(column[k]), int(column[m])) for k, m in np.argwhere(with_it)}
    new = {triple for triple in triples if pairs.isdisjoint(itertools.combinations(triple, 2))}
    return [*sorted(pairs), *sorted(new)]


def _few(num: Floats, least: int) -> np.ndarray:
    return (num > 0.5) & (num < least - 0.5)


def _marks(x: Floats, least: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns, (Q,) and rising, and where rows have another value there than one of the commonest, 0 or 1, (n, Q)."""
    found = [
        (j, other)
        for j, values in enumerate(x.T)
        for value in two_commonest(values)
        if np.isfinite(value) and least <= int((other := values != value).sum())
    ]
    fewest = sorted(found, key=lambda one: (int(one[1].sum()), one[0]))[:_MOST_MARKS]
    kept = sorted(fewest, key=lambda one: one[0])
    column = np.array([j for j, _ in kept], dtype=np.int64)
    marks = np.array([other for _, other in kept], dtype=np.float32).reshape(len(kept), len(x)).T
    return column, marks
