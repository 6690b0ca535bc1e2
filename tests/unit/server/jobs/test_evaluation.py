"""Clients' sums become metrics per client and pooled."""

from __future__ import annotations

import numpy as np
import pytest

from kernfed.federation.evaluation import measure
from kernfed.federation.messages.data import LearningTask
from kernfed.federation.messages.evaluation import MetricSums
from kernfed_server.jobs.evaluation import collect, far_errors, implausible


def test_pooled_metrics_are_those_of_all_rows_together() -> None:
    """Splitting the rows among clients does not change the pooled numbers."""
    random = np.random.default_rng(4)
    predictions, targets = random.normal(size=(50, 1)), random.normal(size=(50, 1))
    task = LearningTask.REGRESSION
    parts = {
        name: (measure("global", task, predictions[rows], targets[rows]),)
        for name, rows in {"cat": slice(0, 11), "ant": slice(11, 40), "bee": slice(40, 50)}.items()
    }
    found = collect(parts, task)
    whole = collect({"all": (measure("global", task, predictions, targets),)}, task)
    assert list(found.clients) == ["ant", "bee", "cat"]
    for metric, value in whole.pooled["global"].items():
        assert found.pooled["global"][metric] == pytest.approx(value, rel=1e-12)
    assert found.clients["cat"]["global"]["mse"] == pytest.approx(np.square(predictions - targets)[:11].mean())


def test_models_are_kept_apart_and_nothing_gives_nothing() -> None:
    """Each model is pooled over the clients that measured it."""
    task = LearningTask.BINARY
    scores, truth = np.array([[0.9], [0.2]]), np.array([[1.0], [0.0]])
    found = collect(
        {"ant": (measure("global", task, scores, truth), measure("local", task, 1 - scores, truth)), "bee": ()}, task
    )
    assert found.pooled["global"]["accuracy"] == 1.0
    assert found.pooled["local"]["accuracy"] == 0.0
    assert found.clients["bee"] == {}
    assert collect({}, task).pooled == {}


def sums(mse: float, variance: float = 1.0) -> tuple[MetricSums, ...]:
    """Of 15 test rows of a regression."""
    return (
        MetricSums(
            model="global",
            num_rows=15,
            squared_error=15 * mse,
            target_mean=0.0,
            target_sum_squares=15 * variance,
            num_correct=0,
            log_loss=0.0,
            auc=0.0,
            auc_pairs=0.0,
        ),
    )


@pytest.mark.parametrize("absurd", [sums(1e150), sums(0.1, 1e150)])
def test_absurd_sums_of_one_client_are_named(absurd: tuple[MetricSums, ...]) -> None:
    """A client whose errors or targets are far beyond those of all others is left out of the metrics."""
    found = implausible({"ant": sums(0.1), "bee": sums(1e-30), "mole": absurd})
    assert list(found) == ["mole"]
    assert "its mean squared" in found["mole"]


def test_other_units_and_perfect_models_are_plausible() -> None:
    """A client with targets a thousand times larger stays, and so do errors where others have none."""
    assert not implausible({"ant": sums(0.1), "bee": sums(1e5, 1e6), "cat": sums(0.2)})
    assert not implausible({"ant": sums(0.0), "bee": sums(0.0), "cat": sums(2.0)})


def test_errors_far_beyond_all_others_are_told_of() -> None:
    """They may be honest, and count; of two clients nobody knows which is far off, and noise is no error."""
    found = far_errors({"a": sums(0.1), "b": sums(0.3), "m": sums(40.0)})
    assert list(found) == ["m"]
    assert "mean squared error of 40 (global model), and of no other client it is more than 0.3" in found["m"]
    assert not far_errors({"a": sums(0.1), "b": sums(0.3), "m": sums(20.0)})
    assert not far_errors({"a": sums(0.1), "m": sums(40.0)})
    assert not far_errors({"a": sums(1e-30), "b": sums(0.0), "m": sums(1e-9)})
