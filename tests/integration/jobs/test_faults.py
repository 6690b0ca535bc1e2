"""Jobs whose clients are late, away, unwilling or wrong; jobs that are cancelled, and jobs that share clients."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from kernfed.errors import JobStateMissingError
from kernfed.federation.events import EventKind, JobState
from kernfed.methods.probe.messages import EchoRequest
from kernfed.methods.ridge.messages import LocalSolveRequest
from kernfed_client.data.local_job import LocalJob
from kernfed_client.steps.registry import STEPS
from kernfed_testing.federation import COLUMNS, Federation, make_csv
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.nodes import until
from kernfed_testing.worlds.gate import Gate

ABC = ["a", "b", "c"]


async def test_straggler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who misses the deadline is listed, the round closes on the quorum, and the next one asks again."""
    gate = Gate(monkeypatch, EchoRequest, "c")
    async with Federation(tmp_path, ABC) as fed:
        job = await fed.submit(fed.job("probe", rounds=8, cohort_min_clients=2, cohort_deadline_s=0.8))
        watching = asyncio.ensure_future(fed.end(job.job_id))  # answers are told only to those who watch at the time
        missing = await fed.event(job.job_id, EventKind.CLIENT_MISSING)
        gate.open()
        ended = await watching
    assert (missing.client, missing.round_num, missing.message) == (
        "c",
        1,
        "no answer by the deadline; still at work on it",
    )
    assert ended.info.state is JobState.SUCCEEDED
    assert len(ended.of(EventKind.ROUND_CLOSED)) == 8
    late = {e.round_num for e in ended.of(EventKind.CLIENT_MISSING, "c")}
    answered = {e.round_num for e in ended.of(EventKind.CLIENT_ANSWERED, "c")}
    assert 8 in answered
    assert late.isdisjoint(answered)
    assert late | answered == set(range(1, 9))


async def test_waits_below_quorum(tmp_path: Path) -> None:
    """Below quorum the job says so beyond the deadline, and goes on when the client is back."""
    async with Federation(tmp_path, ABC, proxied=["c"]) as fed:
        line = fed.proxies["c"]
        line.stall()  # connected, so that the job starts
        job = await fed.submit(fed.job("probe", rounds=2, cohort_min_clients=3, cohort_deadline_s=0.5))
        await fed.event(job.job_id, EventKind.STEP_ASKED)
        line.refuses = True
        line.cut()
        waiting = await fed.event(job.job_id, EventKind.WAITING, message="waiting: 2 of 3 clients (missing: c)")
        assert (await fed.operator.get(job.job_id)).waiting_for == waiting.message
        line.refuses = False
        line.resume()
        ended = await fed.end(job.job_id)
    assert ended.info.state is JobState.SUCCEEDED
    assert ended.info.waiting_for == ""
    assert len(ended.of(EventKind.CLIENT_ANSWERED, "c")) == 2


