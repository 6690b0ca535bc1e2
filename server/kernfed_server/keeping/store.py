"""The coordinator's memory: jobs, their events and checkpoints, clients seen. SQLite in a file, or any database by URL.

All statements run in one worker thread, in the order of the calls. Events are queued and go with the next statement, at
the latest a moment later, so a busy job costs one transaction per round. While the disk is full they wait in memory,
and what is only read is read all the same.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import sqlalchemy as sa
import structlog
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine

from kernfed.errors import BusyError, DiskFullError, UnavailableError, UnknownJobError
from kernfed.federation.events import EventKind, JobState
from kernfed.files import is_full
from kernfed.jobs.info import ClientInfo, JobInfo, JobPage, NumberedEvent
from kernfed_server.jobs.outcomes import ClientOutcome, RoundOutcomes, outcome_from, outcome_rows
from kernfed_server.jobs.run import Checkpoint
from kernfed_server.keeping import tables as t
from kernfed_server.keeping.checkpoints import copy_checkpoint, read_checkpoint, remove_orphans, write_checkpoint
from kernfed_server.keeping.database_lock import DatabaseLock
from kernfed_server.keeping.schema import bring_up_to_date, make_engine, refuse_lost
from kernfed_server.keeping.store_rows import (
    client_columns,
    client_from,
    event_columns,
    event_from,
    job_columns,
    job_from,
)

log = structlog.get_logger(__name__)

T = TypeVar("T")

MAX_PENDING_EVENTS = 100_000
"""Events that may wait for the disk; more means that the disk does not follow, or is full."""

FLUSH_AFTER_S = 0.25
"""Events wait this long for a statement that takes them along, such as the checkpoint of their round."""

_HOLD_EVERY_S = 5.0

_UNFINISHED = t.jobs.c.state.in_([JobState.QUEUED.value, JobState.RUNNING.value])


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job and where its history stands."""

    info: JobInfo
    last_sequence: int


