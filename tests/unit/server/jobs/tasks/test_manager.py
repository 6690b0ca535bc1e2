"""Jobs from submission to artifacts, with clients in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import (
    ConfigError,
    JobError,
    QuorumNotMetError,
    UnavailableError,
    UnknownArtifactError,
    UnknownClientError,
    UnknownJobError,
)
from kernfed.federation.cohort import Cohort
from kernfed.federation.events import EventKind, JobState
from kernfed.jobs.info import JobUpdate
from kernfed.jobs.job_file import JobFile
from kernfed.jobs.metrics_file import read_metrics
from kernfed.numeric_platform import numeric_platform
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.tasks.manager import RunLimits
from kernfed_server.jobs.tasks.task import DIFFERENT
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.worlds.job_world import probe_toml, world


def closed(num: int) -> Callable[[JobUpdate], bool]:
    return lambda u: bool(u.event and u.event.event.kind is EventKind.ROUND_CLOSED and u.event.event.round_num == num)


@pytest.mark.slow
async def test_a_job_runs_to_its_artifacts(tmp_path: Path) -> None:
    """The files tell settings, rounds, what was measured and what left each client."""
    async with world(tmp_path, "a", "b", report=True) as w:
        w.script.free = True
        job = await w.submit("demo", ["b", "a"])
        assert job.job_id.startswith("demo-")
        done = await w.finished(job.job_id)
        assert (done.state, done.round_num, done.clients) == (JobState.SUCCEEDED, 3, ("a", "b"))
        names = [artifact.name for artifact in await w.runs.artifacts(job.job_id)]
        assert names == ["job.json", "job.toml", "metrics.csv", "metrics.jsonl", "report.html"]
        folder = w.runs.artifact_folder(job.job_id)
        record = json.loads((folder / "job.json").read_text())
        assert record["state"] == "succeeded"
        assert record["settings"]["cohort"]["min_fraction"] == 0.5
        assert record["answers"]["a"] == [{"step": "probe.echo", "count": 3, "kinds": []}]
        assert [line.value for line in read_metrics(folder / "metrics.jsonl") if line.client == "a"] == [0.6, 0.7, 0.8]
        assert w.sessions.ended == [(job.job_id, "succeeded")]
        assert not list((tmp_path / "checkpoints").iterdir())


async def test_a_long_queue_writes_a_short_history(tmp_path: Path) -> None:
    """Ten jobs one behind the other: each says once that it waits, not once for every job that goes ahead of it."""
    async with world(tmp_path, "a") as w:
        w.script.free = True
        jobs = [await w.submit(f"job-{number}", ["a"], rounds=1) for number in range(10)]
        for job in jobs:
            assert (await w.finished(job.job_id)).state is JobState.SUCCEEDED
        for job in jobs:
            history = [update.event.event async for update in w.updates(job.job_id) if update.event]
            waits = [event.message for event in history if event.kind is EventKind.WAITING]
            assert len(waits) <= 1


async def test_disjoint_jobs_run_at_once_and_overlapping_ones_in_order(tmp_path: Path) -> None:
    """The third job waits for the first, and starts when that is over."""
    async with world(tmp_path, "a", "b", "c") as w:
        first = await w.submit("one", ["a", "b"], rounds=1)
        second = await w.submit("two", ["c"], rounds=1)
        third = await w.submit("three", ["b", "c"], rounds=1)
        await w.script.wait_started(2)
        assert w.script.started == [("a", "b"), ("c",)]
        assert await w.waiting(third.job_id) == f"waiting: b, c work for {first.job_id}, {second.job_id}"
        w.script.go("two")
        assert (await w.finished(second.job_id)).state is JobState.SUCCEEDED
        assert (await w.runs.get(third.job_id)).state is JobState.QUEUED
        w.script.go("one")
        w.script.go("three")
        done = await w.finished(third.job_id)
        assert (done.state, done.waiting_for) == (JobState.SUCCEEDED, "")
        assert w.script.started[2] == ("b", "c")


async def test_a_job_waits_for_its_clients_and_says_for_whom(tmp_path: Path) -> None:
    """It starts when the last one connects."""
    async with world(tmp_path, "cleveland", "hungarian") as w:
        w.script.free = True
        job = await w.submit("demo", ["cleveland", "hungarian", "va"])
        assert await w.waiting(job.job_id) == "waiting: 2 of 3 clients connected (missing: va)"
        w.sessions.connect("va")
        assert (await w.finished(job.job_id)).state is JobState.SUCCEEDED


async def test_a_job_that_waits_too_long_fails(tmp_path: Path) -> None:
    """The reason tells who was missing, and which setting ended the wait."""
    async with world(tmp_path, "a") as w:
        job = await w.submit("demo", ["a", "b"], wait_s=0.05)
        done = await w.finished(job.job_id)
        assert (done.state, done.error_reason) == (JobState.FAILED, QuorumNotMetError.reason)
        assert "missing: b" in done.error_message
        assert "cohort.wait_s" in done.error_message


async def test_unknown_clients_are_refused_at_once(tmp_path: Path) -> None:
    """The message names those who are enrolled."""
    async with world(tmp_path, "a", known={"a", "b"}) as w:
        with pytest.raises(UnknownClientError, match=r"vx, not enrolled.*enrolled: a, b"):
            await w.submit("demo", ["a", "vx"])
        assert (await w.runs.list_jobs(0, "")).jobs == ()


async def test_a_wrong_file_is_refused_with_its_key(tmp_path: Path) -> None:
    """Nothing is stored of it."""
    async with world(tmp_path, "a") as w:
        with pytest.raises(ConfigError, match=r"method\.round: unknown key; did you mean 'rounds'"):
            await w.runs.submit('name = "x"\n[method]\nname = "probe"\nround = 1\n', "", "ann")
        with pytest.raises(ConfigError, match="1048576 bytes"):
            await w.runs.submit("#" * (1 << 20) + "x", "", "ann")
        assert (await w.runs.list_jobs(0, "")).jobs == ()


async def test_who_may_join_a_running_job(tmp_path: Path) -> None:
    """Who offers its data set, is of no other job, and is wanted by none that waits; nobody where clients are named."""
    seen = {}

    async def execute(job: JobFile, cohort: Cohort, run: Run) -> None:
        seen[job.name] = cohort
        run.joined("late")
        await asyncio.Event().wait()

    data = '[data]\ntask = "regression"\ntarget = "y"\nfeatures = ["x"]\n'
    on_data = f'name = "open"\n[method]\nname = "local"\n{data}'
    async with world(tmp_path, "a", execute=execute) as w:
        open_to_all = await w.runs.submit(on_data, "", "ann")
        await w.until(open_to_all.job_id, lambda u: bool(u.event and u.event.event.kind is EventKind.CLIENT_JOINED))
        assert (await w.runs.get(open_to_all.job_id)).clients == ("a", "late")
        w.sessions.connect("busy", "free", "wanted")
        w.sessions.connect("other", datasets=("ecg",))
        w.sessions.connect("gone")
        w.sessions.leave("gone")
        named = await w.submit("named", ["busy"])
        await w.until(named.job_id, lambda u: bool(u.event and u.event.event.kind is EventKind.CLIENT_JOINED))
        waits = await w.submit("waits", ["wanted", "nobody"])
        await w.waiting(waits.job_id)
        assert seen["open"].candidates == ("free",)
        assert seen["named"].candidates == ()


async def test_a_repeated_submission_is_one_job(tmp_path: Path) -> None:
    """The same id with another file is refused."""
    async with world(tmp_path) as w:
        first, second = await asyncio.gather(*(w.runs.submit(probe_toml("x", ["a"]), "id-1", "ann") for _ in range(2)))
        assert first.job_id == second.job_id
        with pytest.raises(ConfigError, match="another job file"):
            await w.runs.submit(probe_toml("y", ["a"]), "id-1", "ann")


async def test_a_running_job_is_cancelled_and_keeps_its_last_state(tmp_path: Path) -> None:
    """Cancelling again says so again; its clients are free for the next."""
    async with world(tmp_path, "a") as w:
        job = await w.submit("one", ["a"])
        following = await w.submit("two", ["a"], rounds=1)
        w.script.go("one")
        await w.until(job.job_id, closed(1))
        done = await w.runs.cancel(job.job_id, "bob")
        assert (done.state, done.error_reason) == (JobState.CANCELLED, "")
        assert (await w.runs.cancel(job.job_id[:-1], "bob")).state is JobState.CANCELLED
        assert "checkpoint.safetensors" in [artifact.name for artifact in await w.runs.artifacts(job.job_id)]
        events = await w.store.events(job.job_id)
        assert events[-1].event.message == "cancelled by bob"
        w.script.go("two")
        assert (await w.finished(following.job_id)).state is JobState.SUCCEEDED
        with pytest.raises(JobError, match="is over"):
            await w.runs.cancel(following.job_id, "bob")


async def test_a_name_cancels_the_one_job_that_is_not_over(tmp_path: Path) -> None:
    """Of several that are not over none is cancelled; one that is over hides no older one; an id is an id."""
    async with world(tmp_path, "a", "b") as w:
        jobs = [await w.submit("twice", [client]) for client in "aab"]
        with pytest.raises(UnknownJobError) as refused:
            await w.runs.cancel("twice", "ann")
        ids = ", ".join(job.job_id for job in jobs)
        assert str(refused.value) == f"3 jobs named 'twice' are not over; give one's id: {ids}"
        assert not [job for job in (await w.runs.list_jobs(0, "")).jobs if job.finished_at]
        for job in jobs[1:]:
            assert (await w.runs.cancel(job.job_id, "ann")).state is JobState.CANCELLED
        cancelled = await w.runs.cancel("twice", "ann")
        assert (cancelled.job_id, cancelled.state) == (jobs[0].job_id, JobState.CANCELLED)
        assert (await w.runs.cancel("twice", "ann")).job_id == jobs[2].job_id


async def test_a_queued_job_is_cancelled_before_it_starts(tmp_path: Path) -> None:
    """Also in the moment between its decision and its first step."""
    async with world(tmp_path, "a") as w:
        waiting = await w.submit("late", ["a", "nobody"])
        assert (await w.runs.cancel(waiting.job_id, "ann")).state is JobState.CANCELLED
        for _ in range(5):
            job = await w.submit("quick", ["a"])
            assert (await w.runs.cancel(job.job_id, "ann")).state is JobState.CANCELLED


async def test_jobs_go_on_where_they_were_after_a_crash(tmp_path: Path) -> None:
    """The last closed round is not repeated, queued jobs keep their place, history has no gaps."""
    async with world(tmp_path, "a", "b") as w:
        job = await w.submit("long", ["a", "b"], rounds=4)
        queued = await w.submit("next", ["a"], rounds=1)
        w.script.go("long", 2)
        await w.until(job.job_id, closed(2))
    async with world(tmp_path, "a", "b") as again:
        again.script.free = True
        done = await again.finished(job.job_id)
        assert (done.state, done.round_num) == (JobState.SUCCEEDED, 4)
        assert (await again.finished(queued.job_id)).state is JobState.SUCCEEDED
        assert again.script.first_rounds[:2] == [3, 4]
        np.testing.assert_array_equal(again.script.states[0], [3.0, 3.0])
        events = await again.store.events(job.job_id)
        assert [e.sequence for e in events] == list(range(1, len(events) + 1))
        rounds = {line.round for line in read_metrics(again.runs.artifact_folder(job.job_id) / "metrics.jsonl")}
        assert rounds == {1, 2, 3, 4}
        record = json.loads((again.runs.artifact_folder(job.job_id) / "job.json").read_text())
        assert record["answers"]["a"][0]["count"] == 4


async def test_after_a_restart_a_job_without_names_waits_for_those_who_were_there(tmp_path: Path) -> None:
    """It runs on both clients, though one of them comes back later."""
    async with world(tmp_path, "a", "b") as w:
        async with asyncio.timeout(LIMIT_S):
            while len(await w.store.clients()) < 2:  # noted by a task of the manager
                await asyncio.sleep(0.01)
    async with world(tmp_path, "a", limits=RunLimits(settle_s=60)) as again:
        again.script.free = True
        job = await again.submit("all")
        assert "just started" in await again.waiting(job.job_id)
        again.sessions.connect("b")
        assert (await again.finished(job.job_id)).clients == ("a", "b")


@pytest.mark.slow
async def test_errors_of_a_workflow_become_the_jobs(tmp_path: Path) -> None:
    """Ours keep reason and text; a surprise is told in a fixed text, and its trace stays in the log."""

    async def execute(job: JobFile, cohort: Cohort, run: Run) -> None:
        if job.name == "ours":
            raise QuorumNotMetError("newton.gradient: 1 of 3")
        raise ZeroDivisionError("secret")

    async with world(tmp_path, "a", execute=execute, report=True) as w:
        ours = await w.finished((await w.submit("ours", ["a"])).job_id)
        assert (ours.state, ours.error_reason) == (JobState.FAILED, "QUORUM_NOT_MET")
        assert ours.error_message == "newton.gradient: 1 of 3"
        surprise = await w.finished((await w.submit("surprise", ["a"])).job_id)
        assert (surprise.error_reason, "secret" in surprise.error_message) == ("INTERNAL", False)
        report = (w.runs.artifact_folder(ours.job_id) / "report.html").read_text()
        assert "newton.gradient: 1 of 3" in report


async def test_artifacts_are_looked_up_never_joined_to_a_path(tmp_path: Path) -> None:
    """Names that would be paths elsewhere are just unknown."""
    async with world(tmp_path, "a") as w:
        w.script.free = True
        job = await w.submit("demo", ["a"])
        await w.finished(job.job_id)
        folder = w.runs.artifact_folder(job.job_id)
        (folder / "link").symlink_to("/etc/passwd")
        for name in ("../job.toml", "/etc/passwd", "link", "", ".", "job.toml\0"):
            with pytest.raises(UnknownArtifactError, match=r"job\.toml"):
                await w.runs.find_artifact(job.job_id, name)
        for job_id in ("../demo", "", "demo/..", "%"):
            with pytest.raises(UnknownJobError):
                await w.runs.artifacts(job_id)


async def test_clients_are_listed_with_their_work(tmp_path: Path) -> None:
    """Enrolled, connected and once seen clients are all there."""
    async with world(tmp_path, "a", "b", known={"a", "b", "never"}) as w:
        job = await w.submit("demo", ["a"])
        await w.script.wait_started(1)
        w.sessions.leave("b")
        listed = {client.name: client for client in await w.runs.clients()}
        assert list(listed) == ["a", "b", "never"]
        assert (listed["a"].connected, listed["a"].job_ids) == (True, (job.job_id,))
        assert not listed["b"].connected
        assert listed["never"].last_seen_at is None


async def test_the_report_is_not_what_a_job_fails_by(tmp_path: Path) -> None:
    """Without one, a note says so, and the process that was to write it is gone."""
    async with world(tmp_path, "a", limits=RunLimits(settle_s=0, report_timeout_s=0.001), report=True) as w:
        w.script.free = True
        job = await w.submit("demo", ["a"])
        assert (await w.finished(job.job_id)).state is JobState.SUCCEEDED
        assert "report.html" not in [artifact.name for artifact in await w.runs.artifacts(job.job_id)]
        assert any("report.html" in e.event.message for e in await w.store.events(job.job_id))


@pytest.mark.parametrize(("other", "differ"), [("Haswell", True), ("SkylakeX", False)])
async def test_platforms_are_told_and_compared(tmp_path: Path, other: str, differ: bool) -> None:
    """job.json names the coordinator's platform and what clients reported; a note says where theirs differ."""
    async with world(tmp_path, "a", "b") as w:
        w.sessions.devices = {"a": "cpu (1 threads) on openblas SkylakeX", "b": f"cpu (2 threads) on openblas {other}"}
        w.sessions.connect("a", "b")
        w.script.free = True
        job = await w.submit("demo", ["a", "b"])
        await w.finished(job.job_id)
        record = json.loads((w.runs.artifact_folder(job.job_id) / "job.json").read_text())
    assert record["platform"] == {"coordinator": asdict(numeric_platform()), "clients": w.sessions.devices}
    assert [n["message"] for n in record["notes"] if "different platforms" in n["message"]] == [DIFFERENT] * differ


