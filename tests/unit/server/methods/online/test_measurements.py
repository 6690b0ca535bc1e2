"""Metrics of a job on streams: all rows so far, and those since the last time."""

from __future__ import annotations

import pytest

from kernfed.federation.messages.data import LearningTask
from kernfed.federation.messages.evaluation import MetricSums
from kernfed.methods.online.messages import StreamMetrics
from kernfed_server.jobs.state import State
from kernfed_server.methods.online.measurements import Measurements


def told(num_rows: int, squared_error: float) -> StreamMetrics:
    """What a client measured of so many rows."""
    sums = MetricSums(
        model="personal",
        num_rows=num_rows,
        squared_error=squared_error,
        target_mean=0.0,
        target_sum_squares=1.0,
        num_correct=0,
        log_loss=0.0,
        auc=0.0,
        auc_pairs=0.0,
    )
    return StreamMetrics(
        sums=sums, total_loss=1.0, best_kernel_loss=1.0, regret_bound=-1.0, effective_kernels=1.0, alone=()
    )


@pytest.mark.parametrize("restarted", [False, True])
def test_recent_rows_are_those_since_the_last_measurement(*, restarted: bool) -> None:
    """Also where the coordinator was restarted in between: what was measured before is in its checkpoint."""
    made = Measurements(LearningTask.REGRESSION)
    made.metrics({"a": told(10, 50.0), "b": told(5, 5.0)}, {})
    if restarted:
        made = Measurements(LearningTask.REGRESSION, State(made.to_arrays()))
    found = made.metrics({"a": told(14, 52.0), "b": told(7, 9.0)}, {})
    assert found.clients["a"]["recent"]["mse"] == pytest.approx(0.5)
    assert found.pooled["recent"]["mse"] == pytest.approx(1.0)


def test_a_checkpoint_of_before_measures_from_the_start() -> None:
    """One that a former release wrote holds no measurements."""
    found = Measurements(LearningTask.REGRESSION, State({})).metrics({"a": told(10, 50.0)}, {})
    assert found.clients["a"]["recent"]["mse"] == pytest.approx(5.0)
