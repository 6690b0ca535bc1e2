"""From a task to its answer, and what is kept of a job between tasks."""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog
from structlog.testing import capture_logs

from kernfed.errors import (
    JobCancelledError,
    JobStateMissingError,
    PolicyError,
    StepFailedError,
    UnknownStepError,
    WireError,
)
from kernfed.federation.messages.base import Reply, Request
from kernfed.federation.messages.data import (
    Centred,
    CentreRequest,
    MeanEmbedding,
    MeanEmbeddingRequest,
    Standardised,
    StandardiseRequest,
)
from kernfed.methods.probe.messages import Echo, EchoRequest
from kernfed.v1 import task_pb2
from kernfed.wire.codec import decode, encode
from kernfed.wire.outgoing import payload_to_proto
from kernfed_client.daemon import kept_setup, tasks
from kernfed_client.daemon.tasks import KEPT_JOBS, Answered, TaskRunner

STANDARDISE = StandardiseRequest(classes=("no", "yes"), mean=np.zeros(2), deviation=np.ones(2), median_distance=False)
CENTRE = CentreRequest(feature_mean=np.full(3, 0.5), target_mean=np.zeros(1))
MEANS = MeanEmbeddingRequest(num_features=3, num_outputs=1)


class Job:
    """A job's state that knows which setup steps it was taken through."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self.setup: list[str] = []

    @property
    def num_rows(self) -> int:
        if not self.setup:
            raise JobStateMissingError("no data yet")
        return 7


def standardise(job: Job, request: Any) -> Standardised:
    job.setup.append(request.step)
    return Standardised(num_rows=7, median_distance=0.0)


def centre(job: Job, request: Any) -> Centred:
    job.setup.append(request.step)
    return Centred(num_rows=7)


def means(job: Job, _request: object) -> MeanEmbedding:
    if job.setup != ["data.standardise", "data.centre"]:
        raise JobStateMissingError(f"the setup is not complete: {job.setup}")
    return MeanEmbedding(num_rows=7, feature_mean=np.ones(3), target_mean=np.zeros(1))


def echo(_job: Job, request: Any) -> Echo:
    if request.values[0] < 0:
        raise ValueError("row 3: Jane Doe")
    if request.values[0] > 100:
        raise MemoryError
    return Echo(num_rows=1, values=request.values)


STEPS: dict[type[Request[Any]], Callable[[Any, Any], Reply]] = {
    StandardiseRequest: standardise,
    CentreRequest: centre,
    MeanEmbeddingRequest: means,
    EchoRequest: echo,
}


class FullDisk:
    """A disk that is found full so often, or has another fault, then takes what is written."""

    def __init__(self, times: int, error: int = errno.ENOSPC) -> None:
        self.left, self.error = times, error

    def write(self) -> None:
        if self.left > 0:
            self.left -= 1
            raise OSError(self.error, os.strerror(self.error))


class World:
    """A task runner, and all that it does to the outside."""

    def __init__(
        self,
        state: Path,
        forbid: Callable[[Request[Any], int | None], bool] = lambda _request, _rows: False,
        *,
        disk: FullDisk | None = None,
        steps: Mapping[type[Request[Any]], Callable[[Any, Any], Reply]] = STEPS,
    ) -> None:
        self.opened: list[tuple[str, Path]] = []
        self.asked: list[tuple[str, str, int | None]] = []
        self.recorded: list[tuple[str, Reply]] = []

        def open_job(job_id: str, folder: Path) -> Job:
            self.opened.append((job_id, folder))
            return Job(job_id)

        def permit(request: Request[Any], task: task_pb2.Task, num_rows: int | None) -> None:
            self.asked.append((request.step, task.submitted_by, num_rows))
            if forbid(request, num_rows):
                raise PolicyError("not allowed")

        def record(task: task_pb2.Task, _request: object, reply: Reply, _payload: object) -> None:
            if disk is not None:
                disk.write()
            self.recorded.append((task.task_id, reply))

        def refuse(task: task_pb2.Task, err: PolicyError) -> None:
            if disk is not None:
                disk.write()
            self.refused.append((task.task_id, str(err)))

        self.refused: list[tuple[str, str]] = []
        self.runner = TaskRunner(steps, lambda: steps, open_job, permit, record, refuse, state, max_body_bytes=1 << 16)

    def answer(
        self,
        request: Any,
        job_id: str = "job",
        float_bits: int = 64,
        wanted: Callable[[], bool] = lambda: True,
    ) -> Any:
        answered = self.answered(request, job_id, float_bits, wanted)
        return decode(request.reply, answered.payload.header, memoryview(answered.payload.body()))

    def place(self, request: Any) -> int:
        """Of the setup step that the answer stands on."""
        return self.answered(request).place

    def answered(
        self, request: Any, job_id: str = "job", float_bits: int = 64, wanted: Callable[[], bool] = lambda: True
    ) -> Answered:
        task = task_pb2.Task(
            task_id=f"{job_id}/1/{request.step}",
            job_id=job_id,
            step=request.step,
            payload=payload_to_proto(encode(request), 1),
            float_bits=float_bits,
            submitted_by="ann",
        )
        return self.runner.answer(task, self.runner.incoming(task), wanted)


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


def test_what_is_kept_of_a_job_goes_with_it(tmp_path: Path) -> None:
    """With the job's end its folder goes; where nobody told of the end it goes after a time, but for own models."""
    world = World(tmp_path)
    for job_id in ("told", "untold", "with a model", "at work"):
        world.answer(STANDARDISE, job_id=job_id)
    folders = dict(world.opened)
    world.runner.drop_job("told")
    assert not folders["told"].exists()
    (folders["with a model"] / "model.json").touch()
    for folder in folders.values():
        for path in (folder, *folder.rglob("*")):
            if path.exists():
                os.utime(path, (0, 0))
    later = World(tmp_path)
    later.answer(STANDARDISE, job_id="at work")
    later.answer(STANDARDISE, job_id="new")
    later.runner.forget_old()
    assert not folders["untold"].exists()
    assert [path.name for path in folders["with a model"].iterdir()] == ["model.json"]
    assert len(list((tmp_path / "jobs").glob("*/setup/*"))) == 2


