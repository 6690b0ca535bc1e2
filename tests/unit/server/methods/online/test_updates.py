"""Parameters and losses that no rows give, at one client of a job on streams: they do not count, and it is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.arrays import Floats
from kernfed.federation.events import EventKind
from kernfed.federation.in_process import InProcessExchange
from kernfed.jobs.job_file import JobFile
from kernfed.methods.online.losses import Loss
from kernfed.methods.online.messages import LocalStep, SharedStep
from kernfed.methods.online.meta_messages import MetaStep
from kernfed.methods.online.server_step import most_loss, most_parameter
from kernfed_client.steps.registry import STEPS
from kernfed_server.jobs.journal import MemoryJournal
from kernfed_testing.methods.online_clients import StreamClients, clients, finding, stream_job

FIXED: dict[str, Any] = {"target_range": [0.0, 1.0], "row_norm": 1.0, "data": "standardise = false"}
"""Nothing of the liar's is in what is agreed on before round 1."""
SETTINGS: dict[str, dict[str, Any]] = {"em-kofl": {"num_kernels": 5, "num_frequencies": 6}, "perfedavg": {"hidden": 5}}
FIELDS = {"em-kofl": "theta", "perfedavg": "weights"}


class Lying(InProcessExchange):
    """One client sends so many times its numbers."""

    def __init__(self, made: StreamClients, foe: str, field: str, factor: float) -> None:
        super().__init__(STEPS, made.jobs)
        self.foe, self.field, self.factor = foe, field, factor

    async def ask(self, call: Any) -> Any:
        found = dict(await super().ask(call))
        reply = found.get(self.foe)
        if isinstance(reply, LocalStep | SharedStep | MetaStep) and reply.num_samples:
            found[self.foe] = replace(reply, **{self.field: self.factor * getattr(reply, self.field)})
        return found


def notes(journal: MemoryJournal) -> list[str]:
    return [e.message for e in journal.events if e.kind is EventKind.NOTE]


def left(journal: MemoryJournal, method: str) -> Floats:
    """Parameters after the last round."""
    assert journal.last is not None
    found: Floats = np.asarray(journal.last.state[FIELDS[method]])
    return found


def job_of(method: str, **settings: Any) -> JobFile:
    return stream_job(method, **SETTINGS[method], **FIXED, **settings)


@pytest.mark.parametrize(("count", "foe"), [(2, "c1"), (3, "c0"), (4, "c3"), (5, "c2")])
@pytest.mark.parametrize("factor", [1e5, -1e5])
@pytest.mark.parametrize("method", SETTINGS)
def test_parameters_that_no_rows_give_do_not_count(
    tmp_path: Path, method: str, factor: float, count: int, foe: str
) -> None:
    """The parameters are those of the others alone; the liar is named once, and nobody else."""
    made = clients(tmp_path / "lied", num_rows=8, count=count)
    _, journal = made.run(job_of(method), exchange=Lying(made, foe, FIELDS[method], factor))
    rest = clients(tmp_path / "rest", num_rows=8, count=count)
    del rest.jobs[foe]
    _, want = rest.run(job_of(method))
    np.testing.assert_array_equal(left(journal, method), left(want, method))
    told = [n for n in notes(journal) if "do not count" in n]
    assert [n.startswith(f"{foe} sent parameters that its rows cannot have") for n in told] == [True]
    assert not [n for n in notes(journal) if "counted" in n]


@pytest.mark.parametrize("factor", [1e5, -1.0])
@pytest.mark.parametrize("method", ["em-kofl", "vm-kofl"])
def test_losses_that_no_rows_give_do_not_count(tmp_path: Path, method: str, factor: float) -> None:
    """Too large, or below 0: the kernels are weighed by the others' losses."""
    settings = {**SETTINGS["em-kofl"], **FIXED}
    made = clients(tmp_path / "lied", num_rows=8)
    _, journal = made.run(stream_job(method, **settings), exchange=Lying(made, "c1", "losses", factor))
    rest = clients(tmp_path / "rest", num_rows=8)
    del rest.jobs["c1"]
    _, want = rest.run(stream_job(method, **settings))
    assert journal.last is not None
    assert want.last is not None
    np.testing.assert_array_equal(journal.last.state["log_weights"], want.last.state["log_weights"])
    assert len([n for n in notes(journal) if n.startswith("c1 sent losses that its rows cannot have")]) == 1


