"""Numbers about rows as others may know them."""

from __future__ import annotations

import numpy as np
import pytest

from kernfed_client.data.guards.told import greatest, smallest, told, told_counts


def test_counts_are_none_or_enough() -> None:
    """A count below the least is 0; of several counts the small ones go with the greatest, and the sum stays."""
    assert [told(count, 10) for count in (0, 1, 9, 10, 25)] == [0, 0, 0, 10, 25]
    assert told_counts(np.array([3, 40, 0, 9, 12]), 10).tolist() == [0, 52, 0, 0, 12]
    assert told_counts(np.array([3, 40, 0, 9, 12]), 1).tolist() == [3, 40, 0, 9, 12]


@pytest.mark.parametrize(("least", "high", "low"), [(1, 9.0, 0.0), (4, 7.5, 1.5), (20, 4.5, 4.5)])
def test_the_outermost_values_are_means(least: int, high: float, low: float) -> None:
    """With 1 they are those of single rows."""
    values = np.random.default_rng(1).permutation(10).astype(np.float64)
    assert (greatest(values, least), smallest(values, least)) == (high, low)
