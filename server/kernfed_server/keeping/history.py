"""A live job's history: events get their numbers here, go to the store, and to everyone who watches."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from kernfed.errors import KernfedError
from kernfed.federation.events import EventKind, JobEvent
from kernfed.jobs.info import JobUpdate, NumberedEvent
from kernfed_server.keeping.batches import Batch, Told, pack
from kernfed_server.keeping.store import Store

PASSING: Final = frozenset({EventKind.STEP_ASKED, EventKind.CLIENT_ANSWERED})
"""Kinds that only those who watch at the moment are told of: a fast job has thousands of them per second."""

MAX_SEQUENCE: Final = 1 << 31
"""No job has as many events; a watcher may name any number."""

KEPT_UPDATES: Final = 10_000
KEPT_BYTES: Final = 4 << 20
"""Of a job, for all its watchers together; whoever is further behind goes on from the store."""

_BATCH_UPDATES = 256
_PACE_S: Final = (0.02, 0.004, 1.0)
"""From one batch to the next: at least, for each watcher, at most. So a job spends a few hundredths of a processor on
up to 250 watchers."""


class Subscription:
    """One watcher's place in the batches of a history."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.wake = asyncio.Event()
        """Set when there is something new."""
        self.missed = False
        """Whether the watcher fell so far behind that batches it had not seen are gone."""
        self.rejoin()

    def rejoin(self) -> None:
        """Go on with what happens from now on; what was before is in the store."""
        self._history.seal()
        self._next, self.missed = self._history.num_sealed, False

    async def following(self, seen: int) -> AsyncGenerator[Batch, None]:
        """Batches that are new to a watcher who has seen the events up to `seen`; ends with the job, or as `missed`.

        Raises:
            UnavailableError: The coordinator stops.
        """
        history = self._history
        while True:
            if self._next < history.num_sealed:
                batch = history.sealed(self._next)
                if batch is None:
                    self.missed = True
                    return
                self._next += 1
                if (new := batch.after(seen)) is not None:
                    yield new
            elif (pause_s := history.until_next_batch()) is not None:
                if pause_s <= 0:
                    history.seal()
                else:
                    await history.pause(pause_s)
            elif history.ended:
                if history.error is not None:
                    raise history.error
                return
            else:
                self.wake.clear()
                await self.wake.wait()


class History:
    """Events of one live job."""

    def __init__(self, store: Store, job_id: str, last_sequence: int = 0, *, kept_updates: int = KEPT_UPDATES) -> None:
        self._store = store
        self._job_id = job_id
        self._sequence = last_sequence
        self._kept_updates = kept_updates
        self._subscriptions: list[Subscription] = []
        self._pending: list[Told] = []
        """What is in no batch yet."""
        self._batches: deque[Batch] = deque()
        self._kept = (0, 0)
        """Updates and bytes in the batches."""
        self._next_batch_at = 0.0
        self._over = asyncio.Event()
        self.num_sealed = 0
        """Batches so far."""
        self.error: KernfedError | None = None

    @property
    def last_sequence(self) -> int:
        """Number of the last event."""
        return self._sequence

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self._over.is_set()

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
        """Tell the watchers; what it costs the job does not depend on how many they are, or how fast they read."""
        if not self._subscriptions:
            return
        self._pending.append(Told(self._sequence, update))
        if len(self._pending) == 1:
            self._wake()
        elif len(self._pending) >= _BATCH_UPDATES:
            self.seal()

    def end(self, error: KernfedError | None = None) -> None:
        """Let the watchers go: the job is over, or the coordinator stops."""
        self.error = error
        self.seal()
        self._over.set()
        self._wake()

    @contextmanager
    def subscribe(self) -> Iterator[Subscription]:
        """Get what happens from now on."""
        subscription = Subscription(self)
        self._subscriptions.append(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.remove(subscription)
            if not self._subscriptions:
                self._pending.clear()
                self._batches.clear()
                self._kept = (0, 0)

    def until_next_batch(self) -> float | None:
        """Seconds until what is pending may become a batch; None: nothing is pending."""
        if not self._pending:
            return None
        return 0.0 if self.ended else self._next_batch_at - asyncio.get_running_loop().time()

    async def pause(self, seconds: float) -> None:
        """Wait, unless the history ends before."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()

    def seal(self) -> None:
        """Make batches of what is pending."""
        if not self._pending:
            return
        for batch in pack(self._pending):
            self._batches.append(batch)
            self.num_sealed += 1
            self._count(batch, 1)
        self._pending.clear()
        while len(self._batches) > 1 and (self._kept[0] > self._kept_updates or self._kept[1] > KEPT_BYTES):
            self._count(self._batches.popleft(), -1)
        least, each, most = _PACE_S
        pace_s = min(max(least, each * len(self._subscriptions)), most)
        self._next_batch_at = asyncio.get_running_loop().time() + pace_s

    def sealed(self, number: int) -> Batch | None:
        """A batch by its number, from 0; None: it is gone."""
        place = number - (self.num_sealed - len(self._batches))
        return self._batches[place] if place >= 0 else None

    def _count(self, batch: Batch, sign: int) -> None:
        updates, num_bytes = self._kept
        self._kept = (updates + sign * len(batch.told), num_bytes + sign * batch.message.ByteSize())

    def _wake(self) -> None:
        for subscription in self._subscriptions:
            subscription.wake.set()