async def test_gives_up_below_quorum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that stayed below quorum for as long as it may fails, and names who was missing."""
    gate = Gate(monkeypatch, EchoRequest, "c")
    async with Federation(tmp_path, ABC) as fed:
        ended = await fed.run(fed.job("probe", cohort_min_clients=3, cohort_deadline_s=0.3, cohort_wait_s=0.3))
        gate.open()
    assert ended.info.state is JobState.FAILED
    assert ended.info.error_reason == "QUORUM_NOT_MET"
    assert "probe.echo: 2 of 3 clients needed" in ended.info.error_message
    assert "c: no answer in time" in ended.info.error_message


async def test_impossible_quorum_fails_at_once(tmp_path: Path) -> None:
    """A quorum that a refusal makes impossible is not waited for; the operator reads who refused and why."""
    settings = {"c": '[policy]\nmethods = ["newton"]'}
    async with Federation(tmp_path, ABC, settings=settings) as fed:
        ended = await asyncio.wait_for(fed.run(fed.job("probe", cohort_min_clients=3)), LIMIT_S)
    assert ended.info.state is JobState.FAILED
    assert ended.info.error_reason == "QUORUM_NOT_MET"
    assert "c: REFUSED_BY_POLICY" in ended.info.error_message


async def test_policy_refusal_reaches_the_operator(tmp_path: Path) -> None:
    """A job that asks for what a site forbids gets nothing from it, and the operator reads which kind was refused."""
    settings = {"b": '[policy]\nallow = ["summary", "mean_embedding", "metric"]'}
    async with Federation(tmp_path, ABC, settings=settings) as fed:
        ended = await fed.run(fed.job("dkrr", cohort_min_clients=2, cohort_preflight="quorum"))
        audited = (fed.client_folder("b") / "state" / "audit.jsonl").read_text()
    failed = ended.of(EventKind.CLIENT_FAILED)
    assert [(e.client, e.step) for e in failed] == [("b", "data.describe")]
    assert failed[0].reason == "REFUSED_BY_POLICY"
    assert "model_update" in failed[0].message
    assert ended.info.state is JobState.SUCCEEDED
    assert {line["kind"] for line in map(json.loads, audited.splitlines())} == {"refused"}


async def test_bad_data_at_one_client(tmp_path: Path) -> None:
    """A text in a number column refuses the job before round 1; the operator reads client, file, column and row."""
    csv = make_csv("b").splitlines()
    csv[7] = "Jane Doe" + csv[7][csv[7].index(",") :]
    async with Federation(tmp_path, {"a": make_csv("a"), "b": "\n".join(csv), "c": make_csv("c")}) as fed:
        ended = await fed.run(fed.job("newton"))
    text = ended.info.error_message
    assert not ended.of(EventKind.ROUND_OPENED)
    assert ended.info.state is JobState.FAILED
    assert "nothing was trained" in text
    assert "b: INVALID_DATA" in text
    assert COLUMNS[0] in text
    assert "train.csv" in text
    assert "Jane" not in "".join([text, *(e.message for e in ended.events)])


async def test_unexpected_error_in_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that breaks is told by the error's class alone; the client's next answer counts again."""
    honest = STEPS[LocalSolveRequest]

    def broken(job: LocalJob, request: Any) -> Any:
        if job.client == "b":
            raise RuntimeError("row 3: Jane Doe")
        return honest(job, request)

    monkeypatch.setitem(STEPS, LocalSolveRequest, broken)
    async with Federation(tmp_path, ABC) as fed:
        ended = await fed.run(fed.job("dkrr", cohort_min_clients=2))
        assert fed.sessions.present() == set(ABC)
        assert (await fed.run(fed.job("probe", cohort_min_clients=3))).info.state is JobState.SUCCEEDED
    failed = ended.of(EventKind.CLIENT_FAILED)
    assert [e.client for e in failed] == ["b"]
    assert failed[0].reason == "STEP_FAILED"
    assert failed[0].message.startswith("ridge.local_solve: unexpected RuntimeError")
    assert "Jane" not in failed[0].message


async def test_device_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose file asks for a device that it lacks says so to the operator, in its listing and in each step."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    async with Federation(tmp_path, ABC, idle=["c"]) as fed:
        file = fed.client_folder("c") / "client.toml"
        file.write_text(file.read_text().replace('device = "cpu"', 'device = "cuda"'))
        await fed.clients["c"].start()
        await until(lambda: fed.sessions.clients().get("c") is not None and fed.sessions.clients()["c"].device != "")
        assert {c.name: c.device for c in await fed.operator.clients()}["c"] == "none"
        ended = await fed.run(fed.job("dkrr", cohort_preflight="quorum"))
    assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
    assert [e.client for e in ended.of(EventKind.CLIENT_FAILED)] == ["c"]
    assert "device 'cuda' is not there" in ended.of(EventKind.CLIENT_FAILED)[0].message


