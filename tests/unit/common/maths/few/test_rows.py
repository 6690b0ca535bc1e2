"""Few rows that stand out in a column, or in what columns add up to, are taken as the others; all else stays."""

from __future__ import annotations

import numpy as np
import pytest

from kernfed.arrays import Floats
from kernfed.maths.few.rows import few_products, levelled, scaled_columns, without_few


def plain(num: int = 100, num_columns: int = 3) -> Floats:
    return np.random.default_rng(3).normal(size=(num, num_columns))


def in_rows(num: int, total: int = 100) -> Floats:
    """1 in the first rows."""
    return (np.arange(total) < num).astype(np.float64)


@pytest.mark.parametrize(("num", "kept"), [(0, True), (1, False), (9, False), (10, True), (90, True), (91, False)])
def test_a_column_of_few_ones_becomes_constant(num: int, kept: bool) -> None:
    """Of a hundred rows 1 to 9 may not differ from the others, whichever value these have."""
    x = np.column_stack([plain(), in_rows(num)])
    found, changed = without_few(x, 10)
    assert changed == (() if kept else (3,))
    assert found is x or not kept
    np.testing.assert_array_equal(found[:, 3], x[:, 3] if kept else np.full(100, float(num > 50)))
    assert without_few(x, 1)[0] is x


def test_what_most_rows_hold_does_not_hang_on_their_order() -> None:
    """A column of a sorted file that is 1 in its first 300 rows of 2,000 is subtracted 0 from, as in any order."""
    assert scaled_columns(in_rows(300, 2000)[:, None])[3].tolist() == [0.0]
    assert scaled_columns(in_rows(300, 2000)[::-1, None])[3].tolist() == [0.0]


def test_numbers_that_repeat_by_chance_stay() -> None:
    """With ten rows, of which two are alike in a column, no value is what the others are."""
    x = plain(10)
    x[1, 0] = x[0, 0]
    assert not without_few(x, 10)[1]
    assert (levelled(np.array([[1.0], [1.0], [2.0]]), 10) == 1.0).all()
    assert levelled(np.zeros((0, 2)), 10).shape == (0, 2)


@pytest.mark.parametrize("num", [3, 9])
def test_levels_that_few_rows_have_none_of(num: int) -> None:
    """Two categories, each with a level of few rows that is no column: these rows get one of the other levels."""
    draw = np.random.default_rng(num)
    columns = [plain(400)]
    for _ in range(2):
        level = draw.permutation(np.r_[np.full(num, 3), draw.integers(0, 3, 400 - num)])
        columns.append((level[:, None] == np.arange(3)).astype(np.float64))
    x = np.hstack(columns)
    found, changed = without_few(x, 10)
    assert len(changed) == 2
    for levels in (found[:, 3:6], found[:, 6:]):
        np.testing.assert_allclose(levels.sum(axis=1), 1.0, atol=1e-12)
    assert ((found != x).sum(axis=0) <= num).all()
    np.testing.assert_array_equal(found[:, :3], x[:, :3])


def test_a_column_that_equals_a_sum_but_in_few_rows() -> None:
    """A total of two columns of different scales that was corrected in four rows follows them there."""
    x = plain() * [1.0, 1e3, 1.0]
    total = 2.0 * x[:, 0] + x[:, 1]
    total[[3, 14, 15, 92]] += 7.0
    found, changed = without_few(np.column_stack([x, total]), 10)
    assert len(changed) == 1
    np.testing.assert_allclose(2.0 * found[:, 0] + found[:, 1], found[:, 3], rtol=1e-9, atol=1e-9)
    total[:12] += 7.0  # more rows are no few
    assert not without_few(np.column_stack([x, total]), 10)[1]


def test_more_columns_than_rows_are_left() -> None:
    """Sums that are 0 in most rows are no sign of anything there."""
    x = plain(40, 38)
    assert without_few(x, 10)[0] is x


def test_products_of_few_rows_are_found() -> None:
    """Of pairs of columns those whose joint cell has few rows; of a column with a rare third value, its square."""
    third = np.repeat([0.0, 1.0, 5.0], [60, 37, 3])
    x = np.column_stack([plain(100, 1), in_rows(30), np.roll(in_rows(30), 29), np.roll(in_rows(30), 50), third])
    found = few_products(x, 10)
    assert found.few[1, 2]
    assert found.few[4, 4]
    assert not found.few[0].any()
    assert not found.few[1, 3]
    assert not np.tril(found.few, -1).any()
    for j, k in zip(*np.nonzero(found.few), strict=True):
        rows = ((x[:, j] - found.a[j, k]) * (x[:, k] - found.b[j, k]) != 0).sum()
        assert 0 < rows < 10
    assert few_products(plain(), 10).num == 0
