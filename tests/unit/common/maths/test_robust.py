"""Medians, trimmed means and bounded means of updates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernfed.maths.aggregate import SLICE
from kernfed.maths.robust import MeanRule, bounded_factors, bounded_mean, combined, far_beyond

numbers = st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=9)


@given(numbers, st.floats(allow_nan=False, allow_infinity=False))
def test_one_absurd_number_stays_within_the_others(honest: list[float], absurd: float) -> None:
    """A median and a trimmed mean lie between the least and the greatest of the honest numbers."""
    arrays = [np.array([v]) for v in [*honest, absurd]]
    for rule in (MeanRule("median"), MeanRule("trimmed", 0.1)):
        (found,) = combined(arrays, rule)
        assert min(honest) - 1e-9 <= found <= max(honest) + 1e-9


@pytest.mark.parametrize(
    ("num", "trim", "cut"),
    [(3, 0.1, 1), (4, 0.2, 1), (5, 0.2, 1), (10, 0.2, 2), (10, 0.49, 4), (2, 0.4, 0), (1, 0.4, 0)],
)
def test_the_part_that_is_trimmed_is_rounded_up(num: int, trim: float, cut: int) -> None:
    """At least one of three at either end, and never all."""
    assert MeanRule("trimmed", trim).num_trimmed(num) == cut


def test_large_arrays_are_done_in_slices() -> None:
    """To the same numbers as at once."""
    draw = np.random.default_rng(1)
    arrays = [draw.normal(size=(SLICE + 5, 2)) for _ in range(5)]
    np.testing.assert_array_equal(combined(arrays, MeanRule("median")), np.median(arrays, axis=0))
    want = np.sort(arrays, axis=0)[1:4].mean(axis=0)
    np.testing.assert_allclose(combined(arrays, MeanRule("trimmed", 0.2)), want, rtol=1e-14)


def test_a_long_update_counts_with_the_median_norm() -> None:
    """By hand: norms 1, 1 and 10^6 from W; with 2 times the median the long one is taken with norm 2."""
    before = np.array([1.0, 1.0])
    arrays = [np.array(w) for w in ([2.0, 1.0], [1.0, 2.0], [1.0 + 1e6, 1.0])]
    factors = bounded_factors(arrays, before, 2.0)
    assert factors == pytest.approx([1.0, 1.0, 2e-6])
    np.testing.assert_allclose(bounded_mean(arrays, before, [1, 1, 2], factors), np.array([9 / 4, 5 / 4]), rtol=1e-9)


def test_of_two_updates_the_shorter_one_says_how_long_the_other_may_be() -> None:
    """The lower median, so that one of two clients cannot raise the bound for itself."""
    before = np.zeros(1)
    assert bounded_factors([np.array([1.0]), np.array([100.0])], before, 1.0) == pytest.approx([1.0, 0.01])
    assert bounded_factors([before, before], before, 1.0) == [1.0, 1.0]


def test_who_is_far_beyond_the_others() -> None:
    """By hand: the median of the others decides, two of five do not cover each other, and the floor spares what is
    short.
    """
    assert far_beyond({"a": 1.0, "b": 2.0, "c": 1.0, "d": 1e5, "e": 2e5}, 0.1) == ["d", "e"]
    assert far_beyond({"a": 1e-9, "b": 2e-9, "c": 0.5}, 1.0) == []
    assert far_beyond({"a": 1.0, "b": 999.0}, 0.1) == []
    assert far_beyond({"a": 1.0, "b": 1001.0}, 0.1) == ["b"]
    assert far_beyond({"a": 1001.0}, 1.0) == ["a"]
