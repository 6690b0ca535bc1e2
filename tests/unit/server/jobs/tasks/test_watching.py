"""What watchers of a job get."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from kernfed.federation.events import EventKind, JobState
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.worlds.job_world import world


@pytest.mark.redteam
@pytest.mark.parametrize("number", [10_000, 2**31, 2**63, 2**64 - 1])
async def test_a_watcher_from_a_number_that_is_not_reached(tmp_path: Path, number: int) -> None:
    """It gets what comes, and the job; of a job that is over, the job alone."""
    async with world(tmp_path, "a") as w:
        job = await w.submit("demo", ["a"], rounds=1)
        seen: list[EventKind] = []
        state = None
        async with asyncio.timeout(LIMIT_S), contextlib.aclosing(w.updates(job.job_id, number)) as updates:
            async for update in updates:
                w.script.go("demo")
                seen += [update.event.event.kind] if update.event else []
                state = update.job.state if update.job else state
        assert (EventKind.ROUND_CLOSED in seen, state) == (True, JobState.SUCCEEDED)
        after = [update async for update in w.updates(job.job_id, number)]
        assert [update.event for update in after] == [None, None]


@pytest.mark.redteam
async def test_two_hundred_watchers_of_which_most_read_nothing(tmp_path: Path) -> None:
    """The job ends as it does alone, and those that read get all of it."""
    async with world(tmp_path, "a") as w, contextlib.AsyncExitStack() as stack:
        w.script.free = True
        job = await w.submit("demo", ["a"], rounds=50)
        for _ in range(200):
            idle = await stack.enter_async_context(contextlib.aclosing(w.runs.watch(job.job_id)))
            await anext(idle)  # and never again
        assert (await w.finished(job.job_id)).state is JobState.SUCCEEDED
        rounds = [u.event.event.round_num async for u in w.updates(job.job_id) if u.event is not None]
        assert max(rounds) == 50
