"""Jobs whose disk is full: they wait, say so, go on when there is space, or give up with what they have."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from safetensors.numpy import load_file
from sqlalchemy.engine import Engine

from kernfed import files
from kernfed.errors import UnavailableError
from kernfed.federation.events import EventKind, JobEvent, JobState
from kernfed.jobs.info import JobUpdate
from kernfed_server.keeping.disk import until_kept
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.worlds.job_world import world


class Disk:
    """The disk below the coordinator's data folder and database.

    `full` names what finds no space: a folder, or `database`; empty: nothing.
    """

    def __init__(self) -> None:
        self.full = ""

    def sync(self, handle: int) -> None:
        if self.full and self.full in Path(os.readlink(f"/proc/self/fd/{handle}")).parts:
            raise files.no_space()

    def execute(self, _connection: object, _cursor: object, statement: str, *_: object) -> None:
        if self.full == "database" and statement.startswith("INSERT INTO events"):
            raise files.no_space()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """A disk that a test can fill; it has space at first."""
    disk = Disk()
    monkeypatch.setattr(os, "fsync", disk.sync)
    sa.event.listen(Engine, "before_cursor_execute", disk.execute)
    yield disk
    sa.event.remove(Engine, "before_cursor_execute", disk.execute)


def waits_for_the_disk(update: JobUpdate) -> bool:
    event = update.event
    return event is not None and event.event.kind is EventKind.WAITING and "disk full" in event.event.message


class Told(list[JobEvent]):
    def event(self, event: JobEvent) -> None:
        self.append(event)


async def test_a_checkpoint_waits_for_space(tmp_path: Path, disk: Disk) -> None:
    """The job says what it waits for, keeps its last checkpoint, leaves no half file, and ends as it would have."""
    async with world(tmp_path, "a", "b") as w:
        job = await w.submit("demo", ["a", "b"])
        w.script.go("demo")
        await w.until(job.job_id, lambda u: bool(u.event and u.event.event.kind is EventKind.ROUND_CLOSED))
        kept = await w.store.load_checkpoint(job.job_id)
        assert kept is not None
        disk.full = "checkpoints"
        w.script.go("demo", 2)
        await w.until(job.job_id, waits_for_the_disk)
        info = await w.runs.get(job.job_id)
        assert (info.state, info.waiting_for) == (JobState.RUNNING, "waiting: disk full: the checkpoint of round 2")
        still = await w.store.load_checkpoint(job.job_id)
        assert still is not None
        assert still.checkpoint.round_num == kept.checkpoint.round_num == 1
        assert len(list((tmp_path / "checkpoints").iterdir())) == 1
        disk.full = ""
        done = await w.finished(job.job_id)
        assert (done.state, done.round_num, done.waiting_for) == (JobState.SUCCEEDED, 3, "")


async def test_a_job_cannot_wait_for_space_longer_than_it_may(tmp_path: Path, disk: Disk) -> None:
    """After `cohort.wait_s` it fails with a reason that says why, and leaves its last good state."""
    async with world(tmp_path, "a") as w:
        job = await w.submit("demo", ["a"], wait_s=0.5)
        w.script.go("demo")
        await w.until(job.job_id, lambda u: bool(u.event and u.event.event.kind is EventKind.ROUND_CLOSED))
        await w.store.load_checkpoint(job.job_id)
        disk.full = "checkpoints"
        w.script.go("demo", 2)
        done = await w.finished(job.job_id)
        assert (done.state, done.error_reason) == (JobState.FAILED, "DISK_FULL")
        assert "the checkpoint of round 2; gave up after" in done.error_message
        left = load_file(w.runs.artifact_folder(job.job_id) / "checkpoint.safetensors")
        np.testing.assert_array_equal(left["total"], [1.0, 1.0])


async def test_artifacts_wait_for_space(tmp_path: Path, disk: Disk) -> None:
    """None appears before all are there; then they are what they would have been."""
    async with world(tmp_path, "a") as w:
        w.script.free = True
        disk.full = "artifacts.new"
        job = await w.submit("demo", ["a"])
        await w.until(job.job_id, waits_for_the_disk)
        assert (await w.runs.get(job.job_id)).waiting_for == "waiting: disk full: the artifacts"
        assert await w.runs.artifacts(job.job_id) == []
        disk.full = ""
        assert (await w.finished(job.job_id)).state is JobState.SUCCEEDED
        record = json.loads((w.runs.artifact_folder(job.job_id) / "job.json").read_text())
        assert record["participation"] == {"a": {"rounds_answered": 3, "rounds_failed": 0, "rounds_missed": 0}}


async def test_artifacts_that_never_fit_fail_the_job(tmp_path: Path, disk: Disk) -> None:
    """The operator reads that the artifacts are missing, and why; the next job is not held up."""
    async with world(tmp_path, "a") as w:
        w.script.free = True
        disk.full = "artifacts.new"
        job = await w.submit("demo", ["a"], wait_s=0.3)
        done = await w.finished(job.job_id)
        assert (done.state, done.error_reason) == (JobState.FAILED, "DISK_FULL")
        assert (await w.store.find_job(job.job_id)).state is JobState.FAILED


async def test_a_full_database_holds_the_job_and_loses_no_event(tmp_path: Path, disk: Disk) -> None:
    """Events wait in memory; `watch` shows them all the same, and afterwards they are stored."""
    async with world(tmp_path, "a") as w:
        job = await w.submit("demo", ["a"], rounds=2)
        await w.script.wait_started(1)
        disk.full = "database"
        w.script.go("demo", 2)
        await w.until(job.job_id, waits_for_the_disk)
        disk.full = ""
        assert (await w.finished(job.job_id)).state is JobState.SUCCEEDED
        kinds = [e.event.kind for e in await w.store.events(job.job_id)]
        assert kinds.count(EventKind.ROUND_CLOSED) == 2
        assert [e.sequence for e in await w.store.events(job.job_id)] == list(range(1, len(kinds) + 1))


async def test_a_cancelled_job_does_not_wait_for_the_disk(tmp_path: Path, disk: Disk) -> None:
    """Cancelling ends the wait for a checkpoint that does not fit."""
    async with world(tmp_path, "a") as w:
        w.script.free = True
        disk.full = "checkpoints"
        job = await w.submit("demo", ["a"])
        await w.until(job.job_id, waits_for_the_disk)
        assert (await w.runs.cancel(job.job_id, "bob")).state is JobState.CANCELLED


async def test_other_faults_of_the_disk_are_told_by_their_own_words() -> None:
    """A wait names the cause once; an error that is no fault of the disk is not waited for."""
    told = Told()
    faults: list[Exception] = [OSError(errno.EROFS, "Read-only file system")] * 2

    async def attempt() -> int:
        if faults:
            raise faults.pop()
        return 7

    assert await until_kept(attempt, "the file", told, limit_s=LIMIT_S, round_num=2) == 7
    text = "waiting: the file cannot be written: [Errno 30] Read-only file system"
    assert told == [JobEvent(EventKind.WAITING, 2, message=text), JobEvent(EventKind.WAITING, 2)]

    async def breaks() -> None:
        raise ValueError("a fault of the program")

    with pytest.raises(ValueError, match="program"):
        await until_kept(breaks, "the file", told, limit_s=LIMIT_S)
    faults += [UnavailableError("no connection")] * 9
    with pytest.raises(UnavailableError, match="no connection; gave up"):
        await until_kept(attempt, "the file", told, limit_s=0)
