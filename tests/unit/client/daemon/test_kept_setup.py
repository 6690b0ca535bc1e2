"""What is kept of a job between tasks and lives of the daemon."""

from __future__ import annotations

import gc
import hashlib
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import (
    JobStateMissingError,
)
from kernfed.federation.messages.base import Request
from kernfed.federation.messages.data import MeanEmbedding, MeanEmbeddingRequest
from kernfed.federation.setup import NOTHING, SetupChain
from kernfed.jobs.client_file import STREAM_STATES
from kernfed.journal import Framing, Journal
from kernfed.methods.probe.messages import EchoRequest
from kernfed.v1 import task_pb2
from kernfed.wire.codec import encode
from kernfed_client.daemon import kept_setup
from kernfed_client.daemon.kept_setup import remove_many, remove_old
from kernfed_client.daemon.tasks import KEPT_JOBS
from kernfed_testing.worlds.task_world import CENTRE, MEANS, STANDARDISE, STEPS, World


def test_what_is_kept_of_a_job_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the job's end its folder goes; where nobody told of the end it goes after a time, but for own models."""
    monkeypatch.setattr(kept_setup, "FORGOTTEN_AFTER_LOOKS", 2)
    world = World(tmp_path)
    for job_id in ("told", "untold", "with a model", "at work"):
        world.answer(STANDARDISE, job_id=job_id)
    folders = dict(world.opened)
    world.runner.drop_job("told")
    assert not folders["told"].exists()
    (folders["with a model"] / "model.json").touch()
    world.runner.forget_old()
    later = World(tmp_path)
    later.answer(STANDARDISE, job_id="at work")
    later.answer(STANDARDISE, job_id="new")
    later.runner.forget_old()
    assert folders["untold"].exists()
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


def test_states_of_streams_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They outlast their jobs, in number, bytes and days; the longest unused go first, and none of a job that runs."""
    monkeypatch.setattr(kept_setup, "MOST_STATES", 5)
    jobs, now = tmp_path / "jobs", time.time()
    folders = [jobs / f"{number}" for number in range(8)]
    for days, folder in enumerate(reversed(folders)):
        (folder / STREAM_STATES).mkdir(parents=True)
        (folder / STREAM_STATES / "rounds.state").write_bytes(bytes(100))
        os.utime(folder / STREAM_STATES / "rounds.state", (now, now - days * 86400))
    (folders[1] / "model.json").write_text("{}")
    remove_many(jobs, {folders[0]})
    left = {path.parent.name for path in jobs.glob(f"*/{STREAM_STATES}")}
    assert left == {"0", "4", "5", "6", "7"}
    assert [path.name for path in folders[1].iterdir()] == ["model.json"]
    assert not folders[2].exists()
    monkeypatch.setattr(kept_setup, "MOST_STATES_BYTES", 250)
    remove_many(jobs, {folders[0]})
    assert {path.parent.name for path in jobs.glob(f"*/{STREAM_STATES}")} == {"0", "7"}
    monkeypatch.setattr(kept_setup, "STATES_FORGOTTEN_AFTER_LOOKS", 1)
    remove_old(jobs, {folders[0]})
    remove_old(jobs, {folders[0]})
    assert {path.parent.name for path in jobs.glob(f"*/{STREAM_STATES}")} == {"0"}


@pytest.mark.redteam
def test_jobs_without_end_leave_few_open_files(tmp_path: Path) -> None:
    """What leads back to itself, as a stream's client does that keeps its file open, goes with its job."""
    world = World(tmp_path)
    open_files = len(os.listdir("/proc/self/fd"))
    gc.disable()  # what many steps have passed by is looked for rarely
    try:
        for number in range(40):
            world.answer(STANDARDISE, job_id=f"j{number}")
            job: Any = world.runner._jobs[f"j{number}"][0]
            job.kept = (job, Journal(tmp_path / f"{number}.state", Framing(b"test", "Q")))
            del job
        assert len(os.listdir("/proc/self/fd")) - open_files <= 2 * KEPT_JOBS + 4
    finally:
        gc.enable()


