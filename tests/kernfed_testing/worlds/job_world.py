"""A run manager with clients in this process, and workflows that a test drives by hand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from kernfed.federation.cohort import Cohort
from kernfed.federation.events import RoundMetrics
from kernfed.federation.in_process import InProcessExchange
from kernfed.jobs.info import ClientInfo, JobInfo, JobUpdate
from kernfed.jobs.job_file import JobFile
from kernfed.methods.probe.messages import Echo, EchoRequest
from kernfed.methods.probe.settings import ProbeSettings
from kernfed.v1 import task_pb2
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.tasks.manager import RunLimits, RunManager
from kernfed_server.keeping.store import Store
from kernfed_testing.books import OWNER
from kernfed_testing.limits import LIMIT_S

SEEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def probe_toml(name: str = "probe", clients: list[str] | None = None, rounds: int = 3, **cohort: Any) -> str:
    """A job file that needs no data."""
    keys = dict(cohort)
    if clients is not None:
        keys["clients"] = clients
    lines = "\n".join(f"{key} = {value!r}" for key, value in keys.items())
    return f'name = "{name}"\n[method]\nname = "probe"\nrounds = {rounds}\npayload_bytes = 8\n[cohort]\n{lines}\n'


class FakeSessions:
    """The session layer: clients come and go as the test says."""

    def __init__(self, *names: str) -> None:
        self.infos: dict[str, ClientInfo] = {}
        self.devices: dict[str, str] = {}
        """What clients report that they compute on; `cpu` where a test says nothing else."""
        self.ended: list[tuple[str, str]] = []
        self.signed: list[str] = []
        self.gone: dict[str, str] = {}
        """Clients whose certificates were revoked."""
        self._change = asyncio.Event()
        self.connect(*names)

    def connect(self, *names: str, datasets: tuple[str, ...] = ("default",)) -> None:
        for name in names:
            device = self.devices.get(name, "cpu")
            self.infos[name] = ClientInfo(name, True, datasets, ("probe.echo",), device, "0.1", SEEN, "peer", SEEN)
        self._changed()

    def leave(self, name: str) -> None:
        self.infos[name] = ClientInfo(name, False, last_seen_at=SEEN)
        self._changed()

    def _changed(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    def clients(self) -> dict[str, ClientInfo]:
        return self.infos

    def revoked(self) -> dict[str, str]:
        return self.gone

    async def wait_change(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._change.wait()

    def sign(self, job: JobInfo, submission: task_pb2.Submission) -> None:
        self.signed.append(job.job_id)

    def end_job(self, job_id: str, why: str) -> None:
        self.ended.append((job_id, why))


@dataclass
class Script:
    """A workflow whose rounds wait for the test: `go()` lets one round close."""

    started: list[tuple[str, ...]] = field(default_factory=list)
    """Cohorts, in the order in which jobs began."""
    first_rounds: list[int] = field(default_factory=list)
    states: list[Any] = field(default_factory=list)
    gates: dict[str, asyncio.Semaphore] = field(default_factory=dict)
    free: bool = False
    """Rounds wait for nobody."""
    begun: asyncio.Condition = field(default_factory=asyncio.Condition)

    def gate(self, name: str) -> asyncio.Semaphore:
        return self.gates.setdefault(name, asyncio.Semaphore(0))

    def go(self, name: str, rounds: int = 1) -> None:
        for _ in range(rounds):
            self.gate(name).release()

    async def wait_started(self, num: int) -> None:
        async with asyncio.timeout(LIMIT_S), self.begun:
            await self.begun.wait_for(lambda: len(self.started) >= num)

    async def execute(self, job: JobFile, cohort: Cohort, run: Run) -> None:
        settings = job.method
        assert isinstance(settings, ProbeSettings)
        async with self.begun:
            self.started.append(cohort.clients)
            self.begun.notify_all()
        total = np.zeros(2) if run.resumed is None else run.resumed["total"]
        self.states.append(total.copy())
        async for round_num in run.rounds(settings.rounds):
            self.first_rounds.append(round_num)
            replies = await cohort.ask(EchoRequest(values=np.full(2, float(round_num))))
            if not self.free:
                await self.gate(job.name).acquire()
            total = total + replies[cohort.clients[0]].values
            scores = {"auc": 0.5 + round_num / 10}
            metrics = RoundMetrics({"global": scores}, {c: {"global": scores} for c in replies}, {"seconds": 0.5})
            await run.record(round_num, {"total": total}, metrics)


def echo(_client: str, request: EchoRequest) -> Echo:
    return Echo(num_rows=1, values=request.values)


class YieldingExchange(InProcessExchange):
    """As over a network, a call lets others run."""

    async def ask(self, call: Any) -> Any:
        await asyncio.sleep(0)
        return await super().ask(call)


@dataclass
class World:
    """A coordinator's jobs without its network."""

    folder: Path
    store: Store
    sessions: FakeSessions
    script: Script
    runs: RunManager

    async def submit(self, name: str, clients: list[str] | None = None, **settings: Any) -> JobInfo:
        return await self.runs.submit(probe_toml(name, clients, **settings), "", "ann")

    async def updates(self, job_id: str, first: int = 1) -> AsyncGenerator[JobUpdate, None]:
        """What a watcher of a job is told, one by one."""
        async with contextlib.aclosing(self.runs.watch(job_id, first)) as batches:
            async for batch in batches:
                for update in batch.updates:
                    yield update

    async def until(self, job_id: str, wanted: Callable[[JobUpdate], bool]) -> list[JobUpdate]:
        """Watch a job until an update fits; returns all up to it."""
        seen = []
        async with asyncio.timeout(LIMIT_S), contextlib.aclosing(self.updates(job_id)) as updates:
            async for update in updates:
                seen.append(update)
                if wanted(update):
                    return seen
        raise AssertionError(f"ended before: {seen[-3:]}")

    async def finished(self, job_id: str) -> JobInfo:
        """Wait for a job's end; returns it."""
        async with asyncio.timeout(LIMIT_S):
            last = None
            async for update in self.updates(job_id):
                last = update.job or last
        assert last is not None
        assert last.state.finished
        return last

    async def waiting(self, job_id: str) -> str:
        """Wait until a job says what it waits for."""
        updates = await self.until(job_id, lambda u: bool(u.job and u.job.waiting_for) or _waits(u))
        last = updates[-1]
        return last.event.event.message if last.event else last.job.waiting_for if last.job else ""


