"""A federation whose every frame, computation and crash a test decides: real sessions, steps and workflows, no sockets.

Both ends are the product's: at a client session, outbox, reply store, kept setup and steps on its files; at the
coordinator sessions, exchange, step states, cohort, workflow and checkpoint files. The line between them holds frames
until they are delivered. What a store's rows would say is held here, one entry for each checkpoint, so that the last
write can be lost and older books can come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernfed.arrays import Array
from kernfed.errors import KernfedError
from kernfed.federation.cohort import Cohort
from kernfed.federation.events import EventKind, JobEvent
from kernfed.federation.in_process import InProcessExchange
from kernfed.federation.messages.catalogue import Requests
from kernfed.jobs.client_file import load_client_file
from kernfed.jobs.job_file import JobFile
from kernfed_client.daemon.answering import Answering
from kernfed_client.daemon.connection import LineDownError
from kernfed_client.daemon.reply_store import ReplyStore
from kernfed_client.daemon.session import ClientSession, Offer
from kernfed_client.daemon.tasks import TaskRunner
from kernfed_client.data.local_job import LocalJob
from kernfed_client.steps.registry import STEPS
from kernfed_server.federation.exchange import RemoteExchange
from kernfed_server.federation.session import SessionLimits
from kernfed_server.federation.sessions import SessionRegistry
from kernfed_server.jobs.execute import execute
from kernfed_server.jobs.journal import Checkpoint, MemoryJournal
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.state import json_of
from kernfed_server.keeping.checkpoints import read_checkpoint, write_checkpoint
from kernfed_server.services.federation import FederationServicer
from kernfed_testing.worlds.lines import Context, Ended, Later, Line, Stream

JOB = "job"
TOLD = (
    "is left out of this job",
    "learned again",
    "learn them again",
    "goes on without it",
    "out of the pooled problem",
    "are used again",
)
"""Words of notes by which a job says that its model is another one."""
_LONG_S = 1e8
_MOST_TURNS = 5_000
_MOST_IDLE_TURNS = 25_000
"""Half a minute of a federation that does nothing, of which all is delivered; longer where the machine is busy."""


@dataclass
class Client:
    """A client of one life."""

    folder: Path
    session: ClientSession
    worker: Later
    store: ReplyStore
    runner: TaskRunner
    line: Line | None = None
    ends: list[asyncio.Task[None]] = field(default_factory=list)


@dataclass(frozen=True)
class Book:
    """What a coordinator's store says after a checkpoint."""

    file: tuple[str, str] | None
    round_num: int
    events: tuple[JobEvent, ...]