def test_jobs_without_end_leave_few_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Setups beyond a number go, the longest unused first; those in memory stay, and so does a model of one's own."""
    monkeypatch.setattr(kept_setup, "MOST_JOBS", 12)
    world = World(tmp_path)
    for number in range(30):
        world.answer(STANDARDISE, job_id=f"j{number}")
        folder = tmp_path / "jobs" / hashlib.sha256(f"j{number}".encode()).hexdigest()[:32]
        os.utime(next(folder.glob("setup/*")), (number, number))
        if number == 3:
            (folder / "model.json").write_text("{}")
    left = {path.parent.parent.name for path in (tmp_path / "jobs").glob("*/setup/*")}
    assert left == {hashlib.sha256(f"j{n}".encode()).hexdigest()[:32] for n in range(17, 30)}
    assert [path.name for path in (tmp_path / "jobs").glob("*/model.json")] == ["model.json"]


@pytest.mark.parametrize("steps", [[], [STANDARDISE], [STANDARDISE, CENTRE]])
def test_rebuilt_after_restart(tmp_path: Path, steps: list[Request[Any]]) -> None:
    """A new runner takes the job through the kept setup before the next step; what was not kept is missing."""
    first = World(tmp_path)
    for request in steps:
        first.answer(request)
    second = World(tmp_path)
    if len(steps) < 2:
        with pytest.raises(JobStateMissingError, match="the setup is not complete"):
            second.answer(MEANS)
    else:
        np.testing.assert_array_equal(second.answer(MEANS).feature_mean, np.ones(3))
    assert [step for step, _, _ in second.asked][: len(steps)] == [r.step for r in steps]
    assert len(second.opened) == 1
    assert len(second.recorded) == (len(steps) == 2)  # nothing of the setup leaves again


def test_setup_asked_again_after_restart(tmp_path: Path) -> None:
    """A coordinator that repeats the setup finds each step done once, in order."""
    first = World(tmp_path)
    for setup in (STANDARDISE, CENTRE):
        first.answer(setup)
    second = World(tmp_path)
    for request in (STANDARDISE, CENTRE, MEANS):
        second.answer(request)
    assert [task_id for task_id, _ in second.recorded][-1].endswith("data.mean_embedding")