@pytest.mark.redteam
def test_a_clock_that_jumps_makes_no_state_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a year, and back: looks at unused states count; a use, or a damaged file, begins anew."""
    monkeypatch.setattr(kept_setup, "STATES_FORGOTTEN_AFTER_LOOKS", 3)
    jobs, year = tmp_path / "jobs", 365 * 86400.0
    states = jobs / "job" / STREAM_STATES
    states.mkdir(parents=True)
    state = states / "rounds.state"
    state.write_bytes(b"x")

    def looks() -> int:
        """Looks until it goes."""
        for number in range(9):
            if not state.exists():
                return number
            remove_old(jobs, ())
        return 9

    os.utime(state, (0, 0))  # long ago, by the clock of today
    for at in (time.time() + year, time.time() - year):
        monkeypatch.setattr(time, "time", lambda at=at: at)
        remove_old(jobs, ())
    assert state.exists()
    os.utime(state, (year, year))
    remove_old(jobs, ())
    remove_old(jobs, ())
    (tmp_path / "unused.json").write_text('{"job": 3}')
    assert looks() == 4


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


@pytest.mark.parametrize("restarted", [False, True])
def test_an_answer_stands_on_what_the_coordinator_counts_on(tmp_path: Path, restarted: bool) -> None:
    """A setup step that comes late voids what stood on it; then the client asks to be prepared again, and is."""
    chain, world = SetupChain(), World(tmp_path)

    def ask(request: Any) -> None:
        world.answered(request, request_sha256=request.step.encode(), setup_sha256=chain.under(type(request)) or b"")
        if request.setup:
            chain.put(type(request), request.step.encode())

    for request in (STANDARDISE, CENTRE, MEANS):
        ask(request)
    world.answered(STANDARDISE, request_sha256=b"late", setup_sha256=NOTHING)
    world = World(tmp_path) if restarted else world
    with pytest.raises(JobStateMissingError, match="not what the coordinator counts on"):
        ask(MEANS)
    world.runner.drop_job("job")
    chain.links.clear()
    for request in (STANDARDISE, CENTRE, MEANS):
        ask(request)


def test_a_preparation_in_another_order_begins_anew(tmp_path: Path) -> None:
    """What was set up before is dropped, with its files, by a first step that stands on nothing."""
    world = World(tmp_path)
    world.answered(CENTRE, request_sha256=b"1", setup_sha256=NOTHING)
    world.answered(STANDARDISE, request_sha256=b"2", setup_sha256=NOTHING)
    assert len(list(tmp_path.glob("jobs/*/setup/*.task"))) == 1
    assert len(world.opened) == 2


def test_the_order_of_the_table_of_steps_does_not_matter(tmp_path: Path) -> None:
    """A release that lists its steps otherwise rebuilds the job in the order in which its setup was asked."""
    first = World(tmp_path)
    for request in (STANDARDISE, CENTRE, CENTRE):
        first.answer(request)
    other = dict(reversed(STEPS.items()))
    second = World(tmp_path, steps=other)
    np.testing.assert_array_equal(second.answer(MEANS).feature_mean, np.ones(3))
    again = World(tmp_path, steps=other)
    again.answer(CENTRE)
    assert [step for step, _, _ in again.asked] == [STANDARDISE.step, *3 * [CENTRE.step]]


def test_what_stands_on_a_step_goes_when_that_is_asked_again(tmp_path: Path) -> None:
    """Scales that are agreed on anew void the means of before, on the disk too."""
    first = World(tmp_path)
    for request in (STANDARDISE, CENTRE, STANDARDISE):
        first.answer(request)
    with pytest.raises(JobStateMissingError, match="the setup is not complete"):
        World(tmp_path).answer(MEANS)


def test_a_step_that_leaves_later_ones_finds_them_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that were weighed behind their first centring are weighed when they are centred again, as without restart.

    An answer stands on the last of the steps that are done, whichever was asked last.
    """
    for name in ("setup", "leaves_later"):
        monkeypatch.setattr(EchoRequest, name, True)
    weigh = EchoRequest(values=np.zeros(1))
    embedded = MeanEmbedding(num_rows=7, feature_mean=np.ones(3), target_mean=np.zeros(1))
    steps = {**STEPS, MeanEmbeddingRequest: lambda _job, _request: embedded}
    first = World(tmp_path, steps=steps)
    assert [first.place(request) for request in (STANDARDISE, CENTRE, weigh, CENTRE, MEANS)] == [0, 1, 2, 1, 2]
    again = World(tmp_path, steps=steps)
    assert [again.place(request) for request in (CENTRE, MEANS)] == [1, 2]
    assert [step for step, _, _ in again.asked][:3] == [STANDARDISE.step, CENTRE.step, weigh.step]
