"""Watchers of a job: what is stored, then what comes, each event once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kernfed.errors import UnavailableError
from kernfed.federation.events import EventKind, JobEvent, JobState
from kernfed.jobs.info import JobInfo, JobUpdate, NumberedEvent
from kernfed_server.jobs.tasks.manager import RunLimits
from kernfed_server.keeping.batches import Batch, Told, pack
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.worlds.job_world import World, world


def closed(num: int) -> Callable[[JobUpdate], bool]:
    return lambda u: bool(u.event and u.event.event.kind is EventKind.ROUND_CLOSED and u.event.event.round_num == num)


async def test_watchers_see_stored_and_live_events_once_each(tmp_path: Path) -> None:
    """One who comes late, and one who asks from the middle, see the same numbers."""
    async with world(tmp_path, "a") as w:
        job = await w.submit("demo", ["a"])
        w.script.go("demo")
        await w.until(job.job_id, closed(1))
        live = asyncio.Semaphore(0)
        late = asyncio.ensure_future(collect(w, job.job_id, 1, live))
        middle = asyncio.ensure_future(collect(w, job.job_id, 4, live))
        async with asyncio.timeout(LIMIT_S):
            await live.acquire()
            await live.acquire()
        w.script.go("demo", 2)
        numbers, kinds, last = await late
        assert numbers == list(range(1, len(numbers) + 1))
        assert (await middle)[0] == numbers[3:]
        assert kinds[-1] is EventKind.STATE
        assert EventKind.CLIENT_ANSWERED in kinds
        assert last.state is JobState.SUCCEEDED
        replayed, kinds, _ = await collect(w, job.job_id, 1)
        assert replayed == numbers
        assert EventKind.CLIENT_ANSWERED not in kinds


async def collect(w: World, job_id: str, first: int, live: Any = None) -> tuple[list[int], list[EventKind], JobInfo]:
    numbers: list[int] = []
    kinds: list[EventKind] = []
    job, bare = None, 0
    async with asyncio.timeout(LIMIT_S):
        async for update in w.updates(job_id, first):
            job = update.job or job
            bare += update.event is None
            if live and bare == 2:  # the stored events are through
                live.release()
                live = None
            if update.event:
                kinds.append(update.event.event.kind)
                numbers += [update.event.sequence] if update.event.sequence else []
    assert job is not None
    return numbers, kinds, job


async def test_a_slow_watcher_holds_nothing_back_and_misses_no_stored_event(tmp_path: Path) -> None:
    """It gets what it missed from the store, in order and once, and then the job as it is."""
    async with world(tmp_path, "a", limits=RunLimits(settle_s=0, kept_updates=5)) as w:
        job = await w.submit("demo", ["a"], rounds=20)
        async with contextlib.aclosing(w.updates(job.job_id)) as updates:
            await anext(updates)
            w.script.go("demo", 5)
            seen = [update async for update in until_closed(updates, 1)]
            w.script.go("demo", 15)
            while not (await w.runs.get(job.job_id)).state.finished:
                await asyncio.sleep(0.01)
            seen += [update async for update in updates]
        numbers = [u.event.sequence for u in seen if u.event and u.event.sequence]
        assert numbers == list(range(1, len(numbers) + 1))
        assert sum(u.event.event.kind is EventKind.ROUND_CLOSED for u in seen if u.event) == 20
        last = seen[-1].job
        assert last is not None
        assert last.state is JobState.SUCCEEDED


async def until_closed(updates: AsyncGenerator[JobUpdate, None], num: int) -> AsyncGenerator[JobUpdate, None]:
    """Updates up to the close of a round."""
    async for update in updates:
        yield update
        if closed(num)(update):
            return


async def test_many_watchers_get_the_same_messages(tmp_path: Path) -> None:
    """A batch is encoded once, and is bounded in number and bytes; none of them keeps updates of its own."""
    async with world(tmp_path, "a") as w:
        job = await w.submit("demo", ["a"], rounds=30)
        begun = asyncio.Semaphore(0)

        async def messages() -> list[int]:
            found = []
            async with contextlib.aclosing(w.runs.watch(job.job_id)) as batches:
                async for batch in batches:
                    found.append(id(batch.message))
                    kept.append(batch)
                    if len(found) == 3:
                        begun.release()
            return found

        kept: list[Batch] = []
        watchers = [asyncio.ensure_future(messages()) for _ in range(30)]
        async with asyncio.timeout(LIMIT_S):
            for _ in watchers:
                await begun.acquire()
            w.script.go("demo", 30)
            seen = await asyncio.gather(*watchers)
        live = {m for found in seen for m in found[3:-1]}
        assert all(found[3:-1] == seen[0][3:-1] for found in seen)
        assert 0 < len(live) < 30


def test_operators_of_before_get_one_update_a_message_without_what_is_past() -> None:
    """Of passing events those behind the last stored one are told."""
    passing = NumberedEvent(0, datetime.now(UTC), JobEvent(EventKind.STEP_ASKED, 1))
    stored = NumberedEvent(7, datetime.now(UTC), JobEvent(EventKind.ROUND_CLOSED, 1))
    (batch,) = pack([Told(6, JobUpdate(passing)), Told(7, JobUpdate(stored)), Told(7, JobUpdate(passing))])
    assert [message.event.sequence for message in batch.singly()] == [7, 0]
    assert [message.event.sequence for message in batch.message.updates] == [0, 7, 0]
    later = batch.after(7)
    assert later is not None
    assert [u.event.sequence for u in later.updates if u.event] == [0]
    assert batch.after(8) is None


def test_a_batch_fits_a_message() -> None:
    """Many long updates become several batches, none lost."""
    long = JobEvent(EventKind.NOTE, message="x" * 100_000)
    told = [Told(i, JobUpdate(NumberedEvent(i, datetime.now(UTC), long))) for i in range(1, 11)]
    batches = list(pack(told))
    assert [t for batch in batches for t in batch.told] == told
    assert max(batch.message.ByteSize() for batch in batches) < 1 << 20


async def test_watchers_are_told_when_the_coordinator_stops(tmp_path: Path) -> None:
    """They do not wait for a job that cannot go on now."""
    async with world(tmp_path, "a") as w:
        job = await w.submit("demo", ["a"])
        watcher = asyncio.ensure_future(collect(w, job.job_id, 1))
        await w.script.wait_started(1)
        w.runs.drain()
        with pytest.raises(UnavailableError, match="shutting down"):
            await watcher
        with pytest.raises(UnavailableError, match="shutting down"):
            await w.submit("more", ["a"])
