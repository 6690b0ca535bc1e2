"""Tests of `kernfed_server.jobs.verdict`: a job says where its model is worse than alone, or did not arrive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kernfed.federation.events import RoundMetrics
from kernfed.federation.messages.data import LearningTask
from kernfed_server.jobs.verdict import against_alone
from kernfed_simulation.federation import Rows
from kernfed_testing.in_process import bench, make_job, regression_rows


def test_clients_that_lose_are_named() -> None:
    """Only those whose own model is better; nothing is said where none is, or where nothing was measured."""
    lose, gain = ({"global": {"mse": a}, "local": {"mse": b}} for a, b in ((0.4, 0.15), (0.1, 0.2)))
    found = against_alone(RoundMetrics(clients={"ant": lose, "bee": gain}), LearningTask.REGRESSION)
    assert "at 1 of 2 clients: ant (0.4 against 0.15)" in found
    assert "bee" not in found
    assert against_alone(RoundMetrics(clients={"bee": gain}), LearningTask.REGRESSION) == ""
    assert against_alone(RoundMetrics(), LearningTask.REGRESSION) == ""


def test_a_job_says_that_the_global_model_loses(tmp_path: Path) -> None:
    """Two clients with opposite slopes: each alone is right, the pooled model is not."""
    random = np.random.default_rng(5)

    def made(num: int, sign: float) -> tuple[Any, Any]:
        x = random.normal(size=(num, 3))
        return x, sign * x.sum(axis=1)

    rows = {name: Rows(*made(40, s), *made(20, s)) for name, s in (("ant", 1.0), ("bee", -1.0))}
    notes = bench(rows, tmp_path).run(make_job("newton", features='kernel = "linear"')).notes
    assert any("worse than the client's model alone" in note and "at 2 of 2 clients" in note for note in notes)


def test_used_up_rounds_are_told(tmp_path: Path) -> None:
    """A job that stops before its tolerance says so, with how far it is; one that arrives does not."""
    rows = regression_rows({"ant": 15, "bee": 15, "cat": 15})
    for step in ("auto", "paper"):
        job = make_job("newton", frequencies=60, rounds=2, ridge=1e-2 if step == "auto" else 10.0, step=step)
        notes = bench(rows, tmp_path / step).run(job).notes
        assert any(note.startswith("not converged: all 2 rounds") for note in notes), step
    arrived = bench(rows, tmp_path / "arrived").run(make_job("newton", ridge=1.0, rounds=60)).notes
    assert not any(note.startswith("not converged") for note in arrived)
