"""What rows can have of which groups of neighbours are known: no rows are beyond, and some are near."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernfed.maths.few.neighbours import group_means, group_sizes
from kernfed.methods.describe.bounds import most_deviation, outermost


@given(
    seed=st.integers(0, 10**6),
    num=st.integers(1, 60),
    least=st.integers(1, 12),
    groups=st.integers(1, 20),
    power=st.integers(1, 9),
)
def test_no_rows_are_beyond(seed: int, num: int, least: int, groups: int, power: int) -> None:
    """Of any law: heavier tails with each power, and ties."""
    values = np.random.default_rng(seed).normal(size=(num, 2)) ** power
    values[:, 1] = np.round(values[:, 1])
    sizes = group_sizes(num, groups, least)
    means, ordered, near = group_means(values, sizes), np.sort(values, axis=0), 1e-9 * np.abs(values).max()
    deviation = values.std(axis=0)
    assert (deviation <= most_deviation(sizes, means) * (1 + 1e-9) + near).all()
    low, high = outermost(sizes, means, deviation)
    for few in {1, min(least, num)}:
        assert (ordered[:few].mean(axis=0) >= low - near).all()
        assert (ordered[-few:].mean(axis=0) <= high + near).all()


@pytest.mark.parametrize("unit", [1e-100, 1e-160, 1e-300])
def test_small_numbers_are_not_taken_for_none(unit: float) -> None:
    """Squares of numbers below 1e-154 are 0 in float64; the limit is still beyond the deviation of the rows."""
    values = np.random.default_rng(0).normal(size=(40, 1))
    sizes = group_sizes(40, 8, 5)
    most = most_deviation(sizes, group_means(values, sizes) * unit)
    assert most / unit == pytest.approx(most_deviation(sizes, group_means(values, sizes)))


def test_some_rows_are_there() -> None:
    """Groups of single rows leave nothing open, and of a single group one row may be all that differs."""
    values = np.array([[1.0], [2.0], [4.0]])
    assert most_deviation(np.ones(3, np.int64), values) == pytest.approx(values.std())
    low, high = outermost(np.ones(3, np.int64), values, np.array([100.0]))
    assert (low[0], high[0]) == (1.0, 4.0)
    one = np.array([[0.0]] * 9 + [[10.0]])
    low, high = outermost(np.array([10]), np.array([[1.0]]), one.std(axis=0))
    assert high[0] == pytest.approx(10.0)
    assert np.isinf(most_deviation(np.array([10]), np.array([[1.0]]))).all()
    three, many = np.array([5, 5, 5]), np.array([[0.0]] * 14 + [[10.0]])
    assert most_deviation(three, group_means(many, three))[0] == pytest.approx(many.std())
