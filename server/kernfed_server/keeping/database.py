"""The coordinator's database: one thread for all statements, and a queue of events that go with the next of them.

Statements run in the order of the calls. Events are queued and go with the next statement, at the latest a moment
later, so a busy job costs one transaction per round. While the disk is full they wait in memory, and what is only read
is read all the same.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import sqlalchemy as sa
import structlog
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Connection, Engine

from kernfed.errors import BusyError, DiskFullError, UnavailableError
from kernfed.files import is_full, no_space
from kernfed.jobs.info import NumberedEvent
from kernfed_server.keeping import tables as t
from kernfed_server.keeping.database_lock import DatabaseLock
from kernfed_server.keeping.schema import check_there
from kernfed_server.keeping.store_rows import event_columns

log = structlog.get_logger(__name__)

T = TypeVar("T")

MAX_PENDING_EVENTS = 100_000
"""Events that may wait for the disk; more means that the disk does not follow, or is full."""

FLUSH_AFTER_S = 0.25
"""Events wait this long for a statement that takes them along, such as the checkpoint of their round."""

HOLD_EVERY_S = 5.0
LEAST_FREE_BYTES: Final = 1 << 20
"""Less on the disk of the data folder, and no checkpoint of use fits."""


class Database:
    """A database that this coordinator alone uses. End with `close`."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        """Connect when it is used first.

        Args:
            engine: As `kernfed_server.keeping.schema.make_engine` makes it.
            folder: The coordinator's data folder, whose disk must have space too.
        """
        self.engine = engine
        self._folder = folder
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._lock = threading.Lock()
        self._pending: deque[tuple[str, NumberedEvent]] = deque()
        self._flush_timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._held = DatabaseLock(engine)

    def take_lock(self) -> None:
        """Keep other coordinators out. Called in the worker thread.

        Raises:
            ConfigError: Another one uses the database.
        """
        self._held.take()

    async def close(self) -> None:
        """Write what is pending and close; once is enough, twice does no harm."""
        if self._closed:
            return
        self._closed = True
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        try:
            await self.in_worker(self._flush_now)  # a flush that is under way is waited for, and may fail
        except UnavailableError as err:
            if self._pending:
                log.error("events lost at shutdown", num_events=len(self._pending), error=str(err))
        finally:
            self._worker.submit(self._held.release)
            self._worker.shutdown(wait=True)
            self.engine.dispose()

    async def hold(self, told: Callable[[str], Awaitable[None]]) -> None:
        """See to it for ever that the database can be used, and by no other coordinator.

        Args:
            told: Called with what is wrong whenever that changes, and with an empty text once nothing is.

        Raises:
            ConfigError: Another coordinator uses it, which a restarted server would let in, or its tables are gone.
                What is written from now on could undo what that one wrote, or would be lost.
        """
        said = ""
        while True:
            try:
                await self.in_worker(self._look)
                wrong = ""
            except UnavailableError as err:
                wrong = str(err)
            if wrong != said:
                if wrong:
                    log.error("the store cannot be used", error=wrong)
                else:
                    log.info("the store can be used again")
                await told(wrong)
                said = wrong
            await asyncio.sleep(HOLD_EVERY_S)

    def _look(self) -> None:
        self.take_lock()
        check_there(self.engine)
        if shutil.disk_usage(self._folder).free < LEAST_FREE_BYTES:
            raise no_space()

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

    def waiting_events(self, job_id: str) -> list[NumberedEvent]:
        """Events of a job that are not written yet, in order. Called in the worker thread."""
        with self._lock:
            return [event for of, event in self._pending if of == job_id]

    async def transaction(self, work: Callable[[Connection], T]) -> T:
        """Run statements in one transaction."""
        return await self.in_worker(lambda: self.begin(work))

    async def reading(self, work: Callable[[Connection], T]) -> T:
        """Run statements that only read."""
        return await self.in_worker(lambda: self.begin(work, reads=True))

    async def in_worker(self, work: Callable[[], T]) -> T:
        """Run in the worker thread; shielded, so that a caller who is cancelled leaves no half-done file.

        Raises:
            DiskFullError: There is no space.
            UnavailableError: The database cannot be used.
        """
        future = asyncio.get_running_loop().run_in_executor(self._worker, _translated, work)
        return await asyncio.shield(future)

    def begin(self, work: Callable[[Connection], T], *, reads: bool = False) -> T:
        """One transaction: the events noted so far, then `work`. Called in the worker thread.

        Args:
            work: The statements.
            reads: Whether they only read, which they do even if the events do not fit.
        """
        batch = self._take()
        try:
            with self.engine.begin() as db:
                if batch:
                    _insert_events(db, batch)
                return work(db)
        except BaseException as err:
            with self._lock:
                self._pending.extendleft(reversed(batch))
            if not (reads and batch and isinstance(err, sa.exc.SQLAlchemyError | OSError) and is_full(err)):
                raise
        with self.engine.begin() as db:
            return work(db)

    def _take(self) -> list[tuple[str, NumberedEvent]]:
        with self._lock:
            batch = list(self._pending)
            self._pending.clear()
        return batch

    def _flush_now(self) -> None:
        self.begin(lambda _: None)

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


def _insert_events(db: Connection, batch: Sequence[tuple[str, NumberedEvent]]) -> None:
    # A commit whose acknowledgement was lost is made again: what is there already counts once.
    insert: Callable[[sa.Table], Any] = sqlite.insert
    if db.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql  # noqa: PLC0415  # takes long, and is loaded by then

        insert = postgresql.insert
    db.execute(insert(t.events).on_conflict_do_nothing(), [event_columns(job_id, event) for job_id, event in batch])


def _translated(work: Callable[[], T]) -> T:
    try:
        return work()
    except (sa.exc.SQLAlchemyError, OSError) as err:
        text = str(err.orig) if isinstance(err, sa.exc.DBAPIError) else str(err)
        if is_full(err):
            raise DiskFullError(f"the coordinator's disk is full ({text}); free some space on it") from err
        raise UnavailableError(f"the coordinator's store cannot be used: {text}; check its disk and database") from err
