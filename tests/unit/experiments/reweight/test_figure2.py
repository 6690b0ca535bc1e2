"""Eigenvalues of test rows over those of training rows, by sums and by means."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from kernfed_testing.places import EXPERIMENTS

sys.path.insert(0, str(EXPERIMENTS))

from reweight import figure2


def test_sums_fall_with_the_number_of_rows_and_means_do_not() -> None:
    """Test rows that are a third of the training rows, which stand there three times, have a third of the sums."""
    test = np.random.default_rng(0).normal(size=(40, 5))
    found = figure2.rows_of(np.concatenate([test] * 3), test)
    assert found["sums, share below 1"] == 1.0
    assert found["sums, greatest root"] == pytest.approx(np.sqrt(1 / 3))
    assert found["means, greatest root"] == pytest.approx(1.0)
    assert found["means, share within 1.62"] == 1.0


def test_no_digit_is_in_both_pools() -> None:
    """Of the classes that clients train on all but a few lie in the pool of training rows, of the others few."""
    x, y, xt, yt = figure2.digits()
    assert len(x) + len(xt) == 9298
    assert [int((y == k).sum()) for k in range(5)] == [30] * 5
    assert [int((yt == k).sum()) for k in range(5, 10)] == [30] * 5
