"""Jobs whose disk is full: they wait, say so, go on when there is space, or give up with what they have."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from kernfed.disk_space import is_full
from kernfed.errors import DiskFullError, UnavailableError
from kernfed.federation.events import EventKind, JobEvent, JobState
from kernfed.jobs.info import JobUpdate
from kernfed_server.jobs import task as job_task
from kernfed_server.keeping import artifacts, checkpoints, store
from kernfed_server.keeping.disk import until_kept
from kernfed_server.keeping.store_rows import event_columns
from kernfed_testing.job_world import world


def no_space(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def half_written(path: Path, state: object) -> None:
    """As `checkpoints._write` on a disk that fills up under it."""
    path.write_bytes(b"half")
    no_space()


def waits_for_the_disk(update: JobUpdate) -> bool:
    event = update.event
    return event is not None and event.event.kind is EventKind.WAITING and "disk full" in event.event.message


class Told(list[JobEvent]):
    def event(self, event: JobEvent) -> None:
        self.append(event)


async def test_a_checkpoint_waits_for_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job says what it waits for, keeps its last checkpoint, leaves no half file, and ends as it would have."""
    async with world(tmp_path, "a", "b") as w:
        job = await w.submit("demo", ["a", "b"])
        w.script.go("demo")
        await w.until(job.job_id, lambda u: bool(u.event and u.event.event.kind is EventKind.ROUND_CLOSED))
        kept = await w.store.load_checkpoint(job.job_id)
        assert kept is not None
        write = checkpoints._write
        monkeypatch.setattr(checkpoints, "_write", half_written)
        w.script.go("demo", 2)
        await w.until(job.job_id, waits_for_the_disk)
        info = await w.runs.get(job.job_id)
        assert (info.state, info.waiting_for) == (JobState.RUNNING, "waiting: disk full: the checkpoint of round 2")
        still = await w.store.load_checkpoint(job.job_id)
        assert still is not None
        assert still.checkpoint.round_num == kept.checkpoint.round_num == 1
        assert len(list((tmp_path / "checkpoints").iterdir())) == 1
        monkeypatch.setattr(checkpoints, "_write", write)
        done = await w.finished(job.job_id)
        assert (done.state, done.round_num, done.waiting_for) == (JobState.SUCCEEDED, 3, "")


async def test_a_job_cannot_wait_for_space_longer_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `cohort.wait_s` it fails with a reason that says why, and leaves its last good state."""
    async with world(tmp_path, "a") as w:
        job = await w.submit("demo", ["a"], wait_s=0.5)
        w.script.go("demo")
        await w.until(job.job_id, lambda u: bool(u.event and u.event.event.kind is EventKind.ROUND_CLOSED))
        await w.store.load_checkpoint(job.job_id)
        monkeypatch.setattr(checkpoints, "_write", no_space)
        w.script.go("demo", 2)
        done = await w.finished(job.job_id)
        assert (done.state, done.error_reason) == (JobState.FAILED, "DISK_FULL")
        assert "the checkpoint of round 2; gave up after" in done.error_message
        left = load_file(w.runs.artifact_folder(job.job_id) / "checkpoint.safetensors")
        np.testing.assert_array_equal(left["total"], [1.0, 1.0])


async def test_artifacts_wait_for_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None appears before all are there; then they are what they would have been."""
    async with world(tmp_path, "a") as w:
        w.script.free = True
        write = artifacts.write_folder

        def half(folder: Path, *arguments: object) -> None:
            folder.mkdir(parents=True)
            (folder / "job.json").write_text("{")
            no_space()

        monkeypatch.setattr(job_task, "write_folder", half)
        job = await w.submit("demo", ["a"])
        await w.until(job.job_id, waits_for_the_disk)
        assert (await w.runs.get(job.job_id)).waiting_for == "waiting: disk full: the artifacts"
        assert await w.runs.artifacts(job.job_id) == []
        monkeypatch.setattr(job_task, "write_folder", write)
        assert (await w.finished(job.job_id)).state is JobState.SUCCEEDED
        record = json.loads((w.runs.artifact_folder(job.job_id) / "job.json").read_text())
        assert record["participation"] == {"a": {"rounds_answered": 3, "rounds_failed": 0, "rounds_missed": 0}}


async def test_artifacts_that_never_fit_fail_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator reads that the artifacts are missing, and why; the next job is not held up."""
    async with world(tmp_path, "a") as w:
        w.script.free = True
        monkeypatch.setattr(job_task, "write_folder", no_space)
        job = await w.submit("demo", ["a"], wait_s=0.3)
        done = await w.finished(job.job_id)
        assert (done.state, done.error_reason) == (JobState.FAILED, "DISK_FULL")
        assert (await w.store.find_job(job.job_id)).state is JobState.FAILED


async def test_a_full_database_holds_the_job_and_loses_no_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events wait in memory; `watch` shows them all the same, and afterwards they are stored."""
    async with world(tmp_path, "a") as w:
        job = await w.submit("demo", ["a"], rounds=2)
        await w.script.wait_started(1)
        monkeypatch.setattr(store, "event_columns", no_space)
        w.script.go("demo", 2)
        await w.until(job.job_id, waits_for_the_disk)
        monkeypatch.setattr(store, "event_columns", event_columns)
        assert (await w.finished(job.job_id)).state is JobState.SUCCEEDED
        kinds = [e.event.kind for e in await w.store.events(job.job_id)]
        assert kinds.count(EventKind.ROUND_CLOSED) == 2
        assert [e.sequence for e in await w.store.events(job.job_id)] == list(range(1, len(kinds) + 1))


async def test_a_cancelled_job_does_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelling ends the wait for a checkpoint that does not fit."""
    async with world(tmp_path, "a") as w:
        w.script.free = True
        monkeypatch.setattr(checkpoints, "_write", no_space)
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

    assert await until_kept(attempt, "the file", told, limit_s=60, round_num=2) == 7
    text = "waiting: the file cannot be written: [Errno 30] Read-only file system"
    assert told == [JobEvent(EventKind.WAITING, 2, message=text), JobEvent(EventKind.WAITING, 2)]

    async def breaks() -> None:
        raise ValueError("a fault of the program")

    with pytest.raises(ValueError, match="program"):
        await until_kept(breaks, "the file", told, limit_s=60)
    faults += [UnavailableError("no connection")] * 9
    with pytest.raises(UnavailableError, match="no connection; gave up"):
        await until_kept(attempt, "the file", told, limit_s=0)


def test_what_counts_as_full() -> None:
    """By error number, or by the words of SQLite, PostgreSQL and safetensors."""
    assert is_full(OSError(errno.EDQUOT, "x"))
    assert is_full(DiskFullError("x"))
    assert is_full(RuntimeError("(sqlite3.OperationalError) database or disk is full"))
    assert not is_full(OSError(errno.EACCES, "Permission denied"))
