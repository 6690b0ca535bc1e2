"""Sets of two and three columns that together single out a few rows."""

from __future__ import annotations

import numpy as np

from kernfed.maths.few.together import few_together

NUM, LEAST = 240, 10


def test_three_marks_that_four_rows_have() -> None:
    """Any two of them have enough rows, and so has each alone; a column of numbers is in no set."""
    x = np.zeros((NUM, 4))
    x[:, 1] = np.random.default_rng(0).normal(size=NUM)
    for places, first in (((0, 2), 0), ((2, 3), 20), ((0, 3), 40)):
        for place in places:
            x[first : first + 16, place] = 1.0
    x[60:64, [0, 2, 3]] = 1.0
    assert few_together(x, LEAST) == [(0, 2, 3)]
    assert not few_together(x, 4)


def test_two_marks_that_three_rows_have() -> None:
    """A set of three with these two in it is not told again."""
    draw = np.random.default_rng(1)
    x = np.zeros((NUM, 3))
    x[:60, 0] = x[57:117, 1] = 1.0
    x[:, 2] = draw.uniform(size=NUM) < 0.5
    assert few_together(x, LEAST) == [(0, 1)]


def test_numbers_single_out_nothing_that_can_be_listed() -> None:
    """Nor does one column by itself, nor any where one row is enough, or where there are none."""
    draw = np.random.default_rng(2)
    numbers = draw.normal(size=(NUM, 5))
    assert not few_together(numbers, LEAST)
    few = np.column_stack([numbers, np.arange(NUM) < 3]).astype(np.float64)
    assert not few_together(few, LEAST)
    assert not few_together(few, 1)
    assert not few_together(np.empty((0, 3)), LEAST)
    assert not few_together(np.empty((NUM, 0)), LEAST)