class Explored:
    """A job on clients `a` and `b`, from one decision to the next."""

    def __init__(self, root: Path, files: Mapping[str, Path], job: JobFile, named: Mapping[str, bytes]) -> None:
        """Start all; nothing is delivered yet.

        Args:
            root: Empty folder.
            files: Client files, by client.
            job: What to run.
            named: Files that the job names, by SHA-256.
        """
        self._root = root
        self._files = files
        self._job = job
        self._named = named
        self.books = [Book(None, 0, ())]
        self.events: list[JobEvent] = []
        self.clients: dict[str, Client] = {}
        self._backups: dict[str, Path] = {}
        self.revoked: set[str] = set()
        """Clients without a certificate."""
        self._certificates: Counter[str] = Counter()
        """Times that clients got a new one."""
        self.left: Any = None
        self.failed = ""
        """Why the job failed, where it did."""
        self.task: asyncio.Task[Any] | None = None
        self.registry: SessionRegistry

    # Coordinator.

    def event(self, event: JobEvent) -> None:
        """See `kernfed_server.jobs.run.Journal`."""
        self.events.append(event)

    async def checkpoint(self, checkpoint: Checkpoint) -> None:
        """See `kernfed_server.jobs.run.Journal`."""
        written = write_checkpoint(self._root / "checkpoints", JOB, checkpoint)
        self.books.append(Book(written, checkpoint.round_num, tuple(self.events)))

    def start_coordinator(self) -> None:
        """A life of the coordinator, from its last book."""
        book = self.books[-1]
        self.events = list(book.events)
        resumed = None
        if book.file is not None:
            name, sha256 = book.file
            resumed = read_checkpoint(self._root / "checkpoints" / name, book.round_num, sha256)
        self.registry = SessionRegistry(SessionLimits(_LONG_S, _LONG_S), self._root)
        for name in self.revoked:
            self.registry.revoke(name)
        section = self._job.cohort
        exchange = RemoteExchange(self.registry, "ann", self._job.method.name)
        cohort = Cohort(exchange, self._files, job_id=JOB, quorum=section.quorum, observe=self.event)
        run = Run(cohort, self, resumed, self._job.evaluate_every)
        self.task = asyncio.ensure_future(execute(self._job, cohort, run, read_file=self._named.__getitem__))

    async def kill_coordinator(self, lost: int = 0) -> None:
        """End it, and all lines; the last writes never came to the disk."""
        for name in self.clients:
            self.cut(name)
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])
        self.task = None
        await self.settle()
        del self.books[max(len(self.books) - lost, 1) :]

    @property
    def ended(self) -> bool:
        """Whether the job is over."""
        return self.task is not None and self.task.done()

    def close_without(self) -> None:
        """The deadline of the step that is open passes."""
        for call in self.registry._calls.values():
            call._state._deadline = time.monotonic() - 1.0
            call.wake()

    # Clients.

    def start_client(self, name: str) -> None:
        """A life of a client."""
        folder = self._root / name
        folder.mkdir(exist_ok=True)
        file = load_client_file(self._files[name])
        store, worker = ReplyStore(folder / "outbox", ""), Later()

        def pass_all(*_: Any) -> None:
            pass

        runner = TaskRunner(
            Requests.of_all_rooms(),
            lambda: STEPS,
            lambda job_id, job_folder: LocalJob(job_id, name, file, folder=job_folder),
            pass_all,
            pass_all,
            pass_all,
            folder,
            max_body_bytes=1 << 20,
        )

        def identity() -> Any:
            raise AssertionError("nobody dials")

        offer = Offer("1", (("default", ("train",)),))
        tasks = Answering(runner, worker, store)  # type: ignore[arg-type]  # a worker
        session = ClientSession(identity, None, offer, tasks)
        self.clients[name] = Client(folder, session, worker, store, runner)

    async def kill_client(self, name: str) -> None:
        """End it and its line."""
        self.cut(name)
        await self.settle()
        self.clients.pop(name).store.close()

    def connect(self, name: str) -> None:
        """Dial, where there is no line."""
        client = self.clients[name]
        if client.line is not None or self.task is None or name in self.revoked:
            return
        line = client.line = Line()
        context: Any = Context(line.coordinator, name, self._serial(name))
        serving = FederationServicer(self.registry).connect(None, context)
        client.ends = [asyncio.ensure_future(_quiet(c)) for c in (serving, _converse(client.session, line.client))]

        def hung_up(_: object) -> None:
            if client.line is line:
                self.cut(name)

        for end in client.ends:
            end.add_done_callback(hung_up)

    def cut(self, name: str) -> None:
        """Cut a line."""
        client = self.clients.get(name)
        if client is not None and client.line is not None:
            client.line.cut()
            client.line = None

    def revoke(self, name: str) -> None:
        """Revoke a client's certificate: its session ends, and it is out of every step; `enrol` gives it another."""
        self.revoked.add(name)
        if self.task is not None:
            self.registry.cut(frozenset({self._serial(name)}), "REVOKED", "the certificate was revoked")
            self.registry.revoke(name)
        self.cut(name)

    def _serial(self, name: str) -> str:
        return f"{name} {self._certificates[name]}"

    def enrol(self, name: str) -> None:
        """Give a client that has none a new certificate, with which it may connect."""
        if name in self.revoked:
            self.revoked.remove(name)
            self._certificates[name] += 1

    def keep(self, name: str) -> None:
        """Back up a client that is down."""
        backup = self._backups[name] = self._root / f"{name}.backup"
        shutil.rmtree(backup, ignore_errors=True)
        shutil.copytree(self._root / name, backup)

    def put_back(self, name: str) -> bool:
        """Restore a client that is down; False where there is no backup."""
        if name not in self._backups:
            return False
        shutil.rmtree(self._root / name)
        shutil.copytree(self._backups[name], self._root / name)
        return True

    # Steps.

    async def settle(self) -> None:
        """Let both ends do what they can do without another frame."""
        for _ in range(25):
            await asyncio.sleep(0)

    async def deliver(self, name: str, way: str, *, twice: bool = False) -> bool:
        """The next frame arrives, or comes to be computed; False where nothing is on its way."""
        client = self.clients.get(name)
        if client is None:
            return False
        if way == "compute":
            moved = client.worker.compute()
        elif client.line is None:
            return False
        else:
            ways, end = (
                (client.line.up, client.line.coordinator) if way == "up" else (client.line.down, client.line.client)
            )
            moved = bool(ways)
            if moved:
                frame = ways.popleft()
                for _ in range(1 + twice):
                    end.arrived.put_nowait(frame)
        await self.settle()
        return moved

    async def progress(self, names: str, steps: int) -> None:
        """So many deliveries and computations of these clients, in turn."""
        done = 0
        while done < steps:
            before = done
            for name in names:
                for way in ("down", "compute", "up"):
                    done += await self.deliver(name, way)
            if done == before:
                return

    async def finish(self) -> None:
        """All come back, with new certificates where needed, and all is delivered, until the job is over.

        Raises:
            AssertionError: It hangs.
        """
        for name in self._files:
            self.enrol(name)
            if name not in self.clients:
                self.start_client(name)
        if self.task is None:
            self.start_coordinator()
        turns = idle_turns = 0
        while not self.ended:
            moved = 0
            for name in self._files:
                self.connect(name)
                await self.settle()
                for way in ("down", "compute", "up"):
                    moved += await self.deliver(name, way)
            turns += moved > 0
            idle_turns = 0 if moved else idle_turns + 1
            if not moved:
                await asyncio.sleep(0.001)  # something goes on in a thread
            hangs = idle_turns > _MOST_IDLE_TURNS or turns > _MOST_TURNS
            assert not hangs, f"hangs: {self.events[-3:]}, {self.registry._calls}"
        assert self.task is not None
        try:
            self.left = await self.task
        except KernfedError as err:
            self.failed = str(err)

    async def close(self) -> None:
        """End all."""
        await self.kill_coordinator()
        for name in list(self.clients):
            await self.kill_client(name)

    # What came of it.

    @property
    def state(self) -> dict[str, Array]:
        """The last checkpoint, without what tells how quickly the run moved."""
        book = self.books[-1]
        assert book.file is not None
        name, sha256 = book.file
        return dict(read_checkpoint(self._root / "checkpoints" / name, book.round_num, sha256).state)

    @property
    def told(self) -> list[str]:
        """What the job's history says of rounds that were others than those of an undisturbed run."""
        absent = {EventKind.CLIENT_MISSING, EventKind.CLIENT_FAILED, EventKind.CLIENT_JOINED}
        return [
            f"{e.kind}: {e.client} {e.step} {e.round_num} {e.text}"
            for e in self.events
            if e.kind in absent or (e.kind is EventKind.NOTE and any(words in e.message for words in TOLD))
        ]


