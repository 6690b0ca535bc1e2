"""From a task to its answer."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import numpy as np
import pytest
import structlog
from structlog.testing import capture_logs

from kernfed.errors import (
    JobCancelledError,
    PolicyError,
    StepFailedError,
    UnknownStepError,
    WireError,
)
from kernfed.methods.probe.messages import EchoRequest
from kernfed.v1 import task_pb2
from kernfed_client.daemon import tasks
from kernfed_client.daemon.tasks import KEPT_JOBS
from kernfed_testing.worlds.task_world import CENTRE, MEANS, STANDARDISE, FullDisk, Job, World


def test_answer_is_recorded_before_it_leaves(tmp_path: Path) -> None:
    """Each answer is written down once, and the policy is asked before and after the work."""
    world = World(tmp_path)
    reply = world.answer(EchoRequest(values=np.arange(3.0)), float_bits=32)
    assert reply.values.dtype == np.float32
    assert [task_id for task_id, _ in world.recorded] == ["job/1/probe.echo"]
    assert world.asked == [("probe.echo", "ann", None)] * 2


def test_unknown_step(tmp_path: Path) -> None:
    """A step that this client does not run is refused by its name."""
    with pytest.raises(UnknownStepError, match=r"does not run the step 'os.system'"):
        World(tmp_path).runner.incoming(task_pb2.Task(step="os.system"))


def test_request_too_large(tmp_path: Path) -> None:
    """A request beyond the limit of its class is refused."""
    with pytest.raises(WireError, match="at most 65536"):
        World(tmp_path).answer(EchoRequest(values=np.ones(10_000)))


def test_job_id_never_becomes_a_path(tmp_path: Path) -> None:
    """A job id with dots and slashes stays within the folder of jobs."""
    world = World(tmp_path)
    world.answer(STANDARDISE, job_id="../../etc")
    files = [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()]
    assert all(f.startswith("jobs/") for f in files)
    assert ".." not in "".join(files)
    assert len(files) == 1


def test_jobs_in_memory_are_bounded(tmp_path: Path) -> None:
    """The oldest job leaves memory, and is rebuilt when it is asked for again."""
    world = World(tmp_path)
    for i in range(KEPT_JOBS + 1):
        for request in (STANDARDISE, CENTRE):
            world.answer(request, job_id=f"job{i}")
    assert len(world.opened) == KEPT_JOBS + 1
    world.answer(MEANS, job_id="job1")
    assert len(world.opened) == KEPT_JOBS + 1
    world.answer(MEANS, job_id="job0")
    assert len(world.opened) == KEPT_JOBS + 2


def test_refused_before_the_data_are_touched(tmp_path: Path) -> None:
    """A task that the policy refuses leaves no record of a reply, one of the refusal, and no set-up."""
    world = World(tmp_path, lambda _request, rows: rows is None, disk=FullDisk(1))
    with pytest.raises(PolicyError):
        world.answer(STANDARDISE)
    assert world.recorded == []
    assert world.refused == [("job/1/data.standardise", "not allowed")]
    assert not list(tmp_path.rglob("*.task"))


def test_refused_once_the_rows_are_known(tmp_path: Path) -> None:
    """Too few rows show only when the data are read: nothing leaves, and nothing is kept."""
    world = World(tmp_path, lambda _request, rows: rows is not None)
    with pytest.raises(PolicyError):
        world.answer(STANDARDISE)
    assert world.asked == [("data.standardise", "ann", None), ("data.standardise", "ann", 7)]
    assert world.recorded == []
    assert not list(tmp_path.rglob("*.task"))


@pytest.mark.parametrize(
    ("value", "text"), [(-1.0, "probe.echo: unexpected ValueError"), (101.0, "probe.echo: out of memory")]
)
def test_unexpected_error_tells_its_class_only(tmp_path: Path, value: float, text: str) -> None:
    """What a step raises by surprise is told by its class, and its text stays in the log of this client."""
    with structlog.testing.capture_logs() as logs, pytest.raises(StepFailedError) as caught:
        World(tmp_path).answer(EchoRequest(values=np.array([value])))
    assert str(caught.value).startswith(text)
    assert "Jane" not in str(caught.value)
    assert logs[0]["log_level"] == "error"  # the trace stays in this client's own log


def test_full_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply that cannot be noted in the audit log does not leave; it leaves, once noted, when there is space."""
    pauses: list[float] = []
    waits: list[str] = []
    world = World(tmp_path, disk=FullDisk(3))

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        waits.append(world.runner.waits)

    monkeypatch.setattr(time, "sleep", pause)
    with capture_logs() as said:
        reply = world.answer(EchoRequest(values=np.arange(3.0)))
    np.testing.assert_array_equal(reply.values, np.arange(3.0))
    assert len(world.recorded) == 1
    assert len(pauses) == 3
    assert all("a step waits for disk: the audit log cannot be written" in text for text in waits)
    assert world.runner.waits == ""
    assert [line["event"] for line in said] == [
        "disk full: the step waits for space",
        "space on the disk again: the step goes on",
    ]