async def test_a_job_that_wants_no_report(tmp_path: Path) -> None:
    """It leaves the other files, and no word about a report."""
    async with world(tmp_path, "a", report=True) as w:
        w.script.free = True
        info = await w.runs.submit("report = false\n" + probe_toml("demo", ["a"]), "", "ann")
        assert (await w.finished(info.job_id)).state is JobState.SUCCEEDED
        names = [artifact.name for artifact in await w.runs.artifacts(info.job_id)]
        assert names == ["job.json", "job.toml", "metrics.csv", "metrics.jsonl"]
        assert not any("report.html" in e.event.message for e in await w.store.events(info.job_id))


async def test_a_job_waits_for_a_store_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that goes away as a job begins does not end it: it says so, and begins when the database is back."""
    async with world(tmp_path / "data", "a") as w:
        load, faults = w.store.load_checkpoint, [UnavailableError("the server closed the connection")]

        async def sometimes(job_id: str) -> Any:
            if faults:
                raise faults.pop()
            return await load(job_id)

        monkeypatch.setattr(w.store, "load_checkpoint", sometimes)
        w.script.free = True
        job = await w.submit("one", ["a"])
        said = await w.waiting(job.job_id)
        ended = await w.finished(job.job_id)
    assert said == "waiting: the last checkpoint cannot be read: the server closed the connection"
    assert ended.state is JobState.SUCCEEDED
