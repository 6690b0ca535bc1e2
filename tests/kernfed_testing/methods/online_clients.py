"""Online jobs in this process: streams of a smooth function, clients that are killed, coordinators that fall back."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kernfed.federation.cohort import Cohort
from kernfed.federation.events import EventKind
from kernfed.federation.exchange import Fault
from kernfed.federation.in_process import InProcessExchange
from kernfed.federation.messages.base import Kind
from kernfed.jobs.client_file import DEFAULT_KINDS, ClientFile, PolicySection
from kernfed.jobs.job_file import JobFile, parse_job
from kernfed.methods.online.finding import OnlineFinding
from kernfed_client.data.local_job import LocalJob
from kernfed_client.data.reading.partition_data import PartitionData
from kernfed_client.data.reading.partitions import prepare
from kernfed_client.steps.registry import STEPS
from kernfed_server.jobs.execute import execute
from kernfed_server.jobs.journal import Checkpoint, MemoryJournal
from kernfed_server.jobs.run import Run

Floats = npt.NDArray[np.float64]
COLUMNS = ("x0", "x1")

SMALL: dict[str, Any] = {"num_kernels": 11, "kernels_per_round": 4, "num_frequencies": 8, "metrics_every": 10}
SMALL_POOLED: dict[str, Any] = {"num_frequencies": 4, "metrics_every": 10}


def stream_job(method: str = "online", *, cohort: str = "", data: str = "", **settings: Any) -> JobFile:
    """A job on two columns."""
    values = {key: str(value).lower() if isinstance(value, bool) else repr(value) for key, value in settings.items()}
    lines = "\n".join(f"{key} = {value}".replace("'", '"') for key, value in values.items())
    return parse_job(
        f"""
        name = "stream"
        seed = 3
        [method]
        name = "{method}"
        {lines}
        [cohort]
        {cohort}
        [data]
        task = "regression"
        target = "y"
        features = ["x0", "x1"]
        {data}
        """
    )


def stream_rows(num_rows: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Rows in the unit disc, targets of a smooth function in [0, 1]."""
    random = np.random.default_rng(seed)
    x = random.uniform(-0.7, 0.7, size=(num_rows, 2))
    return x, 0.5 + 0.25 * np.sin(3.0 * x[:, 0]) + 0.25 * x[:, 1]


class StreamClients:
    """Clients with tables as streams, whose state is on disk and that can be started anew."""

    def __init__(
        self, folder: Path, rows: dict[str, tuple[Floats, Floats]], min_rows: int = 1, cautious: Collection[str] = ()
    ) -> None:
        """`cautious` clients let no sufficient statistics leave."""
        self.folder = folder
        self.rows = rows
        self.min_rows = min_rows
        self.cautious = cautious
        self.jobs: dict[str, LocalJob] = {}
        for name in rows:
            self.restart(name)

    def restart(self, name: str) -> None:
        """A new process, which has only what is on disk."""
        x, y = self.rows[name]
        table = PartitionData(x, None, y, 0, np.arange(1, len(x) + 1))
        allow = [k for k in DEFAULT_KINDS if k is not Kind.SUFFICIENT_STATISTIC or name not in self.cautious]
        file = ClientFile(state=self.folder / name, policy=PolicySection(min_rows=self.min_rows, allow=allow))
        self.jobs[name] = LocalJob(
            "test-job", name, file, lambda _d, schema, client: prepare(table, None, schema, client), self.folder / name
        )

    def cohort(self, job: JobFile, exchange: Any = None, newcomers: Collection[str] = ()) -> Cohort:
        """Of all clients but `newcomers`, which may join as soon as the exchange has them."""
        section = job.cohort
        made: Any = exchange or InProcessExchange(STEPS, self.jobs)
        return Cohort(
            made,
            tuple(c for c in self.jobs if c not in newcomers),
            candidates=lambda: [c for c in newcomers if c in made.present()],
            job_id="test-job",
            quorum=section.quorum,
            float_bits=64 if job.precision == "float64" else 32,
        )

    def run(
        self,
        job: JobFile,
        *,
        journal: MemoryJournal | None = None,
        resumed: Checkpoint | None = None,
        exchange: Any = None,
        newcomers: Collection[str] = (),
    ) -> tuple[Any, MemoryJournal]:
        """Run a job to its end; returns the model and the journal."""
        kept = journal or MemoryJournal()
        cohort = self.cohort(job, exchange, newcomers)
        return asyncio.run(execute(job, cohort, Run(cohort, kept, resumed))), kept


def finding(journal: MemoryJournal) -> dict[str, Any]:
    """The last finding of a run's method."""
    events = (e for e in journal.events if e.kind is EventKind.FINDING and e.message == OnlineFinding.name)
    found = [e.finding for e in events if e.finding is not None]
    return dict(found[-1])


def clients(folder: Path, num_rows: int = 40, count: int = 3, **policy: Any) -> StreamClients:
    """Clients c0, c1, ... with rows of their own; `policy` as of `StreamClients`."""
    return StreamClients(folder, {f"c{i}": stream_rows(num_rows, i) for i in range(count)}, **policy)


class StopError(Exception):
    """The coordinator is killed."""


class StoppingJournal(MemoryJournal):
    """Is killed before the checkpoint of a round; keeps those before it."""

    def __init__(self, stop_at: int) -> None:
        super().__init__()
        self.stop_at = stop_at
        self.kept: dict[int, Checkpoint] = {}

    async def checkpoint(self, checkpoint: Checkpoint) -> None:
        if checkpoint.round_num == self.stop_at:
            raise StopError
        self.kept[checkpoint.round_num] = checkpoint
        await super().checkpoint(checkpoint)


class ComingAndGoing(InProcessExchange):
    """Clients are absent in some rounds."""

    def __init__(self, made: StreamClients, absent: dict[str, range], misfits: dict[str, str] | None = None) -> None:
        super().__init__(STEPS, made.jobs)
        self.absent = absent
        self.misfits = misfits or {}
        self.round_num = 0

    def there(self, round_num: int) -> frozenset[str]:
        return frozenset(c for c in self._jobs if round_num not in self.absent.get(c, range(0)))

    def present(self) -> frozenset[str]:
        return self.there(self.round_num + 1)

    async def ask(self, call: Any) -> Any:
        self.round_num = call.round_num
        await asyncio.sleep(0)  # others may go on, as they may while a network is waited for
        there = (self.there(call.round_num) | self.present()) - self.misfits.keys()
        found = dict(await super().ask(replace(call, clients=tuple(c for c in call.clients if c in there))))
        return found | {c: Fault("INVALID_DATA", self.misfits[c]) for c in call.clients if c in self.misfits}
