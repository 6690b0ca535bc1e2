"""Distillation jobs on clients in this process: the paper's third data set, jobs with a public file, and their runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kernfed.federation.events import EventKind
from kernfed.jobs.client_file import ClientFile, PolicySection
from kernfed.jobs.job_file import JobFile, parse_job
from kernfed.jobs.named_files import attach_files
from kernfed.methods.distill.consensus_file import PublicConsensus
from kernfed_client.data.local_job import LocalJob
from kernfed_server.jobs.execute import execute
from kernfed_server.jobs.journal import Checkpoint
from kernfed_server.jobs.run import Model, Run
from kernfed_simulation.federation import Rows, from_rows
from kernfed_testing.in_process import Bench, RecordingJournal, StopRunError

Floats = npt.NDArray[np.float64]


def target(x: Floats) -> Floats:
    """The third data set's function of three columns in [0, 1]."""
    r = np.linalg.norm(x, axis=1)
    return np.where(r <= 1, (1 - r) ** 6 * (35 * r**2 + 18 * r + 3), 0.0)


def made_rows(num_clients: int = 4, size: int = 12, seed: int = 1) -> dict[str, Rows]:
    """Clients with rows of that function, with noise in training."""
    random = np.random.default_rng(seed)
    rows = {}
    for i in range(num_clients):
        x, xt = random.random((size, 3)), random.random((30, 3))
        rows[f"site-{i}"] = Rows(x, target(x) + 0.3 * random.normal(size=size), xt, target(xt))
    return rows


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(part)}" for key, part in value.items()) + " }"
    return (str(value).lower() if isinstance(value, bool) else repr(value)).replace("'", '"')


def made_job(
    folder: Path,
    *,
    num_points: int = 30,
    task: str = "regression",
    cohort: str = "",
    top: str = "",
    points: Floats | None = None,
    **settings: Any,
) -> tuple[JobFile, str, dict[str, bytes]]:
    """A job with its public file beside it, as `kernfed job submit` sees it: parsed, text, files by SHA-256.

    Settings that are None are left out, so that the default of the method holds.
    """
    found = np.random.default_rng(9).random((num_points, 3)) if points is None else points
    np.savez(folder / "public.npz", x=found)
    defaults = {"kernel": "wendland", "lengthscale": 1.0, "intercept": False, "ridge": 3e-3}
    if settings.get("client_fraction", 1.0) == 1.0 and settings.get("memory_exponent", "auto") in ("auto", 0.0):
        defaults["tolerance"] = 0.0
    chosen = {key: value for key, value in {**defaults, "rounds": 6, **settings}.items() if value is not None}
    lines = [f"{key} = {_toml(value)}" for key, value in chosen.items()]
    head = ['name = "distill"', "seed = 3", top, "[method]", 'name = "distill"', 'public = "public.npz"']
    data = ["[data]", f'task = "{task}"', 'target = "y"', 'features = ["x0", "x1", "x2"]', "standardise = false"]
    text = "\n".join([*head, *lines, "[cohort]", cohort, *data])
    job, whole, files = attach_files(parse_job(text), text, folder)
    return job, whole, dict(files)


class Ran:
    """What a run left."""

    def __init__(self, left: Model | None, journal: RecordingJournal) -> None:
        self.left = left
        self.journal = journal

    @property
    def values(self) -> np.ndarray:
        assert isinstance(self.left, PublicConsensus)
        return self.left.values

    @property
    def notes(self) -> list[str]:
        return [e.message for e in self.journal.events if e.kind is EventKind.NOTE]

    def metrics(self) -> Any:
        found = [e.metrics for e in self.journal.events if e.kind is EventKind.ROUND_CLOSED and e.metrics is not None]
        return [m for m in found if m.pooled][-1]


def run(
    job: JobFile,
    files: Mapping[str, bytes],
    bench: Bench,
    *,
    stop_before: int | None = None,
    resumed: Checkpoint | None = None,
    reverse: bool = False,
) -> Ran:
    journal = RecordingJournal(stop_before=stop_before)
    cohort = bench.cohort(job, journal.event, reverse=reverse)
    steps = Run(cohort, journal, resumed, job.evaluate_every)
    try:
        found = asyncio.run(execute(job, cohort, steps, read_file=files.__getitem__))
    except StopRunError:
        return Ran(None, journal)
    assert isinstance(found, PublicConsensus)
    return Ran(found, journal)


def units(rows: Mapping[str, Rows], shift: float = 0.0, **factors: float) -> dict[str, Rows]:
    """The same rows with targets shifted, and in other units at some clients."""
    found = {}
    for name, r in rows.items():
        by = factors.get(name.replace("-", "_"), 1.0)
        found[name] = Rows(r.x_train, (r.y_train + shift) * by, r.x_test, (r.y_test + shift) * by)
    return found


def own_models(folder: Path, rows: Mapping[str, Rows], **models: dict[str, Any]) -> dict[str, LocalJob]:
    """Clients of which some bring models of their own."""
    jobs = own_states(rows, folder)
    for key, model in models.items():
        name = key.replace("_", "-")
        file = {"state": folder / name, "policy": {"min_rows": 1}, "models": {"default": model}}
        jobs[name].file = ClientFile.model_validate(file)
    return jobs


def own_states(rows: Mapping[str, Rows], folder: Path) -> dict[str, LocalJob]:
    jobs = from_rows(rows, (), folder)
    for name, job in jobs.items():
        job.file = ClientFile(state=folder / name, policy=PolicySection(min_rows=1))
    return jobs
