"""Batches: every row once an epoch, one by one or in whole blocks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kernfed import rng
from kernfed.maths.batches import batches


def test_rows_one_by_one() -> None:
    """An epoch of 25 rows in batches of 10 has 10, 10 and 5 rows; the next one has another order."""
    found = list(itertools.islice(batches(rng.stream(1, "a"), 25, 10), 6))
    assert [len(rows) for rows in found] == [10, 10, 5] * 2
    first, second = np.concatenate(found[:3]), np.concatenate(found[3:])
    assert sorted(first) == sorted(second) == list(range(25))
    assert (first != second).any()


def test_a_last_batch_that_is_too_small_goes_with_the_one_before() -> None:
    """Of 21 rows in batches of 10 the last row is no batch of its own; in batches of one row each is."""
    found = list(itertools.islice(batches(rng.stream(1, "a"), 21, 10, least=2), 4))
    assert [len(rows) for rows in found] == [10, 11] * 2
    assert sorted(np.concatenate(found[:2])) == list(range(21))
    assert [len(rows) for rows in itertools.islice(batches(rng.stream(1, "a"), 3, 1, least=2), 6)] == [1] * 6


@pytest.mark.parametrize("size", [1, 10, 11, 25, 60])
def test_no_batch_divides_a_block(size: int) -> None:
    """Batches of blocks of 10 to 12 rows are whole blocks, at least so many rows, and each row comes once an epoch."""
    block = np.repeat([3, 0, 1, 7, 4, 2], [10, 12, 10, 11, 10, 10])
    seen = 0
    for rows in itertools.islice(batches(rng.stream(2, "b"), len(block), size, block), 12):
        assert len(rows) >= min(size, 63)
        assert all((block == number).sum() == (block[rows] == number).sum() for number in set(block[rows]))
        seen += len(rows)
        if seen % 63 == 0:
            seen = 0
    assert seen < 63
