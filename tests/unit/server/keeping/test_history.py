"""Watchers of a job: what is stored, then what comes, each event once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernfed.errors import (
    BusyError,
    UnavailableError,
)
from kernfed.federation.events import EventKind, JobState
from kernfed.jobs.info import JobInfo, JobUpdate
from kernfed_server.jobs.manager import RunLimits
from kernfed_testing.job_world import LIMIT_S, World, world


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
        async for update in w.runs.watch(job_id, first):
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


async def test_a_slow_watcher_is_let_go_and_the_job_is_not_held_back(tmp_path: Path) -> None:
    """It is told to watch again."""
    async with world(tmp_path, "a", limits=RunLimits(settle_s=0, watcher_limit=5)) as w:
        job = await w.submit("demo", ["a"], rounds=20)
        async with contextlib.aclosing(w.runs.watch(job.job_id)) as updates:
            await anext(updates)
            w.script.go("demo", 20)
            while not (await w.runs.get(job.job_id)).state.finished:
                await asyncio.sleep(0.01)
            with pytest.raises(BusyError, match="watch again"):
                async for _ in updates:
                    pass
        assert (await w.runs.get(job.job_id)).state is JobState.SUCCEEDED


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
