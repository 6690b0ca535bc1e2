"""The rules against scipy's and against bad clients, and the methods in a federation in one process."""

# ruff: noqa: S101

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from kernfed_median.coordinator.rules import median, trimmed_mean
from scipy.stats import trim_mean

import kernfed
from kernfed.arrays import Array
from kernfed.errors import ConfigError


@pytest.fixture
def weights() -> Array:
    """Weights of seven clients."""
    return np.random.default_rng(0).normal(size=(7, 3, 2))


@pytest.mark.parametrize("trim", [0.0, 0.15, 0.3, 0.45])
def test_the_trimmed_mean_is_scipys(weights: Array, trim: float) -> None:
    """Each entry is that of an independent implementation."""
    np.testing.assert_allclose(trimmed_mean(weights, trim), trim_mean(weights, trim, axis=0), rtol=1e-12)


def test_few_bad_clients_move_neither_far(weights: Array) -> None:
    """Two of seven clients that send anything leave each entry among those of the five others."""
    bad = weights.copy()
    bad[[1, 4]] = [[[1e9]], [[-1e9]]]
    bad[1, 0] = -1e9
    good = np.delete(weights, [1, 4], axis=0)
    for found in (median(bad), trimmed_mean(bad, 0.3)):
        assert (found >= good.min(axis=0)).all()
        assert (found <= good.max(axis=0)).all()


def test_a_trim_without_effect_is_refused(weights: Array) -> None:
    """A share that leaves out nobody says so, with the least that does."""
    with pytest.raises(ConfigError, match=r"method.trim = 0.1 leaves out none of 7 clients; give at least 0.14"):
        trimmed_mean(weights, 0.1)


def test_both_run_in_one_process() -> None:
    """The methods learn a line although one client of five has its targets turned round, and the mean does not."""
    draw, rows = np.random.default_rng(1), {}
    for i in range(5):
        x = draw.normal(size=60)
        rows[f"c{i}"] = pd.DataFrame({"x": x, "y": (-20.0 if i == 0 else 2.0) * x})
    data = kernfed.Data(task="regression", target="y", features=["x"], standardise=False, test_fraction=0.0)
    linear = kernfed.Features(kernel="linear", intercept=False)
    slopes = {}
    for method in (
        {"name": "median", "rounds": 30},
        {"name": "trimmed-mean", "trim": 0.2, "rounds": 30},
        {"name": "fedavg", "rounds": 30, "learning_rate": 0.1, "local_steps": 10},
    ):
        job = kernfed.Job(name="line", method={"ridge": 1e-6, **method}, data=data, features=linear)
        result = kernfed.simulate(job, rows, progress=False)
        slopes[method["name"]] = float(result.model().predict(pd.DataFrame({"x": [1.0]}))[0])
        assert ("kernfed-median" in result.record["plugins"]) == (method["name"] != "fedavg")
    assert slopes["median"] == pytest.approx(2.0, abs=0.1)
    assert slopes["trimmed-mean"] == pytest.approx(2.0, abs=0.1)
    assert abs(slopes["fedavg"] - 2.0) > 1.0