def test_kept_setup_that_cannot_be_read(tmp_path: Path) -> None:
    """A damaged set-up counts as a missing one."""
    World(tmp_path).answer(STANDARDISE)
    for path in tmp_path.rglob("*.task"):
        path.write_bytes(b"\xff\xff")
    with pytest.raises(JobStateMissingError):
        World(tmp_path).answer(MEANS)


def test_drop_job(tmp_path: Path) -> None:
    """The set-up of an ended job is removed, and an unknown job is no error."""
    world = World(tmp_path)
    for request in (STANDARDISE, CENTRE):
        world.answer(request)
    world.runner.drop_job("job")
    assert not list(tmp_path.rglob("*.task"))
    with pytest.raises(JobStateMissingError):
        world.answer(MEANS)
    world.runner.drop_job("never seen")


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
    """Only a full disk is waited for; another fault fails the step."""
    disk = FullDisk(100, errno.EIO)
    world = World(tmp_path, disk=disk)
    with capture_logs(), pytest.raises(StepFailedError, match="unexpected OSError"):
        world.answer(EchoRequest(values=np.arange(3.0)))
    assert disk.left == 99
    assert world.recorded == []


# What an earlier release left of a job: files by the place of their step in a table of its own, with gaps.
BEFORE: dict[str, Request[Any]] = {"01.task": STANDARDISE, "07.task": CENTRE}


def before(folder: Path, kept: dict[str, Request[Any]] = BEFORE) -> Path:
    """A job's folder of an earlier release."""
    folder = folder / "jobs" / hashlib.sha256(b"job").hexdigest()[:32] / "setup"
    folder.mkdir(parents=True)
    for name, request in kept.items():
        payload = encode(request)
        task = task_pb2.Task(
            task_id="job/1/x",
            job_id="job",
            step=request.step,
            submitted_by="ann",
            payload=task_pb2.Payload(
                header=payload.header, body_size=payload.body_size, inline_body=b"".join(payload.segments())
            ),
        )
        (folder / name).write_bytes(task.SerializeToString())
    return folder


def test_a_folder_of_before_is_read(tmp_path: Path) -> None:
    """Its steps are repeated in the order of the numbers, whatever the order of this release's table is."""
    before(tmp_path)
    world = World(tmp_path)
    np.testing.assert_array_equal(world.answer(MEANS).feature_mean, np.ones(3))
    assert [step for step, _, _ in world.asked][:2] == [STANDARDISE.step, CENTRE.step]


def test_a_folder_of_before_goes_on(tmp_path: Path) -> None:
    """A step that is asked again keeps its place and its file; one that is new comes last."""
    folder = before(tmp_path, {"07.task": STANDARDISE})
    world = World(tmp_path)
    for request in (STANDARDISE, CENTRE):
        world.answer(request)
    assert sorted(p.name for p in folder.iterdir()) == ["07.task", "08.task"]
    np.testing.assert_array_equal(World(tmp_path).answer(MEANS).feature_mean, np.ones(3))


def test_an_answer_stands_on_the_setup_step_that_was_done_last(tmp_path: Path) -> None:
    """Not on one that an earlier life of the daemon kept behind it, which is still to be done again."""
    first = World(tmp_path)
    first.answer(STANDARDISE)
    first.answer(CENTRE)
    again = World(tmp_path)
    echo = EchoRequest(values=np.zeros(1))
    assert [again.place(request) for request in (STANDARDISE, echo, CENTRE, echo)] == [0, 0, 1, 1]
    assert World(tmp_path).place(echo) == 1


def test_the_order_of_the_table_of_steps_does_not_matter(tmp_path: Path) -> None:
    """A release that lists its steps otherwise rebuilds the job in the order in which its setup was asked."""
    first = World(tmp_path)
    for request in (STANDARDISE, CENTRE, STANDARDISE):
        first.answer(request)
    other = dict(reversed(STEPS.items()))
    second = World(tmp_path, steps=other)
    np.testing.assert_array_equal(second.answer(MEANS).feature_mean, np.ones(3))
    again = World(tmp_path, steps=other)
    again.answer(CENTRE)
    assert [step for step, _, _ in again.asked] == [STANDARDISE.step, CENTRE.step, CENTRE.step]
