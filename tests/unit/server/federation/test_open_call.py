"""A step that is asked of clients over their sessions: who gets it, who answers, who is waited for; no sockets."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from kernfed.errors import InvalidTensorError, QuorumNotMetError
from kernfed.federation.cohort import Cohort
from kernfed.federation.events import EventKind, JobEvent, JobState
from kernfed.federation.exchange import Fault
from kernfed.federation.messages.data import CentreRequest
from kernfed.federation.messages.later_fields import later_fields
from kernfed.federation.quorum import Quorum
from kernfed.federation.setup import NOTHING, SetupChain
from kernfed.jobs.info import JobInfo
from kernfed.methods.personalise.messages import SolveWeightsRequest
from kernfed.methods.probe.messages import EchoRequest
from kernfed.pki.submission import sha256_of
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed_server.federation import holding
from kernfed_server.federation.exchange import RemoteExchange
from kernfed_server.federation.session import SessionLimits
from kernfed_server.federation.sessions import SessionRegistry
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.nodes import until
from kernfed_testing.worlds.session_calls import TASK, Asked, connect, drain, opened, said, tasks


@pytest.fixture
def registry(tmp_path: Path) -> SessionRegistry:
    return SessionRegistry(SessionLimits(heartbeat_timeout_s=20.0), tmp_path)


async def test_task_goes_to_those_there_and_to_those_who_come(registry: SessionRegistry) -> None:
    """A task reaches clients that are there and that come later, and nobody twice."""
    a = connect(registry, "a")
    asked = await Asked(registry, ["a", "b"], min_clients=2).begun()
    b = connect(registry, "b")
    other = connect(registry, "c")
    assert [await tasks(s) for s in (a, b, other)] == [[TASK], [TASK], []]
    registry.closed(a)
    a = connect(registry, "a", known_task_ids=[TASK])  # it computes, or its answer is on the way
    assert await tasks(a) == []
    asked.reply(a)
    asked.reply(b)
    assert list(await asked.result()) == ["a", "b"]
    assert registry.call(TASK) is None


async def test_another_request_of_a_known_task_is_sent(registry: SessionRegistry) -> None:
    """A client that knows the task by another request gets it, and its answer to that one is not taken."""
    a = connect(registry, "a", known_task_ids=[TASK], known_requests_sha256=[b"before"])
    asked = await Asked(registry, ["a"], min_clients=1).begun()
    [sent] = [f.task for f in await drain(a) if f.HasField("task")]
    call = opened(registry)
    assert not call.asked("a", b"before")
    assert call.asked("a", sent.request_sha256)
    registry.closed(a)
    a = connect(registry, "a", known_task_ids=[TASK], known_requests_sha256=[sent.request_sha256])
    assert await tasks(a) == []
    asked.reply(a)
    assert list(await asked.result()) == ["a"]


async def test_a_task_says_on_what_setup_its_answer_stands(registry: SessionRegistry) -> None:
    """Each client's own, of one request; the digest of no setup goes to a client whose preparation is not whole."""
    a, b, c = (connect(registry, name) for name in "abc")
    asked = Asked(registry, ["a", "b", "c"], min_clients=3)
    link = (CentreRequest.step, "11" * 32)
    setup = {"chains": [[[link], ["a"]]], "broken": ["b"]}
    asked.cohort.reopen({"stated": {}, "excluded": {}, "setup": setup})
    await asked.begun()
    sent = [[f.task for f in await drain(session) if f.HasField("task")] for session in (a, b, c)]
    assert [[task.setup_sha256 for task in tasks] for tasks in sent] == [
        [SetupChain([link]).under(EchoRequest)],
        [bytes(32)],
        [NOTHING],
    ]
    assert len({task.payload.SerializeToString() + task.request_sha256 for [task] in sent}) == 1
    for session in (a, b, c):
        asked.reply(session)
    await asked.result()


