"""Slope and intercept of a recalibration."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.special

from kernfed import rng
from kernfed.arrays import Flags, Floats
from kernfed.maths.scores.calibration import calibration


def sample(num: int = 300, slope: float = 0.5, intercept: float = -0.4) -> tuple[Floats, Flags, Floats]:
    """Predicted probabilities whose truth has another slope and intercept; log-odds."""
    draw = rng.stream(4, "calibration")
    z = 1.5 * draw.normal(num)
    truth = draw.uniform(num) < scipy.special.expit(intercept + slope * z)
    return scipy.special.expit(z), truth, z


def test_slope_and_intercept_maximise_the_likelihood() -> None:
    """Both are those of a general optimiser, and within three errors of what the data were made with."""
    p, truth, z = sample()
    group = np.arange(len(p))
    slope, intercept = calibration(p, truth, group)
    assert slope is not None and intercept is not None  # noqa: PT018

    def loss(a: float, b: float) -> float:
        margin = a + b * z
        return float((np.logaddexp(0, margin) - truth * margin).sum())

    both = scipy.optimize.minimize(lambda ab: loss(*ab), [0.0, 1.0], tol=1e-12).x
    alone = scipy.optimize.minimize_scalar(lambda a: loss(a, 1.0), bracket=(-1, 1)).x
    assert slope.value == pytest.approx(both[1], abs=1e-5)
    assert intercept.value == pytest.approx(alone, abs=1e-5)
    assert abs(slope.value - 0.5) < 3 * slope.error(group)


def test_the_error_is_that_of_a_jackknife() -> None:
    """Leaving out one row after another gives the error of the slope to 5 %."""
    p, truth, _ = sample(200)
    group = np.arange(200)
    slope, _ = calibration(p, truth, group)
    assert slope is not None
    left = []
    for i in range(200):
        found, _ = calibration(np.delete(p, i), np.delete(truth, i), group[:-1])
        assert found is not None
        left.append(found.value)
    jackknife = np.sqrt(199 / 200 * np.square(np.array(left) - np.mean(left)).sum())
    assert slope.error(group) == pytest.approx(jackknife, rel=0.05)


def test_scores_that_part_the_classes_have_no_slope() -> None:
    """The likelihood has no maximum there; nor is there a slope of equal scores."""
    truth = np.array([False] * 5 + [True] * 5)
    group = np.arange(10)
    assert calibration(np.linspace(0.1, 0.9, 10), truth, group)[0] is None
    assert calibration(np.full(10, 0.3), truth, group)[0] is None
    assert calibration(np.linspace(0.1, 0.9, 10), np.ones(10, dtype=bool), group) == (None, None)
