"""Groups of sorted rows say of a column what they can."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernfed.maths.few.neighbours import group_means, group_sizes
from kernfed.methods.describe.ranks import Groups, value_counts


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_quantiles_of_single_rows_are_those_of_numpy(values: list[float], levels: list[float]) -> None:
    """As long as a group is one row nothing is lost."""
    x = np.array(values)[:, None]
    sizes = group_sizes(len(x), len(x), 1)
    groups = Groups.of_neighbours(group_means(x, sizes)[:, 0], sizes)
    assert np.allclose(groups.quantiles(levels), np.quantile(x, levels), rtol=1e-9, atol=1e-9)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(1, 3))
def test_quantiles_of_counted_values_are_those_of_numpy(values: list[int], clients: int) -> None:
    """Rows that are counted by value are known, whoever has them."""
    parts = [np.array(values[i::clients], dtype=float) for i in range(clients)]
    counted = [value_counts(part, 5, 1) for part in parts]
    groups = Groups.joined([Groups.of_values(*found[:2]) for found in counted if found is not None])
    levels = [0.0, 0.1, 0.5, 0.9, 1.0]
    assert np.allclose(groups.quantiles(levels), np.quantile(values, levels))


def test_a_histogram_of_single_rows_is_that_of_numpy() -> None:
    """Each row is in the cell that numpy counts it in, an edge belongs to the cell above."""
    x = np.sort(np.random.default_rng(1).normal(size=300).round(1))
    edges = np.linspace(x[0], x[-1], 11)
    found = Groups.of_neighbours(x, np.ones(300, np.int64)).histogram(edges)
    assert found.tolist() == np.histogram(x, edges)[0].tolist()


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ((30, 20, 12), ((0.0, 1.0, 2.0), (30, 20, 12), 0)),
        ((30, 20, 4), ((0.0, 1.0), (34, 20), 0)),
        ((30, 8, 4), ((0.0,), (30,), 12)),
        ((9, 8, 4), None),
        ((10, 10, 10, 10, 10, 10), None),
    ],
)
def test_no_count_is_of_few_rows(counts: tuple[int, ...], told: object) -> None:
    """Values of fewer than ten rows are others; where these are fewer too, they count with the commonest value."""
    values = np.repeat(np.arange(len(counts), dtype=float), counts)
    assert value_counts(values, 5, 10) == told