async def test_who_would_pass_over_what_is_asked_is_not_asked(registry: SessionRegistry) -> None:
    """A client of a release that does not know a field of the request is left out, with the remedy."""
    request = SolveWeightsRequest(exact=True, c_q=1.0, c_p=1.0, bound=1.0, theorem_q=True)
    fields = list(later_fields(SolveWeightsRequest))
    a = connect(registry, "a", later_fields=fields)
    b = connect(registry, "b", software_version="0.0.9", later_fields=[f for f in fields if "theorem" not in f])
    c = connect(registry, "c")
    events: list[JobEvent] = []
    exchange = RemoteExchange(registry, "ann", "personalise")
    cohort = Cohort(exchange, "abc", job_id="job", quorum=Quorum(min_clients=2), observe=events.append)
    asking = asyncio.ensure_future(cohort.ask(request))
    with pytest.raises(
        QuorumNotMetError, match=r"b: VERSION_MISMATCH: its release of kernfed \(0\.0\.9\) does not know"
    ):
        await asyncio.wait_for(asking, LIMIT_S)
    assert [await tasks(s) for s in (b, c)] == [[], []]
    assert len(await tasks(a)) <= 1
    failed = [e for e in events if e.kind is EventKind.CLIENT_FAILED]
    assert {(e.client, e.reason) for e in failed} == {("b", "VERSION_MISMATCH"), ("c", "VERSION_MISMATCH")}
    assert "personalise.solve_weights: theorem_q" in failed[0].message


UNPROVEN = Fault("UNPROVEN_JOB", "the job is not signed by its operator")
OLD = JobInfo("job", "job", "probe", JobState.RUNNING, "ann", datetime.now(UTC), job_toml="text")


async def test_a_job_without_a_signature_waits_for_one(registry: SessionRegistry) -> None:
    """Who asks for a signature is no fault: the wait says what to do, and once signed the client is asked again."""
    a, b = connect(registry, "a"), connect(registry, "b")
    asked = await Asked(registry, ["a", "b"], min_clients=2).begun()
    assert [await tasks(a), await tasks(b)] == [[TASK], [TASK]]
    call = opened(registry)
    call.on_fault("a", UNPROVEN)
    asked.reply(b)
    await asyncio.sleep(0)
    assert asked.of(EventKind.WAITING) == [
        ("", "waiting for the signature of ann, which a asks for: kernfed job sign job")
    ]
    submission = task_pb2.Submission(statement=b"signed")
    registry.sign(OLD, submission)
    told, again = await drain(a)
    assert told.submission.submission == submission
    assert (again.task.task_id, again.task.submission_sha256) == (TASK, sha256_of(submission))
    asked.reply(a)
    assert list(await asked.result()) == ["a", "b"]
    assert asked.of(EventKind.CLIENT_FAILED) == []


async def test_a_refusal_that_crosses_the_signature(registry: SessionRegistry) -> None:
    """A client that refuses the task as it was before the signature is asked again, once; after that it is a fault."""
    a = connect(registry, "a")
    asked = await Asked(registry, ["a"], min_clients=1).begun()
    refusal = task_pb2.TaskFailure(task_id=TASK, reason=UNPROVEN.reason, message=UNPROVEN.message)
    registry.sign(OLD, task_pb2.Submission(statement=b"signed"))
    await tasks(a)
    await said(registry, a, pb.ConnectRequest(failure=refusal))
    assert opened(registry).unanswered == ("a",)
    assert [f.HasField("submission") for f in await drain(a) if not f.acks] == [True, False]
    await said(registry, a, pb.ConnectRequest(failure=refusal))
    with pytest.raises(QuorumNotMetError, match="not signed"):
        await asked.result()


async def test_a_quorum_does_not_wait_long_for_a_signature(registry: SessionRegistry) -> None:
    """Clients that ask for one are waited for like those away: once, for the grace; later steps close at once."""
    connect(registry, "a"), connect(registry, "b")
    for grace in (0.0, 1e6):
        asked = await Asked(registry, ["a", "b"], min_clients=1, min_fraction=0.5, grace_s=grace).begun()
        call, b = opened(registry), registry.get("b")
        assert b is not None
        call.on_fault("a", UNPROVEN)
        asked.reply(b)
        if grace:
            await asyncio.sleep(0)
            assert "a (not connected, or asks for a signature) until" in asked.of(EventKind.WAITING)[0][1]
            asked.asking.cancel()
            continue
        assert list(await asked.result()) == ["b"]
        [(client, why)] = asked.of(EventKind.CLIENT_MISSING)
        assert (client, "kernfed job sign" in why) == ("a", True)


UNAPPROVED = pb.ConnectRequest(failure=task_pb2.TaskFailure(task_id=TASK, reason="AWAITS_APPROVAL", message="not yet"))
DECIDED = pb.ConnectRequest(heartbeat=pb.Heartbeat(decided_job_ids=["other", "job"]))


