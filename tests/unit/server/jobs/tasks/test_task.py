"""A job's task from its start to its end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kernfed.federation.events import JobState
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.worlds.job_world import world


@pytest.mark.redteam
async def test_a_job_is_cancelled_while_its_submission_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The moment between start and workflow loses no cancel: the job ends, and its clients are free."""
    async with world(tmp_path, "a") as w:
        reading, go = asyncio.Event(), asyncio.Event()

        async def slow(_job_id: str) -> None:
            reading.set()
            await go.wait()

        with monkeypatch.context() as patch:
            patch.setattr(w.store, "submission", slow)
            job = await w.submit("demo", ["a"])
            async with asyncio.timeout(LIMIT_S):
                await reading.wait()
                ended = await w.runs.cancel(job.job_id, "ann")
        assert ended.state is JobState.CANCELLED
        w.script.free = True
        assert (await w.finished((await w.submit("next", ["a"])).job_id)).state is JobState.SUCCEEDED
