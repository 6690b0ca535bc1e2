"""Clients that are not there hold nobody up: one that left is waited for briefly, one that was revoked not at all."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kernfed.errors import RevokedError
from kernfed.federation.events import EventKind, JobState
from kernfed.pki.federation import FederationPki
from kernfed_testing.federation import Federation
from kernfed_testing.limits import LIMIT_S


async def test_a_job_goes_on_without_the_absent_and_the_revoked(tmp_path: Path) -> None:
    """With deadlines of an hour: c is killed and b revoked, and the rounds close on the quorum, which says why."""
    async with Federation(tmp_path, ["a", "b", "c"], processes=True) as fed:
        text = fed.job("fedavg", rounds=400, cohort_min_fraction=0.3, cohort_deadline_s=3600.0, cohort_grace_s=0.5)
        job = await fed.submit(text)
        await fed.event(job.job_id, EventKind.ROUND_CLOSED, round_num=2)
        await fed.clients["c"].kill()
        gone = await fed.event(job.job_id, EventKind.CLIENT_MISSING, client="c")
        waiting = await fed.event(job.job_id, EventKind.WAITING)
        assert waiting.message.startswith("waiting for c (not connected) until ")
        await asyncio.to_thread(FederationPki.open(tmp_path / "pki").revoke, "b", why="left the study")
        async with asyncio.timeout(LIMIT_S):
            ended = await fed.end(job.job_id)
        assert ended.info.state is JobState.SUCCEEDED
        assert len(ended.of(EventKind.CLIENT_MISSING, "c")) >= ended.info.round_num - gone.round_num
        [failed] = ended.of(EventKind.CLIENT_FAILED, "b")
        assert failed.reason == RevokedError.reason
        listed = {client.name: client.revoked_why for client in await fed.operator.clients() if client.revoked}
        assert listed == {"b": "left the study"}
