"""Tests of `kernfed.methods.online.losses`: slopes, curvature, and predictions that are far away."""

from __future__ import annotations

import numpy as np
import pytest

from kernfed.methods.online.learner import Tally
from kernfed.methods.online.losses import LOSSES, Loss


@pytest.mark.parametrize("loss", list(Loss))
def test_slopes_are_derivatives(loss: Loss) -> None:
    """The derivative of each loss agrees with differences, and is nowhere steeper than its curvature says."""
    random = np.random.default_rng(0)
    f, y, h = random.normal(size=50), random.integers(0, 2, 50).astype(float), 1e-6
    slope = (LOSSES[loss].value(f + h, y) - LOSSES[loss].value(f - h, y)) / (2 * h)
    np.testing.assert_allclose(LOSSES[loss].slope(f, y), slope, atol=1e-8)
    bend = (LOSSES[loss].slope(f + h, y) - LOSSES[loss].slope(f - h, y)) / (2 * h)
    assert bend.max() <= LOSSES[loss].curvature + 1e-6


def test_logistic_losses_of_far_predictions_are_finite() -> None:
    """Log-odds of ±1000 give probabilities 0 and 1 and losses of 0 or 1000."""
    f = np.array([-1000.0, 1000.0])
    np.testing.assert_array_equal(LOSSES[Loss.LOGISTIC].served(f), [0.0, 1.0])
    np.testing.assert_allclose(LOSSES[Loss.LOGISTIC].value(f, 1.0), [1000.0, 0.0])


def test_one_half_names_no_class_however_it_is_rounded() -> None:
    """Classes in the other order round the other way: the last digit decides no accuracy."""
    for told, correct in ((0.5, 0), (0.5 + 1e-16, 0), (0.5 - 1e-16, 0), (0.5 + 1e-9, 1)):
        assert Tally().add(told, 1.0, 0.0, binary=True).num_correct == correct
        assert Tally().add(1.0 - told, 0.0, 0.0, binary=True).num_correct == correct
