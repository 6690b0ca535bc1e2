"""Coefficients at which few rows outweigh all others, and hazards when few are left: their sums are these rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernfed.jobs.job_file import JobFile
from kernfed.maths.likelihood.iteration import Iteration
from kernfed.methods.survival.cox_messages import CoxEnd, CoxSums
from kernfed_testing.hostile.adversary import COLUMNS, MIN_ROWS, Target, guards, held, rows

STEEP = np.array([200.0, 0.0, 0.0])
JOB = JobFile.model_validate(
    {
        "name": "c",
        "method": {"name": "cox", "rounds": 1},
        "data": {"task": "regression", "target": "y", "features": list(COLUMNS)},
    }
)


def scaled(table: dict[str, list[float]]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The columns as the job scales them."""
    x = np.array([table[name] for name in COLUMNS], dtype=float).T
    found: np.ndarray[tuple[int, int], np.dtype[np.float64]] = (x - x.mean(axis=0)) / x.std(axis=0)
    return found


@guards
def test_steep_coefficients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    """At a steep slope the row farthest out has all of the weight while it is there: the gradient is its columns."""
    table = {name: [float(v) for v in values] for name, values in rows().items()}  # type: ignore[arg-type]  # numbers
    far = int(np.argmax(table["x0"]))
    table["y"] = (1.0 + np.arange(60)).tolist()
    table["y"][far] = 100.0
    monkeypatch.setattr(Iteration, "at", lambda _: Iteration(STEEP, STEEP))
    told = Target(tmp_path, table, policy).ask(JOB)
    if held(policy, told):
        assert "few training rows stand behind the sums" in told.refusal
        assert not told.of(CoxSums)
    else:
        (sums,) = told.of(CoxSums)
        assert -sums.gradient == pytest.approx(scaled(table)[far], abs=0.05)


@guards
def test_the_hazard_of_the_last_row(tmp_path: Path, policy: str) -> None:
    """When one row is left, the hazard is one over its own risk."""
    table = {name: [float(v) for v in values] for name, values in rows().items()}  # type: ignore[arg-type]  # numbers
    table["y"] = (1.0 + np.arange(60)).tolist()
    told = Target(tmp_path, table, policy).ask(JOB)
    (end,) = told.of(CoxEnd)
    if held(policy, told):
        assert end.deaths.min() >= MIN_ROWS
        assert end.deaths.sum() <= 60 - MIN_ROWS + 1
    else:
        assert end.deaths.tolist() == [1] * 60
        assert end.times[-1] == 60.0
