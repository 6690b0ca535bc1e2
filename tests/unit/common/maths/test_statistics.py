"""Tests of `kernfed.maths.statistics`: pooled moments, medians, lengthscales."""

from __future__ import annotations

import itertools
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kernfed.errors import DataError, NumericalError
from kernfed.maths.statistics import (
    LENGTHSCALE_FLOOR,
    Moments,
    agree_lengthscale,
    constant_columns,
    median_distance,
    moments,
    pool_moments,
    pooled_deviation,
    weighted_median,
)
from kernfed.rng import stream

UNDERFLOW = 8 * 30 * np.finfo(np.float64).smallest_subnormal
"""Below the normal numbers a rounding is absolute, half the smallest of them: a sum over 30 rows and its merge round
fewer than 8 times for each row."""

ROWS = hnp.arrays(np.float64, st.tuples(st.integers(1, 30), st.just(2)), elements=st.floats(-1e6, 1e6))


@given(ROWS, st.lists(st.integers(0, 30), max_size=5))
def test_any_split_of_rows_gives_the_pooled_moments(x: np.ndarray, cuts: list[int]) -> None:
    """Means and deviations of parts, empty ones included, merge to those of all rows."""
    pooled = pool_moments([moments(part) for part in np.split(x, sorted(min(c, len(x)) for c in cuts))])
    assert pooled.num_rows == len(x)
    scale = np.abs(x).max(axis=0)
    assert (np.abs(pooled.mean - x.mean(axis=0)) <= 1e-14 * scale + UNDERFLOW).all()
    assert (np.abs(pooled.sum_squares - x.var(axis=0) * len(x)) <= 1e-12 * scale**2 * len(x) + UNDERFLOW).all()


@given(ROWS, st.randoms(use_true_random=False))
def test_order_of_clients_does_not_matter(x: np.ndarray, random: Random) -> None:
    """Merging in another order changes only rounding."""
    parts = [moments(part) for part in np.array_split(x, 4)]
    shuffled = list(parts)
    random.shuffle(shuffled)
    one, two = pool_moments(parts), pool_moments(shuffled)
    scale = np.abs(x).max(axis=0)
    assert (np.abs(one.mean - two.mean) <= 1e-14 * scale + UNDERFLOW).all()
    assert (np.abs(one.sum_squares - two.sum_squares) <= 1e-12 * scale**2 * len(x) + UNDERFLOW).all()


def test_a_large_offset_does_not_cancel() -> None:
    """Deviation 1e-3 around 1e9 survives, where a sum of squares minus a square would give noise."""
    noise = 1e-3 * np.random.default_rng(0).choice([-1.0, 1.0], size=(1000, 1))
    x = 1e9 + noise
    pooled = pool_moments([moments(part) for part in np.array_split(x, 7)])
    assert pooled_deviation(pooled)[0] == pytest.approx(float((x - 1e9).std()), rel=1e-5)


@pytest.mark.parametrize(
    ("centre", "spread"),
    [(1e12, 1e-3), (1.7e9, 1.0), (0.0, 1e-160), (0.0, 1e-300), (1e-290, 1e-300), (1e6, 0.01), (0.0, 1e150)],
)
@pytest.mark.parametrize("apart", [0.0, 2.0])
def test_deviations_are_those_of_the_pooled_rows_at_any_magnitude(centre: float, spread: float, apart: float) -> None:
    """Clients' moments pool to what exact arithmetic finds on all rows, to 1e-9, whatever offset and unit."""
    random = np.random.default_rng(3)
    parts = [centre + spread * (random.normal(size=(n, 1)) + apart * i) for i, n in enumerate([40, 7, 1, 90])]
    pooled = pool_moments([moments(part) for part in parts])
    rows = [Fraction(float(value)) for part in parts for value in part[:, 0]]
    mean = sum(rows, Fraction()) / len(rows)
    variance = sum(((row - mean) * (row - mean) for row in rows), Fraction()) / len(rows)
    deviation = Fraction(float(pooled_deviation(pooled)[0]))
    assert abs(deviation * deviation - variance) <= variance * Fraction(2, 10**9)
    off = Fraction(float(pooled.mean[0])) + Fraction(float(pooled.rest[0])) - mean
    assert off * off <= variance * Fraction(1, 10**18)


def test_a_peer_that_states_squares_alone_is_pooled_as_before() -> None:
    """An earlier release tells no deviations: its sums of squares give them."""
    x = np.random.default_rng(4).normal(size=(30, 2))
    old = [
        Moments.of_squares(len(part), part.mean(axis=0), np.square(part - part.mean(axis=0)).sum(axis=0))
        for part in (x[:10], x[10:])
    ]
    assert np.allclose(pooled_deviation(pool_moments(old)), x.std(axis=0), rtol=1e-12)


