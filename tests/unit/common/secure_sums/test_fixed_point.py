"""Numbers as words: exact sums within a bound, and nothing beyond it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernfed.errors import OutOfRangeError
from kernfed.secure_sums.fixed_point import decode, encode, exponent_of
from kernfed.secure_sums.gathering import added


@given(st.lists(st.lists(st.floats(-8, 8), min_size=4, max_size=4), min_size=1, max_size=9), st.integers(3, 30))
def test_sums_are_exact_to_the_bound(rows: list[list[float]], exponent: int) -> None:
    """A weighted sum is off by at most N 2^-(f+1) and one rounding, in whatever order its terms are added."""
    weights = [1 / len(rows)] * len(rows)
    terms = [encode(np.array(row), weight, exponent) for row, weight in zip(rows, weights, strict=True)]
    found = decode(added(terms), exponent)
    assert np.array_equal(added(terms), added(terms[::-1]))
    exact = np.array([sum(w * x for w, x in zip(weights, column, strict=True)) for column in zip(*rows, strict=True)])
    bound = len(rows) * (2.0 ** (exponent - 62) + 4 * 2.0**-53 * 8)
    assert np.abs(found - exact).max() <= bound


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 8.000001, -9.0])
def test_out_of_range_is_refused(bad: float) -> None:
    """What is beyond the bound is refused with both sizes, and never clipped."""
    with pytest.raises(OutOfRangeError, match="beyond the 8 that this secure sum holds"):
        encode(np.array([1.0, bad]), 0.5, 3)


def test_a_bound_becomes_an_exponent() -> None:
    """The least power of 2^8 that holds it; no bound is none."""
    assert [exponent_of(b) for b in (1.0, 1.5, 256.0, 256.1, 0.25, 2.0**-8)] == [0, 8, 8, 16, 0, -8]
    for none in (0.0, np.inf, -1.0, 1e300):
        with pytest.raises(OutOfRangeError):
            exponent_of(none)
