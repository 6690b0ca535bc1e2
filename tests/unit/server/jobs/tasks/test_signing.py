"""Signatures for jobs that came without one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kernfed.errors import JobError
from kernfed.federation.events import JobState
from kernfed.pki.submission import sha256_of
from kernfed.v1 import task_pb2
from kernfed_testing.worlds.job_world import world


@pytest.mark.redteam
async def test_a_job_is_signed_once(tmp_path: Path) -> None:
    """Of signatures at the same time one counts, kept and told; one beside a cancel leaves the job cancelled."""
    async with world(tmp_path, "a") as w:
        job = await w.submit("demo", ["a"])
        signatures = [task_pb2.Submission(statement=bytes([number])) for number in range(4)]
        ended = await asyncio.gather(
            *(w.runs.sign(job.job_id, each, job.submitted_by) for each in signatures), return_exceptions=True
        )
        [counts] = [number for number, end in enumerate(ended) if not isinstance(end, JobError)]
        assert ["is signed already" in str(end) for end in ended].count(True) == 3
        assert (await w.runs.get(job.job_id)).submission_sha256 == sha256_of(signatures[counts]).hex()
        assert await w.store.submission(job.job_id) == signatures[counts]
        assert w.sessions.signed == [job.job_id]
        other = await w.submit("other", ["a"])
        await asyncio.gather(
            w.runs.cancel(other.job_id, "ann"),
            w.runs.sign(other.job_id, signatures[0], other.submitted_by),
            return_exceptions=True,
        )
        assert (await w.finished(other.job_id)).state is JobState.CANCELLED
