"""What the experiments on personalisation share: jobs on rows in memory, references in hindsight, tables, plots."""

from __future__ import annotations

import argparse
import asyncio
import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import structlog
from records import add_sizes, entry

from kernfed.federation.events import EventKind, RoundMetrics
from kernfed.jobs.job_file import JobFile
from kernfed.methods.personalise.finding import PersonaliseFinding
from kernfed_server.jobs.execute import execute
from kernfed_server.jobs.journal import MemoryJournal
from kernfed_server.jobs.run import Run
from kernfed_simulation.federation import Rows, from_rows, open_cohort

RIDGES = (1e-6, 1e-4, 1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Of the references in hindsight, over the mean diagonal of the second moments."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Ran:
    """What a job left."""

    metrics: RoundMetrics
    weights: Floats
    """Row t: collaboration weights of client t, in the order of names."""
    finding: Mapping[str, Any]

    def scores(self, model: str, metric: str = "mse") -> Floats:
        """Of each client, in the order of names."""
        return np.array([self.metrics.clients[c][model][metric] for c in sorted(self.metrics.clients)])


def run_job(job: JobFile, rows: Mapping[str, Rows], classes: tuple[str, ...] = ()) -> Ran:
    """Run a job through the workflow and steps of a real federation, in this process."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with tempfile.TemporaryDirectory() as state:
        jobs = from_rows(rows, classes, Path(state))
        journal = MemoryJournal()
        cohort = open_cohort(job, jobs, journal.event)
        asyncio.run(execute(job, cohort, Run(cohort, journal, evaluate_every=job.evaluate_every)))
    assert journal.last is not None
    closed = [e.metrics for e in journal.events if e.kind is EventKind.ROUND_CLOSED and e.metrics and e.metrics.clients]
    found = [e.finding for e in journal.events if e.message == PersonaliseFinding.name and e.finding is not None]
    return Ran(closed[-1], np.array(journal.last.state["collaboration"]), found[-1])


def make_job(
    name: str, num_columns: int, seed: int, method: Mapping[str, Any], **sections: Mapping[str, Any]
) -> JobFile:
    """A job on columns x0, x1, ... that evaluates at its end."""
    data = {"task": "regression", "target": "y", "features": [f"x{i}" for i in range(num_columns)]}
    return JobFile.model_validate(
        {
            "name": name,
            "seed": seed,
            **({"evaluate_every": 1_000_000} if method.get("trainer") == "fedavg" else {}),
            "method": {"name": "personalise", "ridge": 1e-3, **method},
            "data": {**data, **sections.get("data", {})},
            "features": sections.get("features", {}),
        }
    )


def in_hindsight(mix: Floats, inputs: Mapping[str, tuple[Floats, Floats, Floats, Floats]], penalised: Floats) -> Floats:
    """Errors of ridge models on mixtures of everyone's risks, with the one ridge that is best on the test rows.

    Args:
        mix: Weights of each target, shape (T, B) = (B, B).
        inputs: By client: training inputs (n, p) and targets (n,), test inputs (m, p) and targets (m,).
        penalised: 1 per input that the ridge counts, shape (p,).

    Returns:
        Mean squared error of each target on its own test rows, shape (B,).
    """
    names = sorted(inputs)
    gram = np.array([inputs[c][0].T @ inputs[c][0] / len(inputs[c][1]) for c in names])
    moment = np.array([inputs[c][0].T @ inputs[c][1] / len(inputs[c][1]) for c in names])
    h, r = np.tensordot(mix, gram, 1), mix @ moment
    best: Floats | None = None
    for ridge in RIDGES:
        scale = np.einsum("tpp,p->t", h, penalised) / penalised.sum()
        shifted = h + ridge * scale[:, None, None] * np.diag(penalised)
        theta = np.linalg.solve(shifted, r[:, :, None])[:, :, 0]
        errors = np.array([np.square(inputs[c][3] - inputs[c][2] @ theta[i]).mean() for i, c in enumerate(names)])
        if best is None or errors.mean() < best.mean():
            best = errors
    assert best is not None
    return best


def parser(description: str | None, repetitions: int) -> argparse.ArgumentParser:
    """Options of every experiment here; repetitions are those of the paper."""
    made = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    made.add_argument("--repetitions", type=int, help=f"draws (default {repetitions})")
    add_sizes(made)
    return made


def line(
    setting: str,
    method: str,
    values: Sequence[float] | Floats,
    published: float | None = None,
    against: Sequence[float] | Floats = (),
) -> dict[str, Any]:
    """A row of the table: the mean over repetitions, and its paired difference to the default."""
    found = entry(setting, method, published, values)
    if len(against):
        difference = np.asarray(values) - np.asarray(against)
        found["difference_to_default"] = round(float(difference.mean()), 4)
        if len(values) > 1:
            found["difference_error"] = round(float(difference.std(ddof=1) / np.sqrt(len(values))), 4)
    return found
