"""Sets of rows that many jobs use, each without a few of them, and what sums over their blocks tell of a row."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kernfed.arrays import Floats
from kernfed_testing.hostile.adversary import COLUMNS

NUM = 100


def ranges(table: dict[str, Sequence[Any]]) -> Iterator[dict[str, list[float]]]:
    """All rows, then the 10, 20, ... least or greatest values of a column left out: 48 jobs."""
    yield {}
    for num, column, low in itertools.product(range(10, 90, 10), COLUMNS, (True, False)):
        values = np.sort(np.array(table[column], dtype=float))
        cut = float(values[num - 1 : num + 1].mean() if low else values[NUM - num - 1 : NUM - num + 1].mean())
        yield {column: [cut, 99.0] if low else [-99.0, cut]}


def members(blocks: Sequence[frozenset[int]]) -> Floats:
    """Whether each different block has each row, (K, NUM)."""
    return np.array([np.isin(np.arange(NUM), sorted(block)) for block in dict.fromkeys(blocks)], dtype=np.float64)


def known(member: Floats) -> int:
    """Rows that follow from sums over some sets: their unit vectors lie in the span of the sets."""
    _, sizes, span = np.linalg.svd(member, full_matrices=False)
    return int(((span[sizes > 1e-9] ** 2).sum(axis=0) > 1 - 1e-9).sum())