def _waits(update: JobUpdate) -> bool:
    return update.event is not None and update.event.event.kind == "waiting" and bool(update.event.event.message)


@contextlib.asynccontextmanager
async def world(
    folder: Path,
    *clients: str,
    execute: Callable[[JobFile, Cohort, Run], Awaitable[Any]] | None = None,
    known: set[str] | None = None,
    limits: RunLimits | None = None,
    report: bool = False,
) -> AsyncIterator[World]:
    """A running manager; leaving the block stops it as SIGTERM would, jobs and all.

    `report`: whether to write report.html, which takes a second per job.
    """
    folder.mkdir(exist_ok=True)
    store = await Store.open(f"sqlite:///{folder}/coordinator.sqlite", folder, OWNER)
    sessions, script = FakeSessions(*clients), Script()
    runs = RunManager(
        store,
        sessions,
        lambda info, _: YieldingExchange({EchoRequest: echo}, {client: client for client in info.clients}),
        folder,
        execute=execute or script.execute,
        known_clients=lambda: known,
        limits=limits or RunLimits(settle_s=0.0),
    )
    task = asyncio.ensure_future(runs.run())

    async def no_report(*_: object) -> str:
        return ""

    quick = (
        contextlib.nullcontext() if report else mock.patch("kernfed_server.jobs.tasks.task.render_report", no_report)
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            await runs.ready.wait()
        with quick:
            yield World(folder, store, sessions, script, runs)
    finally:
        task.cancel()
        await asyncio.wait([task])
        await store.close()
