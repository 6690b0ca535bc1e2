"""A coordinator that is told to stop closes the rounds that can be closed in time, and the next life goes on."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest

from kernfed.errors import UnavailableError
from kernfed.federation.events import EventKind, JobState
from kernfed.methods.ridge.messages import GradientDescentRequest, LocalSolveRequest
from kernfed_testing.federation import Ended, Federation
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.nodes import until
from kernfed_testing.worlds.gate import Gate

AB = ["a", "b"]


async def stopping(fed: Federation) -> asyncio.Future[None]:
    """Tell the coordinator to stop; returns once it has begun to."""
    begun: asyncio.Future[None] = asyncio.ensure_future(fed.coordinator.stop())
    await until(lambda: fed.app._stop_by is not None)
    return begun


def opened(ended: Ended) -> Counter[int]:
    return Counter(e.round_num for e in ended.of(EventKind.ROUND_OPENED))


async def test_the_open_round_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the answer still under way, keeps the round, takes no new job, and says goodbye after that."""
    gate = Gate(monkeypatch, GradientDescentRequest, "b")
    async with Federation(tmp_path, AB, drain_s=LIMIT_S) as fed:
        text = fed.job("fedavg", rounds=3, cohort_min_clients=2)
        job = await fed.submit(text)
        await gate.wait_reached()
        gone = await stopping(fed)
        with pytest.raises(UnavailableError, match="shutting down"):
            await fed.submit(fed.job("probe"))
        assert fed.sessions.present() == set(AB)
        begun = time.monotonic()
        gate.open()
        await gone
        assert time.monotonic() - begun < LIMIT_S / 2
        await fed.start_coordinator()
        await fed.wait_connected(*AB)
        ended = await fed.end(job.job_id)
        again = await fed.run(text)
        assert await fed.model_sha256(ended) == await fed.model_sha256(again)
    assert opened(ended) == {1: 1, 2: 1, 3: 1}
    notes = [e.message for e in ended.of(EventKind.NOTE)]
    assert "the coordinator stops; the job goes on behind round 1 when it is back" in notes
    assert "the coordinator was restarted" in notes


async def test_a_round_that_takes_longer_is_left_to_the_next_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator is gone within its grace, and the job ends as it would have."""
    gate = Gate(monkeypatch, GradientDescentRequest, "b")
    async with Federation(tmp_path, AB, drain_s=2) as fed:
        text = fed.job("fedavg", rounds=2, cohort_min_clients=2)
        job = await fed.submit(text)
        await gate.wait_reached()
        begun = time.monotonic()
        await fed.coordinator.stop()
        assert time.monotonic() - begun < LIMIT_S / 2
        gate.open()
        await fed.start_coordinator()
        await fed.wait_connected(*AB)
        ended = await fed.end(job.job_id)
        again = await fed.run(text)
        assert await fed.model_sha256(ended) == await fed.model_sha256(again)
    assert opened(ended) == {1: 2, 2: 1}


async def test_jobs_that_only_wait_hold_nothing_up(tmp_path: Path) -> None:
    """Neither one that is queued nor one below its quorum keeps the coordinator from going at once."""
    async with Federation(tmp_path, AB, drain_s=LIMIT_S, proxied=["b"], heartbeat_s=(0.3, LIMIT_S)) as fed:
        line = fed.proxies["b"]
        line.stall()
        job = await fed.submit(fed.job("probe", rounds=2, cohort_min_clients=2, cohort_deadline_s=0.3))
        await fed.event(job.job_id, EventKind.STEP_ASKED)
        queued = await fed.submit(fed.job("probe", rounds=1))
        line.refuses = True
        line.cut()
        await fed.event(job.job_id, EventKind.WAITING, message="waiting: 1 of 2 clients (missing: b)")
        begun = time.monotonic()
        await fed.coordinator.stop()
        assert time.monotonic() - begun < LIMIT_S / 2
        line.refuses = False
        line.resume()
        await fed.start_coordinator()
        await fed.wait_connected(*AB)
        for waiting in (job, queued):
            assert (await fed.end(waiting.job_id)).info.state is JobState.SUCCEEDED


async def test_a_job_that_ends_while_the_coordinator_stops_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A method of one step has no round to stop behind; its artifacts are written before the coordinator goes."""
    gate = Gate(monkeypatch, LocalSolveRequest, "a")
    async with Federation(tmp_path, AB, drain_s=LIMIT_S) as fed:
        job = await fed.submit(fed.job("dkrr"))
        await gate.wait_reached()
        gone = await stopping(fed)
        gate.open()
        await gone
        await fed.start_coordinator()
        await fed.wait_connected(*AB)
        ended = await fed.end(job.job_id)
        assert ended.info.state is JobState.SUCCEEDED
        assert await fed.model_sha256(ended)
    assert opened(ended) == {1: 1}