def test_a_client_without_rows_has_no_weight() -> None:
    """Means stated beside a row count of 0 are not looked at."""
    part = Moments.of_squares(2, np.array([1.0]), np.array([2.0]))
    empty = Moments.of_squares(0, np.array([1e300]), np.array([1e300]))
    for order in itertools.permutations([part, empty]):
        assert pool_moments(order) == part


def test_no_rows_at_all_is_an_error() -> None:
    """Nobody has a row: that is said, not divided by."""
    with pytest.raises(DataError, match="no client has a training row"):
        pool_moments([moments(np.empty((0, 3)))])


def test_overflow_names_the_column() -> None:
    """Squares past the range of numbers are an error, not an infinite deviation."""
    with pytest.raises(NumericalError, match="column 1"):
        pool_moments([moments(np.array([[0.0, -1e200]])), moments(np.array([[0.0, 1e200]]))])


@pytest.mark.parametrize("value", [0.0, 0.1, -1e9, 1e-300, 1 / 3])
def test_constant_columns_get_deviation_one(value: float) -> None:
    """A column of one value is constant also where its mean was rounded, and standardises to about 0."""
    pooled = pool_moments([moments(np.full((n, 1), value)) for n in (3, 7, 1000, 11)])
    assert constant_columns(pooled).tolist() == [True]
    assert pooled_deviation(pooled).tolist() == [1.0]


def test_a_small_deviation_is_not_constant() -> None:
    """Columns of small numbers are left alone: the rule is relative."""
    pooled = moments(np.array([[1e-30], [3e-30]]))
    assert pooled_deviation(pooled)[0] == pytest.approx(1e-30)


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(0, 5)), min_size=1, max_size=12))
def test_weighted_median_is_the_median_of_repeated_values(pairs: list[tuple[float, int]]) -> None:
    """Integer weights mean repetition."""
    values, weights = zip(*pairs, strict=True)
    repeated = np.repeat(values, weights)
    if repeated.size == 0:
        with pytest.raises(DataError, match="weight"):
            weighted_median(values, weights)
    else:
        assert weighted_median(values, weights) == np.median(repeated)


def test_median_distance_of_few_rows_uses_all_pairs() -> None:
    """Distances 3, 4, 5: the median is 4, pairs of a row with itself are not counted."""
    found = median_distance(np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]]), None)
    assert (found.value, found.ties) == (4.0, False)


def test_median_distance_of_many_rows_is_that_of_evenly_spaced_ones() -> None:
    """More rows than the limit: the same rows every time, from the whole range."""
    x = np.arange(5000.0)[:, None]
    found = median_distance(x, None)
    assert found == median_distance(x.copy(), None)
    assert found.value == median_distance(x[::5], None).value


def test_drawn_rows_do_not_follow_the_order_of_the_file() -> None:
    """2,000 patients with four visits each: every fourth row is a first visit, and only drawn rows see the others."""
    visits = np.tile([0.0, 0.0, 5.0, 5.0], 1000)
    x = np.column_stack([visits, np.random.default_rng(0).normal(size=4000)])
    spaced, drawn = median_distance(x, None), median_distance(x, stream(1, "rows"))
    whole = median_distance(x, None, max_rows=4000)
    assert spaced.value < 0.5 * whole.value
    assert drawn.value == pytest.approx(whole.value, rel=0.1)
    assert drawn == median_distance(x, stream(1, "rows"))


def test_ties_are_flagged_and_do_not_give_zero() -> None:
    """Mostly equal rows: the median of the distances that are not 0, and a flag."""
    x = np.zeros((20, 1))
    x[:2] = [[2.0], [6.0]]
    assert median_distance(x, None).ties
    assert median_distance(x, None).value == 2.0 or median_distance(x, None).value == 4.0
    assert (median_distance(np.zeros((5, 1)), None).value, median_distance(np.zeros((5, 1)), None).ties) == (0.0, True)


@pytest.mark.parametrize("rows", [0, 1])
def test_fewer_than_two_rows_have_no_distance(rows: int) -> None:
    """No pairs: 0, and no ties either."""
    found = median_distance(np.ones((rows, 2)), None)
    assert (found.value, found.ties) == (0.0, False)


def test_lengthscale_is_the_weighted_median_of_those_who_have_one() -> None:
    """Clients without a distance have no say, whatever their rows."""
    found = agree_lengthscale([0.0, 1.0, 2.0, 9.0], [1000, 5, 30, 5])
    assert (found.value, found.floored) == (2.0, False)


@pytest.mark.parametrize(("medians", "want"), [([0.0, 0.0], 1.0), ([1e-9, 0.0], LENGTHSCALE_FLOOR)])
def test_useless_medians_give_a_floor_and_a_flag(medians: list[float], want: float) -> None:
    """Nothing to go by is said, and never gives lengthscale 0."""
    found = agree_lengthscale(medians, [5, 5])
    assert (found.value, found.floored) == (want, True)
