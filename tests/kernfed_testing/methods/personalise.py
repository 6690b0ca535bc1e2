"""Clients with concepts of their own, and personalised jobs on them in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kernfed.federation.messages.base import Kind
from kernfed.jobs.client_file import PolicySection
from kernfed.jobs.job_file import JobFile
from kernfed_client.data.local_job import LocalJob
from kernfed_simulation.federation import Rows, from_rows
from kernfed_simulation.run import Simulated, simulate
from kernfed_testing.in_process import make_job

NAMES = ("ant", "bee", "cat", "dog", "eel", "fox")
TRAINERS: dict[str, dict[str, Any]] = {
    "exact": {},
    "newton": {"trainer": "newton", "rounds": 20},
    "fedavg": {"trainer": "fedavg", "rounds": 8, "num_frequencies": 30},
}
UNJUDGED = {**TRAINERS["fedavg"], "judge": "ridge"}
"""Networks without rounds in which they are judged: for what these have nothing to do with."""
ALIKE = {"alike": {**UNJUDGED, "network_scale": "all"}}


def concept_rows(sizes: tuple[int, ...] = (14, 15, 16, 17, 18, 19), groups: int = 2, seed: int = 0) -> dict[str, Rows]:
    """Linear clients; every second one shares its coefficients."""
    random = np.random.default_rng(seed)
    beta = 1.5 * random.normal(size=(groups, 3))
    rows = {}
    for i, size in enumerate(sizes):
        x = random.normal(size=(size + 30, 3))
        y = x @ beta[i % groups] + 0.3 * random.normal(size=size + 30) + 2.0
        rows[NAMES[i]] = Rows(x[:size], y[:size], x[size:], y[size:])
    return rows


def opposite_rows(size: int = 60) -> dict[str, Rows]:
    """Six clients of opposite rules y = ±(x'b + 3) + noise: none is served by the intercept of all."""
    random = np.random.default_rng(31337)
    rows = {}
    for i, name in enumerate(NAMES):
        x = random.normal(size=(160, 5))
        y = (1 - 2 * (i % 2)) * (x @ np.array([1.5, -1, 0.8, 0, 0.5]) + 3) + 0.5 * random.normal(size=160)
        rows[name] = Rows(x[:size], y[:size], x[60:], y[60:])
    return rows


def personal_job(*, features: str = 'kernel = "linear"', **settings: Any) -> JobFile:
    """A personalised job on `concept_rows`, with a small embedding."""
    if "embedding_kernel" not in settings:
        settings.setdefault("num_frequencies", 60)
    return make_job("personalise", frequencies=40, features=features, **settings)


def clients(
    rows: dict[str, Rows], state: Path, classes: tuple[str, ...] = (), **policy: dict[str, Any]
) -> dict[str, LocalJob]:
    """The clients, some with a policy of their own: name to fields."""
    jobs = from_rows(rows, classes, state)
    for name, fields in policy.items():
        section = PolicySection.model_validate({"min_rows": 1, **fields})
        jobs[name].file = jobs[name].file.model_copy(update={"policy": section})
    return jobs


def without(*kinds: Kind) -> dict[str, Any]:
    """A policy that lets all but these leave."""
    return {"allow": [kind for kind in Kind if kind not in kinds]}


def run(job: JobFile, jobs: dict[str, LocalJob], out: Path | None = None) -> Simulated:
    """Run a job behind the clients' policies; an error is raised."""
    done = simulate(job, jobs, out=out)
    if done.error is not None:
        raise done.error
    return done


def finding(done: Simulated) -> dict[str, Any]:
    """What the job published."""
    found = [e.event.finding for e in done.events if e.event.message == "personalise" and e.event.finding is not None]
    return dict(found[-1])


def notes(done: Simulated) -> str:
    """What the operator was told."""
    return "\n".join(e.event.message for e in done.events if e.event.kind.value == "note")