async def test_a_job_waits_for_a_site_to_approve_it(registry: SessionRegistry) -> None:
    """Who waits for people at its site is no fault: the wait says until when, and by a word of theirs it is asked."""
    a, b = connect(registry, "a"), connect(registry, "b")
    asked = await Asked(registry, ["a", "b"], min_clients=2).begun()
    await tasks(a), await tasks(b)
    await said(registry, a, DECIDED)  # of what never waited
    await said(registry, a, UNAPPROVED)
    asked.reply(b)
    await asyncio.sleep(0)
    [(_, waits)] = asked.of(EventKind.WAITING)
    assert re.fullmatch(r"waiting for approval at a until \d\d\d\d-\d\d-\d\d \d\d:\d\d UTC", waits)  # a day: wait_s
    await said(registry, b, DECIDED)  # it has no say at a
    assert await tasks(a) == []
    await said(registry, a, DECIDED)
    assert await tasks(a) == [TASK]
    registry.closed(a)
    a = connect(registry, "a")  # each session asks anew, and the client says again that it waits
    assert await tasks(a) == [TASK]
    await said(registry, a, UNAPPROVED)
    await said(registry, a, DECIDED)
    asked.reply(a)
    assert list(await asked.result()) == ["a", "b"]
    assert asked.of(EventKind.CLIENT_FAILED) == []


async def test_a_quorum_does_not_wait_long_for_approval(registry: SessionRegistry) -> None:
    """A site that has not approved a job is waited for like one that is away, and a step says why it went without."""
    a, b = connect(registry, "a"), connect(registry, "b")
    for grace in (0.0, 60.0):
        asked = await Asked(registry, ["a", "b"], min_clients=1, min_fraction=0.5, grace_s=grace).begun()
        await said(registry, a, UNAPPROVED)
        asked.reply(b)
        if grace:
            await asyncio.sleep(0)
            assert asked.of(EventKind.WAITING)[0][1].startswith("waiting for approval at a until ")
            asked.asking.cancel()
            continue
        assert list(await asked.result()) == ["b"]
        assert "the job waits for approval there" in asked.of(EventKind.CLIENT_MISSING)[0][1]