async def test_client_that_lost_its_state_is_prepared_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose state is gone, on disk too, is taken through the setup again and answers in the same round."""
    honest = STEPS[LocalSolveRequest]
    lost: list[LocalJob] = []

    def forgetful(job: LocalJob, request: Any) -> Any:
        if job.client == "b" and not lost:
            lost.append(job)
            LocalJob.__init__(job, job.job_id, job.client, job.file, folder=job.folder)
            raise JobStateMissingError("nothing is prepared")
        return honest(job, request)

    async with Federation(tmp_path, ABC) as fed:
        undisturbed = await fed.model_sha256(await fed.run(fed.job("dkrr")))
    monkeypatch.setitem(STEPS, LocalSolveRequest, forgetful)
    async with Federation(tmp_path / "again", ABC) as fed:
        ended = await fed.run(fed.job("dkrr", cohort_min_clients=3))
        assert await fed.model_sha256(ended) == undisturbed
    assert lost


async def test_cancel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancelled job ends at once though a client computes; that client then works for the next job."""
    gate = Gate(monkeypatch, EchoRequest, "a")
    async with Federation(tmp_path, ABC) as fed:
        job = await fed.submit(fed.job("probe", rounds=50))
        await gate.wait_reached()
        await until(lambda: gate.calls == {"a": 1, "b": 1, "c": 1})  # the others begin when their data are loaded
        start = time.monotonic()
        assert (await fed.operator.cancel(job.job_id)).state is JobState.CANCELLED
        assert time.monotonic() - start < LIMIT_S / 2
        await until(lambda: not fed.daemons["a"].session.tasks.busy_task_ids)
        gate.open()
        ended = await fed.run(fed.job("probe", rounds=1, cohort_min_clients=3))
        calls = dict(gate.calls)
        cancelled = await fed.end(job.job_id)
    assert ended.info.state is JobState.SUCCEEDED
    assert calls == {"a": 2, "b": 2, "c": 2}
    assert [e.message for e in cancelled.of(EventKind.STATE)][-1] == "cancelled by ann"


async def test_cancel_with_work_queued_at_a_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits at a client for its turn when the job is cancelled is never computed."""
    gate = Gate(monkeypatch, EchoRequest, "a")
    async with Federation(tmp_path, ["a"], coordinator="jobs_per_client = 2") as fed:
        first = await fed.submit(fed.job("probe", rounds=1))
        await gate.wait_reached()
        second = await fed.submit(fed.job("probe", rounds=1))
        await until(lambda: len(fed.daemons["a"].session.tasks.busy_task_ids) == 2)
        await fed.operator.cancel(second.job_id)
        await until(lambda: len(fed.daemons["a"].session.tasks.busy_task_ids) == 1)
        gate.open()
        assert (await fed.end(first.job_id)).info.state is JobState.SUCCEEDED
        assert (await fed.run(fed.job("probe", rounds=1))).info.state is JobState.SUCCEEDED
    assert gate.calls == {"a": 2}


async def test_jobs_share_the_federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs on other clients run at the same time; one that shares a client waits for it."""
    gate = Gate(monkeypatch, EchoRequest, "a")
    async with Federation(tmp_path, ["a", "b", "c", "d"]) as fed:
        first = await fed.submit(fed.job("probe", ["a", "b"], rounds=1))
        await gate.wait_reached()
        beside = await asyncio.wait_for(fed.run(fed.job("probe", ["c", "d"], rounds=1)), LIMIT_S)
        assert beside.info.state is JobState.SUCCEEDED
        third = await fed.submit(fed.job("probe", ["b", "c"], rounds=1))
        waiting = await fed.event(third.job_id, EventKind.WAITING)
        assert waiting.message == f"waiting: b works for {first.job_id}"
        assert (await fed.operator.get(first.job_id)).state is JobState.RUNNING
        gate.open()
        for job in (first, third):
            assert (await fed.end(job.job_id)).info.state is JobState.SUCCEEDED


@pytest.mark.parametrize("payload_bytes", [8, 64 << 10, (64 << 10) + 8, (1 << 20) - 8, 1 << 20, 4 << 20, (4 << 20) + 8])
async def test_bodies_of_every_way(tmp_path_factory: pytest.TempPathFactory, payload_bytes: int) -> None:
    """Bodies inside a frame, in one fragment, in several, in memory and on disk arrive as they were sent."""
    async with Federation(tmp_path_factory.mktemp("fed"), ["a", "b"]) as fed:
        ended = await fed.run(fed.job("probe", rounds=1, payload_bytes=payload_bytes, cohort_min_clients=2))
    assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