Answers = Mapping[str, Mapping[str, int]]
"""Client to step to how often it answered."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """State from which a job goes on."""

    checkpoint: Checkpoint
    answers: Answers


class Store:
    """State that outlives the process. Make with `await Store.open(...)`; end with `close`."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self._engine = engine
        self._folder = folder
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._lock = threading.Lock()
        self._pending: deque[tuple[str, NumberedEvent]] = deque()
        self._flush_timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._held = DatabaseLock(engine)

    @classmethod
    async def open(cls, url: str, folder: Path) -> Store:
        """Open a store, making it if it is new.

        Args:
            url: SQLAlchemy URL, as for `kernfed_server.keeping.schema.make_engine`.
            folder: The coordinator's data folder; checkpoints go to `checkpoints` in it.

        Raises:
            ConfigError: The URL cannot be used, a newer release of kernfed made the tables, another coordinator uses
                them, or they are gone while the folder holds files of jobs.
            UnavailableError: The database cannot be opened.
        """
        store = cls(make_engine(url), folder / "checkpoints")
        try:
            await store._in_worker(lambda: refuse_lost(store._engine, folder))
            await store._in_worker(store._create)
        except BaseException:
            await store.close()
            raise
        return store

    async def close(self) -> None:
        """Write what is pending and close; once is enough, twice does no harm."""
        if self._closed:
            return
        self._closed = True
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        try:
            await self._in_worker(self._flush_now)
        except UnavailableError:
            log.exception("events lost at shutdown")
        finally:
            self._worker.submit(self._held.release)
            self._worker.shutdown(wait=True)
            self._engine.dispose()

    async def hold(self) -> None:
        """See to it for ever that no other coordinator uses the database, which a restarted server would let in.

        Raises:
            ConfigError: Another one does; what is written from now on could undo what it wrote.
        """
        while True:
            await asyncio.sleep(_HOLD_EVERY_S)
            try:
                await self._in_worker(self._held.take)
            except UnavailableError as err:
                log.warning("the database is not held", error=str(err))

    def add_event(self, job_id: str, event: NumberedEvent) -> None:
        """Queue an event for writing; returns at once. Called in the event loop.

        Raises:
            BusyError: Too many wait already.
        """
        with self._lock:
            if len(self._pending) >= MAX_PENDING_EVENTS:
                raise BusyError(f"{MAX_PENDING_EVENTS} events wait to be stored; is the coordinator's disk full?")
            self._pending.append((job_id, event))
        if self._flush_timer is None:
            self._flush_timer = asyncio.get_running_loop().call_later(FLUSH_AFTER_S, self._flush_soon)

    async def submit(self, info: JobInfo, request_id: str) -> tuple[JobInfo, bool]:
        """Keep a new job, or find the one that the same operator submitted under this request id before.

        Returns:
            The job, and whether it is new.
        """

        def work(db: Connection) -> tuple[JobInfo, bool]:
            if request_id:
                query = (
                    sa.select(t.jobs)
                    .join(t.request_ids)
                    .where(t.request_ids.c.submitted_by == info.submitted_by, t.request_ids.c.request_id == request_id)
                )
                if known := db.execute(query).one_or_none():
                    return job_from(known), False
            db.execute(t.jobs.insert().values(job_id=info.job_id, **job_columns(info)))
            _note_action(db, info.submitted_by, "submit", info.job_id)
            if request_id:
                db.execute(
                    t.request_ids.insert().values(
                        submitted_by=info.submitted_by, request_id=request_id, job_id=info.job_id
                    )
                )
            return info, True

        return await self._transaction(work)

    async def update_job(self, info: JobInfo) -> None:
        """Write a job's present state."""
        await self._transaction(
            lambda db: db.execute(t.jobs.update().where(t.jobs.c.job_id == info.job_id).values(**job_columns(info)))
        )

    async def find_job(self, job_id: str) -> JobInfo:
        """A job by its id, or by a beginning of the id that no other job shares.

        Raises:
            UnknownJobError: There is none, or several.
        """
        if not job_id:
            raise UnknownJobError("no job id given; `kernfed job list` shows them")
        pattern = t.jobs.c.job_id.startswith(job_id[:128], autoescape=True)
        query = sa.select(t.jobs).where(pattern).order_by(t.jobs.c.ordinal.desc()).limit(6)
        rows = await self._reading(lambda db: db.execute(query).all())
        exact = [row for row in rows if row.job_id == job_id]
        if len(exact or rows) != 1:
            if not rows:
                raise UnknownJobError(f"no job {job_id[:128]!r}; `kernfed job list` shows them")
            names = ", ".join(row.job_id for row in rows)
            raise UnknownJobError(f"{job_id!r} may be any of {names}; give more letters")
        return job_from((exact or rows)[0])

    async def list_jobs(self, page_size: int, before: int | None = None) -> JobPage:
        """Jobs, newest first, without their files.

        Args:
            page_size: At most this many.
            before: Where the page before ended.
        """
        query = sa.select(t.jobs).order_by(t.jobs.c.ordinal.desc()).limit(page_size + 1)
        if before is not None:
            query = query.where(t.jobs.c.ordinal < before)
        rows = await self._reading(lambda db: db.execute(query).all())
        more = str(rows[page_size - 1].ordinal) if len(rows) > page_size else ""
        return JobPage(tuple(job_from(row, with_file=False) for row in rows[:page_size]), more)

    async def unfinished_jobs(self) -> list[StoredJob]:
        """Jobs to go on with, oldest first."""

        def work(db: Connection) -> list[StoredJob]:
            last = sa.func.coalesce(sa.func.max(t.events.c.sequence), 0)
            found = db.execute(sa.select(t.jobs).where(_UNFINISHED).order_by(t.jobs.c.ordinal)).all()
            return [
                StoredJob(
                    job_from(row), db.execute(sa.select(last).where(t.events.c.job_id == row.job_id)).scalar_one()
                )
                for row in found
            ]

        return await self._transaction(work)

    async def events(
        self, job_id: str, first: int = 1, limit: int = 1000, kinds: Iterable[EventKind] = ()
    ) -> list[NumberedEvent]:
        """Events of a job from a sequence number on, in order, those that wait for the disk too; some kinds, or all."""
        query = (
            sa.select(t.events)
            .where(t.events.c.job_id == job_id, t.events.c.sequence >= first)
            .order_by(t.events.c.sequence)
            .limit(limit)
        )
        wanted = frozenset(kinds)
        if wanted:
            query = query.where(t.events.c.kind.in_([kind.value for kind in wanted]))
        found = [event_from(row) for row in await self._reading(lambda db: db.execute(query).all())]
        if len(found) < limit:
            after = found[-1].sequence if found else first - 1
            with self._lock:
                waiting = [event for of, event in self._pending if of == job_id]
            found += [e for e in waiting if e.sequence > after and (not wanted or e.event.kind in wanted)]
        return found[:limit]

    async def save_checkpoint(
        self, info: JobInfo, checkpoint: Checkpoint, answers: Answers, outcomes: RoundOutcomes | None = None
    ) -> None:
        """Keep the state after a round in place of the one before.

        The file is on disk before the row names it, and the file before goes after that; so whenever the process
        dies, one whole checkpoint is there.

        Args:
            info: The job.
            checkpoint: Round and state.
            answers: Of all rounds so far.
            outcomes: What each client did in this round.

        Raises:
            DiskFullError: There is no space; the checkpoint before stays.
            UnavailableError: The database cannot be used; likewise.
        """
        counted = {client: dict(steps) for client, steps in answers.items()}

        def work() -> None:
            name, sha256 = write_checkpoint(self._folder, info.job_id, checkpoint) if checkpoint.state else ("", "")
            values = {"round_num": checkpoint.round_num, "file": name, "sha256": sha256, "answers": counted}
            same_job = t.checkpoints.c.job_id == info.job_id

            def note(db: Connection) -> str:
                before = db.execute(sa.select(t.checkpoints.c.file).where(same_job)).scalar_one_or_none()
                if before is None:
                    db.execute(t.checkpoints.insert().values(job_id=info.job_id, **values))
                else:
                    db.execute(t.checkpoints.update().where(same_job).values(**values))
                if outcomes:
                    same_round = (t.outcomes.c.job_id == info.job_id, t.outcomes.c.round_num == checkpoint.round_num)
                    db.execute(t.outcomes.delete().where(*same_round))
                    db.execute(t.outcomes.insert(), outcome_rows(info.job_id, checkpoint.round_num, outcomes))
                facts = {"round_num": checkpoint.round_num, "clients": list(info.clients)}
                db.execute(t.jobs.update().where(t.jobs.c.job_id == info.job_id).values(**facts))
                return before or ""

            before = self._begin(note)
            if before and before != name:
                (self._folder / before).unlink(missing_ok=True)

        await self._in_worker(work)

    async def outcomes(self, job_id: str) -> list[ClientOutcome]:
        """Each client's outcome in each closed round of a job, by round and client."""
        query = (
            sa.select(t.outcomes)
            .where(t.outcomes.c.job_id == job_id)
            .order_by(t.outcomes.c.round_num, t.outcomes.c.client)
        )
        return [outcome_from(row) for row in await self._reading(lambda db: db.execute(query).all())]

    async def note_action(self, operator: str, action: str, job_id: str) -> None:
        """Keep what an operator did, for `kernfed-coordinator actions`; submissions are noted by `submit`."""
        await self._transaction(lambda db: _note_action(db, operator, action, job_id))

    async def load_checkpoint(self, job_id: str) -> Resumption | None:
        """The last checkpoint of a job; None where no round was closed.

        Raises:
            JobError: Its file is gone or damaged.
        """

        def work() -> Resumption | None:
            query = sa.select(t.checkpoints).where(t.checkpoints.c.job_id == job_id)
            row = self._begin(lambda db: db.execute(query).one_or_none(), reads=True)
            if row is None:
                return None
            if not row.file:
                return Resumption(Checkpoint(row.round_num, {}), row.answers)
            return Resumption(read_checkpoint(self._folder / row.file, row.round_num, row.sha256), row.answers)

        return await self._in_worker(work)

    async def copy_checkpoint(self, job_id: str, to: Path) -> None:
        """Copy the file of a job's checkpoint, if it has one.

        Raises:
            JobError: The file is gone or damaged; nothing is copied.
            DiskFullError: There is no space.
        """

        def work() -> None:
            query = sa.select(t.checkpoints).where(t.checkpoints.c.job_id == job_id)
            row = self._begin(lambda db: db.execute(query).one_or_none(), reads=True)
            if row is not None and row.file:
                copy_checkpoint(self._folder / row.file, to, row.round_num, row.sha256)

        await self._in_worker(work)

    async def drop_checkpoint(self, job_id: str) -> None:
        """Forget the checkpoint of a job that is over."""

        def work() -> None:
            same_job = t.checkpoints.c.job_id == job_id

            def forget(db: Connection) -> str | None:
                name = db.execute(sa.select(t.checkpoints.c.file).where(same_job)).scalar()
                db.execute(t.checkpoints.delete().where(same_job))
                return name

            if name := self._begin(forget):
                (self._folder / name).unlink(missing_ok=True)

        await self._in_worker(work)

    async def save_clients(self, clients: Sequence[ClientInfo]) -> None:
        """Remember clients as they are now."""

        def work(db: Connection) -> None:
            for client in clients:
                values = client_columns(client)
                same = t.clients.c.name == client.name
                if db.execute(t.clients.update().where(same).values(**values)).rowcount == 0:
                    db.execute(t.clients.insert().values(name=client.name, **values))

        await self._transaction(work)

    async def clients(self) -> dict[str, ClientInfo]:
        """Clients seen so far by name, as when last noted; none of them connected."""
        rows = await self._reading(lambda db: db.execute(sa.select(t.clients).order_by(t.clients.c.name)).all())
        return {row.name: client_from(row) for row in rows}

    async def _transaction(self, work: Callable[[Connection], T]) -> T:
        return await self._in_worker(lambda: self._begin(work))

    async def _reading(self, work: Callable[[Connection], T]) -> T:
        return await self._in_worker(lambda: self._begin(work, reads=True))

    async def _in_worker(self, work: Callable[[], T]) -> T:
        """Run in the worker thread; shielded, so that a caller who is cancelled leaves no half-done file."""
        future = asyncio.get_running_loop().run_in_executor(self._worker, _translated, work)
        return await asyncio.shield(future)

    def _begin(self, work: Callable[[Connection], T], *, reads: bool = False) -> T:
        """One transaction: the events noted so far, then `work`; which only reads does so even if those do not fit."""
        batch = self._take()
        try:
            with self._engine.begin() as db:
                if batch:
                    self._insert_events(db, batch)
                return work(db)
        except BaseException as err:
            with self._lock:
                self._pending.extendleft(reversed(batch))
            if not (reads and batch and isinstance(err, sa.exc.SQLAlchemyError | OSError) and is_full(err)):
                raise
        with self._engine.begin() as db:
            return work(db)

    def _insert_events(self, db: Connection, batch: Sequence[tuple[str, NumberedEvent]]) -> None:
        # A commit whose acknowledgement was lost is made again: what is there already counts once.
        insert = _INSERTS[db.dialect.name](t.events).on_conflict_do_nothing()
        db.execute(insert, [event_columns(job_id, event) for job_id, event in batch])

    def _take(self) -> list[tuple[str, NumberedEvent]]:
        with self._lock:
            batch = list(self._pending)
            self._pending.clear()
        return batch

    def _flush_now(self) -> None:
        self._begin(lambda _: None)

    def _flush_soon(self) -> None:
        self._flush_timer = None
        if not self._closed:
            self._worker.submit(self._flush_in_background)

    def _flush_in_background(self) -> None:
        with self._lock:
            if not self._pending:
                return
        try:
            self._flush_now()
        except (sa.exc.SQLAlchemyError, OSError) as err:
            # The events stay queued; the next statement tries again, and its caller hears of the fault.
            log.error("events not stored", error=str(err))

    def _create(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._held.take()
        bring_up_to_date(self._engine)
        with self._engine.begin() as db:
            unfinished = sa.select(t.jobs.c.job_id).where(_UNFINISHED)
            db.execute(t.checkpoints.delete().where(t.checkpoints.c.job_id.not_in(unfinished)))
            keep = set(db.execute(sa.select(t.checkpoints.c.file)).scalars())
        remove_orphans(self._folder, keep)


_INSERTS: Final[Mapping[str, Callable[[sa.Table], Any]]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def _note_action(db: Connection, operator: str, action: str, job_id: str) -> None:
    now = datetime.now(UTC).timestamp()
    db.execute(t.operator_actions.insert().values(time=now, operator=operator, action=action, job_id=job_id))


def _translated(work: Callable[[], T]) -> T:
    try:
        return work()
    except (sa.exc.SQLAlchemyError, OSError) as err:
        text = str(err.orig) if isinstance(err, sa.exc.DBAPIError) else str(err)
        if is_full(err):
            raise DiskFullError(f"the coordinator's disk is full ({text}); free some space on it") from err
        raise UnavailableError(f"the coordinator's store cannot be used: {text}; check its disk and database") from err