async def undisturbed(
    root: Path, files: Mapping[str, Path], job: JobFile, named: Mapping[str, bytes]
) -> dict[str, Array]:
    """The last checkpoint of the job left in peace."""
    journal = MemoryJournal()
    jobs = {n: LocalJob(JOB, n, load_client_file(f), folder=root / n) for n, f in files.items()}
    cohort = Cohort(InProcessExchange(STEPS, jobs), files, job_id=JOB, quorum=job.cohort.quorum)
    run = Run(cohort, journal, None, job.evaluate_every)
    await execute(job, cohort, run, read_file=named.__getitem__)
    assert journal.last is not None
    return dict(journal.last.state)


def differs(found: Mapping[str, Array], want: Mapping[str, Array]) -> list[str]:
    """Names of the arrays that are not the same bits; who has which setup is known over a network alone."""

    def bits(arrays: Mapping[str, Array], name: str) -> bytes:
        if name != "run.clients":
            return arrays[name].tobytes()
        return json.dumps({key: told for key, told in json_of(arrays[name]).items() if key != "setup"}).encode()

    both = found.keys() & want.keys()
    return sorted((found.keys() ^ want.keys()) | {n for n in both if bits(found, n) != bits(want, n)})


async def _converse(session: ClientSession, stream: Stream) -> None:
    """As `ClientSession._serve`, without dialling."""
    ended: Any = Ended()
    end: Any = stream
    await session._converse(end, ended, await session._greet(end, ended), lambda: None)


async def _quiet(serving: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(LineDownError, KernfedError):
        await serving
