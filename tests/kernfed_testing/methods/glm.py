"""Rows at made-up sites for generalised linear models, and jobs on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kernfed.federation.events import EventKind
from kernfed.jobs.job_file import JobFile
from kernfed.methods.glm.finding import GlmFinding
from kernfed_simulation.federation import Rows
from kernfed_testing.in_process import Outcome, bench

SIZES = {"ant": 40, "bee": 25, "cat": 33}
NAMES = ["x0", "x1", "x2"]
NO_ROWS = np.zeros((0, 3)), np.zeros(0)
CLASSES: dict[str, tuple[str, ...]] = {"binomial": ("no", "yes")}


def glm_job(family: str, features: list[str] | None = None, **method: Any) -> JobFile:
    """A job on the columns of `rows_of`."""
    binary = {"task": "binary", "classes": list(CLASSES["binomial"])}
    data = {
        "target": "y",
        "features": features or NAMES,
        **(binary if family == "binomial" else {"task": "regression"}),
    }
    return JobFile.model_validate({"name": "g", "method": {"name": "glm", "family": family, **method}, "data": data})


def rows_of(family: str, seed: int = 4, sizes: dict[str, int] | None = None) -> dict[str, Rows]:
    """Sites of one law whose columns differ: x0 shifted, x1 far from 0, x2 above 0."""
    random = np.random.default_rng(seed)
    found = {}
    for i, (name, size) in enumerate((sizes or SIZES).items()):
        x = np.column_stack(
            [random.normal(size=size) + i, 1000.0 + 20.0 * random.normal(size=size), 0.5 + random.random(size)]
        )
        eta = 0.4 * x[:, 0] - 0.02 * (x[:, 1] - 1000.0) + 0.3 * x[:, 2] - 0.5
        if family == "gaussian":
            y = eta + random.normal(size=size)
        elif family == "binomial":
            y = (random.random(size) < 1.0 / (1.0 + np.exp(-eta))).astype(int)
        elif family == "poisson":
            y = random.poisson(np.exp(eta)).astype(float)
        else:
            y = random.gamma(3.0, np.exp(eta) / 3.0)
        found[name] = Rows(x, y, NO_ROWS[0], NO_ROWS[1].astype(y.dtype))
    return found


def fitted(rows: dict[str, Rows], job: JobFile, folder: Path, **more: Any) -> Outcome:
    """What a job on the clients left."""
    return bench(rows, folder, CLASSES.get(job.method.family, ()), **more).run(job)  # type: ignore[attr-defined]  # a glm


def finding(outcome: Outcome) -> GlmFinding:
    """Its result."""
    told = [e.finding for e in outcome.journal.events if e.kind is EventKind.FINDING and e.message == GlmFinding.name]
    assert told[-1] is not None
    return GlmFinding.from_json(told[-1])


def spoilt(**changes: Any) -> Any:
    """A reply with other numbers."""
    return lambda reply: replace(reply, **{name: change(getattr(reply, name)) for name, change in changes.items()})
