"""Coefficients at which few rows outweigh all others, asked for by a coordinator: their sums are these rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernfed.jobs.job_file import JobFile
from kernfed.maths.likelihood.iteration import Iteration
from kernfed.methods.glm.messages import GlmSums
from kernfed_testing.hostile.adversary import COLUMNS, Target, guards, held, rows

STEEP = np.array([-40.0, 30.0, 0.0, 0.0])


@guards
@pytest.mark.parametrize("family", ["poisson", "gamma"])
def test_steep_coefficients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, family: str) -> None:
    """At a slope of 30 a deviation the row farthest out has all of the weight, and the gradient is its columns."""
    table = rows()
    x0 = list(map(float, np.array(table["x0"], dtype=float)))
    x0[0] = max(x0) + 0.5
    table |= {"x0": x0, "y": (1 + np.arange(60) % 5).tolist()}
    monkeypatch.setattr(Iteration, "at", lambda _: Iteration(STEEP, STEEP))
    job = JobFile.model_validate(
        {
            "name": "g",
            "method": {"name": "glm", "family": family, "rounds": 1},
            "data": {"task": "regression", "target": "y", "features": list(COLUMNS)},
        }
    )
    told = Target(tmp_path, table, policy).ask(job)
    if held(policy, told):
        assert "few training rows stand behind the sums" in told.refusal
        assert not told.of(GlmSums)
    else:
        (sums,) = told.of(GlmSums)
        x = np.array([table[name] for name in COLUMNS], dtype=float).T
        scaled = np.column_stack([np.ones(60), (x - x.mean(axis=0)) / x.std(axis=0)])
        share = sums.gradient / sums.gradient[0]
        assert np.abs(scaled - share).max(axis=1).min() < 1e-2
