"""Groups of sorted rows stand for enough rows each."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernfed.maths.few.neighbours import group_means, group_sizes, neighbour_means


@given(st.integers(1, 500), st.integers(1, 120), st.integers(1, 40))
def test_groups_begin_at_multiples_of_the_least(num_rows: int, num_groups: int, least: int) -> None:
    """So the sums of any two groupings of the same rows differ by at least that many rows, or by none."""
    sizes = group_sizes(num_rows, num_groups, least)
    begins = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    assert sizes.sum() == num_rows
    assert 1 <= len(sizes) <= num_groups
    assert (begins % least == 0).all()
    assert (sizes >= min(least, num_rows)).all()


def test_means_of_groups_of_equal_values_are_these() -> None:
    """No rounding makes a value of a mean of equal ones."""
    x = np.full((70, 1), 0.1)
    assert (group_means(x, group_sizes(70, 7, 10)) == 0.1).all()


@given(st.lists(st.integers(0, 30).map(float), max_size=40), st.integers(2, 9))
def test_each_group_of_neighbours_has_enough_rows_in_any_order(values: list[float], least: int) -> None:
    """Rows of one value stay together, the mean of all is kept, and order is never turned round."""
    x = np.array(values)
    found = neighbour_means(x, least)
    assert found.shape == x.shape
    assert (neighbour_means(x[::-1], least) == found[::-1]).all()
    if len(x) >= least:
        assert np.unique(found, return_counts=True)[1].min() >= least
    if len(x):
        assert found.mean() == np.float64(x.mean()) or abs(found.mean() - x.mean()) < 1e-12
        assert (np.diff(found[np.argsort(x, kind="stable")]) >= 0).all()
