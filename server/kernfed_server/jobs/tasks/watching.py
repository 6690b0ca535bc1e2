"""What a watcher of a job gets, in batches: the job, what is stored, and what comes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from kernfed.jobs.info import JobInfo, JobUpdate
from kernfed_server.jobs.tasks.task import ActiveJob
from kernfed_server.keeping.batches import Batch, Told, pack
from kernfed_server.keeping.store import Store

_PAGE: Final = 1000


async def watch_ended(info: JobInfo, store: Store, seen: int) -> AsyncGenerator[Batch, None]:
    """Batches for a watcher of a job that is over, who has seen the events up to `seen`."""
    yield _batch(info)
    async for batch in _replay(store, info.job_id, seen):
        yield batch
    yield _batch(info)


async def watch_live(active: ActiveJob, store: Store, seen: int) -> AsyncGenerator[Batch, None]:
    """Batches for a watcher of a job that is not over, who has seen the events up to `seen`.

    One that reads slowly holds nobody back: it gets the events that it missed from the store, then the job as it is.

    Raises:
        UnavailableError: The coordinator stops.
    """
    seen = min(seen, active.history.last_sequence)
    with active.history.subscribe() as subscription:
        yield _batch(active.info)
        while True:
            async for batch in _replay(store, active.info.job_id, seen):
                seen = batch.position
                yield batch
            yield _batch(active.info)
            async with contextlib.aclosing(subscription.following(seen)) as live:
                async for batch in live:
                    seen = max(seen, batch.position)
                    yield batch
            if not subscription.missed:
                break
            subscription.rejoin()
    yield _batch(active.info)


async def _replay(store: Store, job_id: str, seen: int) -> AsyncIterator[Batch]:
    while page := await store.events(job_id, seen + 1, _PAGE):
        for batch in pack(Told(event.sequence, JobUpdate(event)) for event in page):
            yield batch
        seen = page[-1].sequence


def _batch(info: JobInfo) -> Batch:
    return next(pack([Told(0, JobUpdate(job=info))]))
