"""Clients whose test rows are not like their training rows, and jobs that weigh for it, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kernfed.federation.messages.base import Kind
from kernfed.jobs.job_file import JobFile
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.reweight.state import ReweightState
from kernfed_simulation.federation import Rows
from kernfed_simulation.run import Simulated
from kernfed_testing.in_process import make_job
from kernfed_testing.methods.personalise import clients, without

NAMES = ("ant", "bee", "cat")
CLASSES = ("a", "b", "c")

PAPER = 'denominator = "client"\n'
"""Ratios to each client's own training rows, from a pool of unlabelled samples."""

SHARING: dict[str, Any] = {"allow": list(Kind)}


def shifted_rows(size: int = 150, shift: float = 0.8, seed: int = 0) -> dict[str, Rows]:
    """A curved function; each client trains on the left and is tested on the right, by another amount each."""
    random = np.random.default_rng(seed)
    rows = {}
    for i, name in enumerate(NAMES):
        parts = []
        for centre, num in ((-0.5 * shift, size), (0.5 * shift + 0.2 * i, 80)):
            x = random.normal(size=(num, 2))
            x[:, 0] += centre
            y = np.sin(2 * x[:, 0]) + x[:, 0] ** 2 + 0.1 * random.normal(size=num)
            parts.append((x, y))
        rows[name] = Rows(*parts[0], *parts[1])
    return rows


def label_shifted_rows(size: int = 240, seed: int = 1) -> dict[str, Rows]:
    """Three classes; client i trains mostly on class i, and is tested mostly on class i + 1."""
    random = np.random.default_rng(seed)
    centres = 1.6 * np.array([[1.0, 0.0], [-0.5, 0.87], [-0.5, -0.87]])
    rows = {}
    for i, name in enumerate(NAMES):
        parts = []
        for main, num in ((i, size), ((i + 1) % 3, 90)):
            y = np.where(random.random(num) < 0.8, main, random.integers(0, 3, num))
            parts.append((centres[y] + random.normal(size=(num, 2)), y))
        rows[name] = Rows(*parts[0], *parts[1])
    return rows


def reweight_job(
    *, task: str = "regression", ratios: str = "", network: str = "", cohort: str = "", **settings: Any
) -> JobFile:
    """A reweighted job on two columns; the text arguments are lines of the tables below [method], and of [cohort].

    Ratios by random features have 60 frequencies, not 200, which takes half the time.
    """
    settings.setdefault("rounds", 8)
    if not any(key in ratios for key in ("num_frequencies", "source", "estimator", "model")):
        ratios = f"{ratios}\nnum_frequencies = 60"
    frequencies = 60 if settings.get("trainer", "newton") == "newton" else None
    tables = f"{cohort}\n[method.ratios]\n{ratios}\n" + (f"[method.network]\n{network}\n" if network else "")
    return make_job("reweight", task=task, num_columns=2, frequencies=frequencies, cohort=tables, **settings)


def sharing(rows: dict[str, Rows], state: Path, classes: tuple[str, ...] = (), refusing: tuple[str, ...] = ()) -> Any:
    """Clients that share samples, but for those that refuse."""
    policies = {name: without(Kind.UNLABELLED_SAMPLE) if name in refusing else SHARING for name in rows}
    return clients(rows, state, classes, **policies)


def finding(done: Simulated) -> dict[str, Any]:
    """What the job published."""
    found = [e.event.finding for e in done.events if e.event.message == "reweight" and e.event.finding is not None]
    return dict(found[-1])


def weights(jobs: dict[str, LocalJob], variant: str) -> dict[str, Any]:
    """Weights of each client's training rows."""
    return {name: job.memory(ReweightState).ratios[variant].weights for name, job in jobs.items()}
