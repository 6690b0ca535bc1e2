"""A live job's history: events get their numbers here, go to the store, and to everyone who watches."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from kernfed.errors import BusyError, KernfedError
from kernfed.federation.events import EventKind, JobEvent
from kernfed.jobs.info import JobUpdate, NumberedEvent
from kernfed_server.keeping.store import Store

PASSING: Final = frozenset({EventKind.STEP_ASKED, EventKind.CLIENT_ANSWERED})
"""Kinds that only those who watch at the moment are told of: a fast job has thousands of them per second."""

WATCHER_LIMIT = 10_000
"""Updates that may wait for one watcher."""


@dataclass(frozen=True, slots=True)
class _Queued:
    position: int
    """Sequence number that the history had reached."""
    update: JobUpdate


class Subscription:
    """Messages that one watcher has not had yet."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._queue: deque[_Queued] = deque()
        self._wake = asyncio.Event()
        self._ended = False
        self._error: KernfedError | None = None

    def put(self, queued: _Queued) -> None:
        """Add an update; a watcher who is too slow is given up, so that the job is not held back."""
        if self._error is not None:
            return
        if len(self._queue) >= self._limit:
            self._queue.clear()
            self._error = BusyError(
                f"this watcher fell more than {self._limit} events behind and was let go; watch again, from the last "
                "event seen on"
            )
        else:
            self._queue.append(queued)
        self._wake.set()

    def end(self, error: KernfedError | None) -> None:
        """Nothing more will come."""
        self._ended = True
        self._error = self._error or error
        self._wake.set()

    async def next(self, after: int) -> JobUpdate | None:
        """The next update that a watcher who has seen the events up to `after` does not know; None at the end.

        Raises:
            BusyError: The watcher was too slow.
            UnavailableError: The coordinator stops.
        """
        while True:
            while self._queue:
                queued = self._queue.popleft()
                event = queued.update.event
                # A passing event is as old as the numbered one before it.
                if event is None or (event.sequence > after if event.sequence else queued.position >= after):
                    return queued.update
                if queued.update.job is not None:
                    return JobUpdate(job=queued.update.job)
            if self._error is not None:
                raise self._error
            if self._ended:
                return None
            self._wake.clear()
            await self._wake.wait()


class History:
    """Events of one live job."""

    def __init__(
        self,
        store: Store,
        job_id: str,
        last_sequence: int = 0,
        *,
        watcher_limit: int = WATCHER_LIMIT,
    ) -> None:
        self._store = store
        self._job_id = job_id
        self._sequence = last_sequence
        self._limit = watcher_limit
        self._subscriptions: list[Subscription] = []
        self._ended = False
        self._error: KernfedError | None = None

    def note(self, event: JobEvent) -> None:
        """Store an event, unless it is a passing one, and tell the watchers."""
        if event.kind in PASSING:
            if self._subscriptions:
                self.tell(JobUpdate(NumberedEvent(0, datetime.now(UTC), event)))
            return
        self.tell(JobUpdate(self.store(event)))

    def store(self, event: JobEvent) -> NumberedEvent:
        """Number and store an event without telling of it yet."""
        self._sequence += 1
        numbered = NumberedEvent(self._sequence, datetime.now(UTC), event)
        self._store.add_event(self._job_id, numbered)
        return numbered

    def tell(self, update: JobUpdate) -> None:
        """Tell the watchers."""
        queued = _Queued(self._sequence, update)
        for subscription in self._subscriptions:
            subscription.put(queued)

    def end(self, error: KernfedError | None = None) -> None:
        """Let the watchers go: the job is over, or the coordinator stops."""
        self._ended, self._error = True, error
        for subscription in self._subscriptions:
            subscription.end(error)

    @contextmanager
    def subscribe(self) -> Iterator[Subscription]:
        """Get what happens from now on."""
        subscription = Subscription(self._limit)
        if self._ended:
            subscription.end(self._error)
        self._subscriptions.append(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.remove(subscription)