def test_a_read_only_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that is full, with its own remedy; systems mount a disk so after a fault of it."""
    waits: list[str] = []
    world = World(tmp_path, disk=FullDisk(2, errno.EROFS))
    monkeypatch.setattr(time, "sleep", lambda _: waits.append(world.runner.waits))
    with capture_logs() as said:
        world.answer(EchoRequest(values=np.arange(3.0)))
    assert all("Read-only file system); mount it for writing, and it goes on" in text for text in waits)
    assert said[0]["event"] == "disk read-only: the step waits"
    monkeypatch.setattr(tasks, "LONGEST_WAIT_S", 0.0)
    world = World(tmp_path / "other", disk=FullDisk(100, errno.EROFS))
    with capture_logs(), pytest.raises(StepFailedError, match="has been read-only for 0 s; mount it for writing there"):
        world.answer(EchoRequest(values=np.arange(3.0)))


def test_full_disk_ends_with_the_task(tmp_path: Path) -> None:
    """Nobody waits for a cancelled task's space."""
    world = World(tmp_path, disk=FullDisk(100))
    with pytest.raises(JobCancelledError, match="while the audit log waited for space"):
        world.answer(EchoRequest(values=np.arange(3.0)), wanted=lambda: False)


def test_full_disk_is_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step fails and tells where space is wanted."""
    monkeypatch.setattr(tasks, "LONGEST_WAIT_S", 0.1)
    world = World(tmp_path, disk=FullDisk(100))
    with pytest.raises(StepFailedError, match="the audit log cannot be written: the client's disk has been full"):
        world.answer(EchoRequest(values=np.arange(3.0)))


def test_reply_that_cannot_be_recorded_does_not_leave(tmp_path: Path) -> None:
    """Only a disk that takes nothing is waited for; another fault fails the step."""
    disk = FullDisk(100, errno.EIO)
    world = World(tmp_path, disk=disk)
    with capture_logs(), pytest.raises(StepFailedError, match="unexpected OSError"):
        world.answer(EchoRequest(values=np.arange(3.0)))
    assert disk.left == 99
    assert world.recorded == []


def test_blocks_go_back_as_a_job_ends_untold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that is over gives its rows' blocks back, once; a disk that takes nothing leaves them used, with a word."""
    world = World(tmp_path)
    settled: list[bool] = []

    def settle(_: Job, *, refused: bool) -> None:
        settled.append(refused)
        if len(settled) > 1:
            raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(Job, "settle_blocks", settle, raising=False)
    for job_id in ("job1", "job2"):
        world.answer(STANDARDISE, job_id=job_id)
    world.runner.drop_job("job1")
    with capture_logs() as logs:
        world.runner.drop_job("job2")
    world.runner.drop_job("job1")
    assert settled == [True, True]
    assert [e["job_id"] for e in logs] == ["job2"]