def errors(made: StreamClients, job: JobFile, exchange: Any = None) -> tuple[Mapping[str, float], list[str]]:
    """Each client's error over its stream, and the notes."""
    _, journal = made.run(job, exchange=exchange)
    return {name: c["mse"] for name, c in finding(journal)["clients"].items()}, notes(journal)


@pytest.mark.parametrize(
    ("factor", "rule"),
    [(7.0, {"max_norm": 1.5}), (30.0, {"aggregate": "trimmed", "trim": 0.2}), (-1.0, {"aggregate": "median"})],
)
@pytest.mark.parametrize("method", SETTINGS)
def test_a_moderate_lie_is_held_by_the_jobs_rule(
    tmp_path: Path, method: str, factor: float, rule: dict[str, Any]
) -> None:
    """7 and 30 times its parameters, or their opposite: with a robust mean the honest learn as without the lie."""
    honest, _ = errors(clients(tmp_path / "honest", num_rows=20, count=5), job_of(method, **rule))
    made = clients(tmp_path / "lied", num_rows=20, count=5)
    found, _ = errors(made, job_of(method, **rule), Lying(made, "c4", FIELDS[method], factor))
    assert all(found[c] < 1.5 * honest[c] + 0.02 for c in ("c0", "c1", "c2", "c3"))


def test_a_long_update_that_counts_is_told_of(tmp_path: Path) -> None:
    """With the plain mean, whose remedies the note names."""
    method = "perfedavg"
    made = clients(tmp_path, count=5)
    _, told = errors(made, job_of(method, rounds=4, learning_rate=0.3), Lying(made, "c4", FIELDS[method], -1.0))
    (note,) = [n for n in told if n.startswith("c4 sent ")]
    assert "and it counted" in note
    assert "method.max_norm" in note


def test_the_largest_parameters_are_those_of_rows_that_pull_one_way() -> None:
    """Rows of the farthest target, one step after another: the bound holds, and is near for a small rate."""
    z, rate, spans, penalty = np.array([0.6, 0.8]), 0.01, 5.0, 0.1
    theta = np.array([0.3, -0.2])
    start = np.array([np.linalg.norm(theta)])
    for _ in range(20):
        f = float(z @ theta)
        theta = theta - rate * (2.0 * (f - 1.0 - spans) * z + 2.0 * penalty * theta)
    most = most_parameter(start, np.array([20.0]), Loss.SQUARED, spans, rate, penalty)
    assert np.linalg.norm(theta) <= most[0] < 1.6 * np.linalg.norm(theta)
    assert most_parameter(start, np.array([20.0]), Loss.SQUARED, 0.0, rate, penalty)[0] == np.inf
    logistic = most_parameter(start, np.array([20.0]), Loss.LOGISTIC, 0.0, rate, penalty)
    np.testing.assert_allclose(logistic, start + 20 * rate)


def test_a_rate_that_stretches_is_allowed_for() -> None:
    """η (1 + λ) above 1: each step may stretch, so the bound grows by powers, and stays a number."""
    theta = np.array([0.0])
    for _ in range(6):
        theta = theta - 3.0 * 2.0 * (theta - 1.0)
    most = most_parameter(np.zeros(1), np.array([6.0]), Loss.SQUARED, 1.0, 3.0, 0.0)
    assert abs(theta[0]) <= most[0]
    assert np.isfinite(most_parameter(np.ones(1), np.array([1e6]), Loss.SQUARED, 1.0, 1.5, 0.0)).all()


def test_the_largest_losses() -> None:
    """By hand: (2 + 1 + 5)² of the squared loss, 2 + ln 2 of the logistic one, each with λ |θ|²."""
    assert most_loss(np.array([2.0]), Loss.SQUARED, 5.0, 0.5)[0] == pytest.approx(66.0)
    assert most_loss(np.array([2.0]), Loss.LOGISTIC, 0.0, 0.5)[0] == pytest.approx(4.0 + np.log(2.0))
