"""Numbers over rows, their errors by groups, and intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kernfed.maths.scores.estimate import interval, mean_of

EACH = np.arange(8)
VALUES = np.array([1.0, 2.0, 4.0, 8.0, 0.0, 3.0, 3.0, 5.0])


def test_the_error_of_a_mean_is_that_of_textbooks() -> None:
    """Without groups it is the sample deviation over the root of the rows."""
    found = mean_of(VALUES, EACH)
    assert found is not None
    assert (found.value, found.behind) == (VALUES.mean(), 8)
    assert found.error(EACH) == pytest.approx(VALUES.std(ddof=1) / math.sqrt(8))


def test_rows_of_a_group_count_together() -> None:
    """Rows that came twice, as groups of two, have the error of the rows that came once."""
    twice, pairs = np.repeat(VALUES, 2), np.repeat(EACH, 2)
    found, once = mean_of(twice, pairs), mean_of(VALUES, EACH)
    assert found is not None and once is not None  # noqa: PT018
    assert found.error(pairs) == pytest.approx(once.error(EACH))
    assert found.error(np.arange(16)) < 0.8 * found.error(pairs)


def test_rows_that_do_not_count_have_no_say() -> None:
    """A mean over chosen rows is the mean of these rows alone; of one group it has no error, and is none."""
    chosen = np.array([True, True, True, False, False, False, False, True])
    found, alone = mean_of(VALUES, EACH, chosen), mean_of(VALUES[chosen], EACH[:4])
    assert found is not None and alone is not None  # noqa: PT018
    assert (found.value, found.behind) == (alone.value, 4)
    assert found.error(EACH) == pytest.approx(alone.error(EACH[:4]))
    assert mean_of(VALUES, np.zeros(8, dtype=np.int64)) is None


def test_a_difference_is_that_of_the_rows() -> None:
    """The error of a difference of two means is that of the mean of the rows' differences."""
    other = VALUES * 0.9 + np.array([0.1, -0.1, 0.2, 0.0, 0.1, 0.0, -0.2, 0.1])
    one, two, both = (mean_of(v, EACH) for v in (VALUES, other, VALUES - other))
    assert one is not None and two is not None and both is not None  # noqa: PT018
    assert one.minus(two).value == pytest.approx(both.value)
    assert one.minus(two).error(EACH) == pytest.approx(both.error(EACH))


def test_an_interval_of_a_share_is_wilsons() -> None:
    """8 of 10 have the interval [0.4902, 0.9433] of Wilson's formula; all of 10 have [0.7225, 1]."""
    assert interval(0.8, math.sqrt(0.8 * 0.2 / 10), 10, 0.0, 1.0) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert interval(1.0, 0.0, 10, 0.0, 1.0) == pytest.approx((0.7225, 1.0), abs=1e-4)


def test_an_interval_stays_where_the_number_can_be() -> None:
    """That of an error does not go below 0, and an R² not above 1."""
    assert interval(0.1, 0.1, 20, 0.0, math.inf) == pytest.approx((0.0, 0.296), abs=1e-3)
    assert interval(0.95, 0.05, 20, -math.inf, 1.0)[1] == 1.0


def test_an_interval_of_hardly_any_error_is_the_number() -> None:
    """Its square is below the range of numbers."""
    assert interval(0.5, 1e-200, 20, 0.0, 1.0) == (0.5, 0.5)