async def test_a_client_that_decides_without_end_is_out_of_the_step(
    registry: SessionRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that has itself asked again over and over, by words of its site, gets its task so often and no more."""
    monkeypatch.setattr(holding, "MAX_ASKED_AGAIN", 3)
    a = connect(registry, "a")
    asked = await Asked(registry, ["a"], min_clients=1).begun()
    for _ in range(5):
        await said(registry, a, UNAPPROVED)
        await said(registry, a, DECIDED)
    assert len(await tasks(a)) <= 4
    with pytest.raises(QuorumNotMetError, match="its site decides on the job over and over"):
        await asked.result()


async def test_a_wait_is_told_where_the_absent_alone_are_missing(registry: SessionRegistry) -> None:
    """While b computes nothing is said of c, who is away; once a and b have answered, until when c is waited for."""
    a, b = connect(registry, "a"), connect(registry, "b")
    asked = await Asked(registry, ["a", "b", "c"], min_fraction=0.3).begun()
    asked.reply(a)
    for _ in range(20):  # turns of the loop in which the waiting side looks
        await asyncio.sleep(0)
    assert asked.of(EventKind.WAITING) == []
    asked.reply(b)
    async with asyncio.timeout(LIMIT_S):
        while not (said := asked.of(EventKind.WAITING)):
            await asyncio.sleep(0)
    assert said[0][1].startswith("waiting for c (not connected) until ")
    asked.asking.cancel()
    await asyncio.wait([asked.asking])


async def test_answered_task_is_not_sent_again(registry: SessionRegistry) -> None:
    """A client that has answered and comes again does not get the task."""
    a = connect(registry, "a")
    asked = await Asked(registry, ["a", "b"], min_clients=2).begun()
    asked.reply(a)
    registry.closed(a)
    assert await tasks(connect(registry, "a")) == []
    asked.asking.cancel()
    await asyncio.wait([asked.asking])


async def test_straggler_is_told_to_stop(registry: SessionRegistry) -> None:
    """A client without an answer at the deadline is told to stop."""
    a, b = connect(registry, "a"), connect(registry, "b", known_task_ids=[TASK])
    asked = await Asked(registry, ["a", "b"], min_clients=1, deadline_s=0.05).begun()
    asked.reply(a)
    assert list(await asked.result()) == ["a"]
    assert asked.of(EventKind.CLIENT_MISSING) == [("b", "no answer by the deadline")]
    cancels = [f.cancel for f in await drain(b) if f.HasField("cancel")]
    assert cancels == [task_pb2.Cancel(job_id="job", task_id=TASK, why="the step is closed")]
    assert b.known_tasks == {}
    assert registry.why_unwanted(TASK).startswith("this reply came too late: round ")
    assert registry.why_unwanted(TASK).endswith("is closed; no step of the job is open")
    assert registry.why_unwanted("another") == "this reply is not wanted (any more)"


@pytest.mark.parametrize("connected", [True, False])
async def test_straggler_that_works_is_told_from_one_that_is_gone(registry: SessionRegistry, connected: bool) -> None:
    """The event of a missing answer says whether the client works or is gone."""
    a, b = connect(registry, "a"), connect(registry, "b")
    asked = await Asked(registry, ["a", "b"], min_clients=1, deadline_s=0.05).begun()
    asked.reply(a)
    if connected:
        b.busy = frozenset({TASK})
    else:
        registry.closed(b)
    await asked.result()
    why = "still at work on it" if connected else "not connected"
    assert asked.of(EventKind.CLIENT_MISSING) == [("b", f"no answer by the deadline; {why}")]


async def test_a_step_that_closes_before_its_deadline_names_the_grace(registry: SessionRegistry) -> None:
    """A client without a session is not waited for until the deadline, and the event says which time was over."""
    a, b = connect(registry, "a"), connect(registry, "b")
    asked = await Asked(registry, ["a", "b"], min_clients=1, deadline_s=100.0, grace_s=0.0).begun()
    registry.closed(b)
    asked.reply(a)
    await asked.result()
    why = "no answer in the time that cohort.grace_s gives; not connected"
    assert asked.of(EventKind.CLIENT_MISSING) == [("b", why)]


async def test_counted_replies_are_known_until_the_job_ends(registry: SessionRegistry) -> None:
    """A reply that counted is known, and a second one is noted, until the job ends."""
    a = connect(registry, "a")
    asked = await Asked(registry, ["a", "b"], min_clients=1, deadline_s=0.05).begun()
    assert registry.counted(TASK, "a") is None
    asked.reply(a)
    assert registry.counted(TASK, "a") is not None
    counted = registry.counted(TASK, "a")
    await asked.result()
    assert registry.counted(TASK, "a") == counted
    assert registry.counted(TASK, "b") is None
    for _ in range(100):
        registry.report_second_reply(TASK, "a")
    assert [client for client, text in asked.of(EventKind.NOTE) if "the first one counts" in text] == ["a"]
    registry.end_job("job", "over")
    assert registry.counted(TASK, "a") is None


async def test_waiting_is_said_once_and_taken_back(registry: SessionRegistry) -> None:
    """A wait for clients is told once and taken back when they are there."""
    a = connect(registry, "a")
    asked = await Asked(registry, ["a", "b"], min_clients=2).begun()
    text = "waiting: 1 of 2 clients (missing: b)"

    async def told(*texts: str) -> None:
        await until(lambda: len(asked.of(EventKind.WAITING)) >= len(texts))
        assert [m for _, m in asked.of(EventKind.WAITING)] == list(texts)

    await told(text)
    b = connect(registry, "b")
    await told(text, "")
    registry.closed(b)
    await told(text, "", text)
    asked.reply(a)
    asked.reply(connect(registry, "b"))
    await asked.result()
    await told(text, "", text, "")


async def test_wrong_reply_fails_its_client(registry: SessionRegistry) -> None:
    """A reply of the wrong shape fails its client and not the step."""
    a, b = connect(registry, "a"), connect(registry, "b")
    asked = await Asked(registry, ["a", "b"], min_clients=1).begun()
    with pytest.raises(InvalidTensorError, match="want shape") as caught:
        asked.reply(a, np.ones(4))
    opened(registry).on_fault("a", Fault.of(caught.value))
    asked.reply(b)
    assert list(await asked.result()) == ["b"]
    assert [e.reason for e in asked.events if e.kind is EventKind.CLIENT_FAILED] == ["INVALID_TENSOR"]


async def test_lost_state_does_not_cost_the_quorum(registry: SessionRegistry) -> None:
    """The step closes with who lost its state, so that the cohort can prepare it and ask again, a few times."""
    a, b = connect(registry, "a"), connect(registry, "b")
    asked = await Asked(registry, ["a", "b"], min_clients=2).begun()
    asked.reply(a)
    opened(registry).on_fault("b", Fault("JOB_STATE_MISSING", "nothing is prepared"))
    again = [f"{TASK}/again{num}" for num in ("", 2, 3)]
    for task in again:
        async with asyncio.timeout(LIMIT_S):
            while registry.call(task) is None:
                await asyncio.sleep(0)
        opened(registry, task).on_fault("b", Fault("JOB_STATE_MISSING", "still"))
    assert await tasks(b) == [TASK, *again]
    assert await tasks(a) == [TASK]
    with pytest.raises(QuorumNotMetError, match="b: JOB_STATE_MISSING: still"):
        await asked.result()
