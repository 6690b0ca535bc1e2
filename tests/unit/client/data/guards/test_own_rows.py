"""Scales and lengthscales that a client's own rows contradict."""

from __future__ import annotations

import numpy as np
import pytest

from kernfed.errors import PolicyError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, make_spec
from kernfed.maths.statistics import moments, pool_moments, pooled_deviation
from kernfed_client.data.guards.own_rows import refuse_lengthscale, refuse_scales

NAMES = ("a", "b")
OWN = moments(np.random.default_rng(1).normal([3.0, -1.0], [2.0, 1.0], (30, 2)))


def told(mean: tuple[float, float], deviation: tuple[float, float], bounds: tuple[float, ...] = ()) -> str:
    """The refusal of scales; empty: they pass."""
    try:
        refuse_scales(OWN, NAMES, np.array(mean), np.array(deviation), bounds, "data.standardise")
    except PolicyError as err:
        return str(err)
    return ""


def test_pooled_scales_pass() -> None:
    """Scales of pooled rows pass at every client, also at one with one row of 10,000 that are quite different."""
    many = moments(np.random.default_rng(2).normal([900.0, 0.0], [1.0, 0.01], (300_000, 2)))
    pooled = pool_moments([OWN, many])
    (m0, m1), (d0, d1) = pooled.mean.tolist(), pooled_deviation(pooled).tolist()
    assert told((m0, m1), (d0, d1)) == ""


@pytest.mark.parametrize(
    ("mean", "deviation", "named"),
    [
        ((3.0, -1.0), (2.0, 1e-6), "'b'"),
        ((3.0, -1.0), (1e-300, 1.5), "'a'"),
        ((2.0**52, -1.0), (2.0, 1.5), "'a'"),
    ],
)
def test_scales_of_no_rows(mean: tuple[float, float], deviation: tuple[float, float], named: str) -> None:
    """A deviation far below a client's own, and a mean far from all of its rows, are refused with the column's name."""
    assert named in told(mean, deviation)
    assert "cannot be those of rows of which this client's are a part" in told(mean, deviation)


@pytest.mark.parametrize("deviation", [1.0, 1.01e13])
@pytest.mark.parametrize("bounds", [(), (10.0, 10.0)])
def test_means_that_round_rows_to_a_few_numbers(deviation: float, bounds: tuple[float, ...]) -> None:
    """A mean so far off that rows less it are a few steps is refused, whatever deviation and bound come with it."""
    assert "'a'" in told((1e16, -1.0), (deviation, 1.5), bounds)


def test_numbers_that_are_rounded_as_they_are() -> None:
    """Times in nanoseconds, of which a site has those of an instant, lie near the mean of all sites' by their size."""
    own = moments(1.7e18 + np.random.default_rng(3).uniform(0.0, 1e4, (30, 1)))
    assert np.spacing(own.mean) > 0.01 * own.deviation
    refuse_scales(own, ("t",), np.array([1.6e18]), np.array([1e17]), (), "data.standardise")


def test_columns_that_may_have_any_scale() -> None:
    """Columns that are not scaled, and those in which one client stands apart, may lie anywhere."""
    assert told((0.0, 0.0), (1.0, 1.0)) == ""
    assert told((1e9, -1.0), (2.0, 1.5), (10.0, 0.0)) == ""
    assert "'b'" in told((1e9, 1e9), (2.0, 1.5), (10.0, 0.0))


@pytest.mark.parametrize(("scale", "good"), [(2.0, True), (0.003, True), (5000.0, True), (0.001, False)])
def test_a_lengthscale_that_follows_from_rows(scale: float, good: bool) -> None:
    """It may be far above a client's own median distance, but not far below: such features tell of single rows."""
    spec = make_spec(Kernel.GAUSSIAN, FeatureForm.SINE_COSINE, 2, scale, 5, 0)
    if good:
        refuse_lengthscale(2.0, spec, "data.map_features")
    else:
        with pytest.raises(PolicyError, match="1000 times below what this client's rows say"):
            refuse_lengthscale(2.0, spec, "data.map_features")
    refuse_lengthscale(0.0, spec, "data.map_features")
