"""Sums of columns that are 0 in most rows, and in how many they are not."""

from __future__ import annotations

import numpy as np

from kernfed.maths.few.sums import rows_of_sums

NUM, LEAST = 400, 10


def test_two_columns_that_differ_in_some_rows() -> None:
    """The rows in which they do are found, and which columns they are; numbers beside them are in no sum."""
    draw = np.random.default_rng(0)
    numbers = draw.normal(size=(NUM, 4))
    differ = np.arange(NUM) % 11 == 0
    x = np.column_stack([numbers, numbers[:, 1] + 3.0 * differ, 2.0 - numbers[:, 2]])
    rows, columns = rows_of_sums(x, LEAST)
    assert any(np.array_equal(found, differ) for found in rows.T)
    assert columns[[np.array_equal(found, differ) for found in rows.T]][0].tolist() == [0, 1, 0, 0, 1, 0]


def test_a_category_less_two_of_its_levels() -> None:
    """What is left of a constant less two marks is a third level, though no column has it."""
    level = np.random.default_rng(1).choice(3, size=NUM, p=[0.6, 0.3, 0.1])
    rows, _ = rows_of_sums(np.column_stack([level == 0, level == 1]).astype(float), LEAST)
    assert any(np.array_equal(found, level == 2) for found in rows.T)


def test_numbers_that_do_not_add_up_have_no_sums() -> None:
    """Any few rows are 0 in some sum; that is no sign, nor is it where rows are few beside columns."""
    draw = np.random.default_rng(2)
    for shape in ((NUM, 20), (60, 40), (12, 3), (NUM, 0), (0, 3)):
        rows, columns = rows_of_sums(draw.normal(size=shape), LEAST)
        assert rows.shape == (shape[0], 0)
        assert columns.shape == (0, shape[1])
