"""A client with a valid certificate whose replies break the protocol hurts itself only."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import psutil
import pytest
import pytest_asyncio

from kernfed.arrays import Floats
from kernfed.federation.events import EventKind, JobState
from kernfed.federation.messages.base import Reply
from kernfed.federation.messages.data import Standardised
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import ridge_pb2, task_pb2
from kernfed_testing.federation import Federation
from kernfed_testing.hostile import peers as hostile
from kernfed_testing.hostile.peers import STEP, TRIO, job, mallory, with_reply
from kernfed_testing.hostile.scripted_client import Misbehave, ScriptedClient, hello
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.nodes import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
fed, no_trace = hostile.fed, hostile.no_trace

BODY_SIZE = 160
"""Weights of 20 features and one output."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def expected(fed: Federation) -> str:
    """The model that the honest clients make when mallory says that it cannot."""

    async def decline(client: ScriptedClient, task: task_pb2.Task, _reply: Reply) -> bool:
        failure = task_pb2.TaskFailure(task_id=task.task_id, reason="STEP_FAILED", message="cannot")
        await client.send(pb.ConnectRequest(failure=failure))
        return False

    async with mallory(fed, decline):
        ended = await fed.run(job(fed))
    assert [(e.reason, e.message) for e in ended.of(EventKind.CLIENT_FAILED)] == [("STEP_FAILED", "cannot")]
    return await fed.model_sha256(ended)


def with_payload(**changes: Any) -> Misbehave:
    """Answer with a payload whose fields are changed."""

    async def misbehave(client: ScriptedClient, task: task_pb2.Task, reply: Any) -> bool:
        header = ridge_pb2.LocalModel(num_rows=reply.num_rows)
        payload = {"header": header.SerializeToString(), **changes}
        frame = task_pb2.TaskReply(task_id=task.task_id, payload=task_pb2.Payload(**payload))
        await client.send(pb.ConnectRequest(reply=frame))
        return False

    return misbehave


def poisoned(value: float) -> Floats:
    weights = np.zeros((20, 1))
    weights[7] = value
    return weights


REFUSED = {
    "nan": (with_reply(lambda r: replace(r, weights=poisoned(np.nan))), "INVALID_TENSOR: LocalModel.weights holds NaN"),
    "infinity": (with_reply(lambda r: replace(r, weights=poisoned(-np.inf))), "INVALID_TENSOR"),
    "fewer numbers": (
        with_reply(lambda r: replace(r, weights=r.weights[:3])),
        "INVALID_TENSOR: LocalModel.weights: want",
    ),
    "transposed": (with_reply(lambda r: replace(r, weights=r.weights.T)), "INVALID_TENSOR"),
    "more axes": (with_reply(lambda r: replace(r, weights=r.weights[None])), "INVALID_TENSOR"),
    "no number": (with_reply(lambda r: replace(r, weights=np.empty((0, 1)))), "INVALID_TENSOR"),
    "integers": (with_reply(lambda r: replace(r, weights=np.ones((3, 7), np.int64))), "INVALID_TENSOR"),
    "no tensor": (with_payload(), "INVALID_MESSAGE: LocalModel.weights is missing"),
    "no rows": (with_reply(lambda r: replace(r, num_rows=0)), "INVALID_REPLY"),
    "a row more": (with_reply(lambda r: replace(r, num_rows=r.num_rows + 1)), "INVALID_REPLY"),
    "-1 rows": (with_reply(lambda r: replace(r, num_rows=2**64 - 1)), "INVALID_MESSAGE: LocalModel.num_rows"),
    "2^60 rows": (with_reply(lambda r: replace(r, num_rows=2**60)), "INVALID_MESSAGE: LocalModel.num_rows"),
    "another step": (with_reply(lambda r: Standardised(num_rows=r.num_rows, median_distance=1.0)), "INVALID_MESSAGE"),
    "no header": (with_payload(header=b"\xff\xff\xff"), "INVALID_MESSAGE: LocalModel: not a"),
    "inline body of another size": (with_payload(body_size=8, inline_body=b"1234"), "INVALID_"),
    "body too large": (with_payload(body_size=9 << 30, transfer=5), "PAYLOAD_TOO_LARGE"),
    "endless body": (with_payload(body_size=2**63, transfer=5), "PAYLOAD_TOO_LARGE"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_reply_is_refused(fed: Federation, expected: str, case: str) -> None:
    """Only the liar is out of the round, with a reason; its session goes on, and the aggregate is the others'."""
    misbehave, reason = REFUSED[case]
    before = psutil.Process().memory_info().rss
    async with mallory(fed, misbehave) as client:
        ended = await fed.run(job(fed))
        assert not client.over.done()
        assert [a.refused for a in client.acks if STEP in a.task_id and a.refused]
    failed = ended.of(EventKind.CLIENT_FAILED)
    assert [(e.client, e.step) for e in failed] == [("mallory", STEP)]
    assert failed[0].text.startswith(reason)
    assert await fed.model_sha256(ended) == expected
    assert psutil.Process().memory_info().rss - before < 200 << 20


async def test_nan_in_a_large_body(fed: Federation) -> None:
    """A NaN in a body that goes to disk is found as it arrives; the rest is let pass, and the session lives."""
    values = np.ones(1_000_000)
    values[300_000] = np.nan

    async def poison(client: ScriptedClient, task: task_pb2.Task, reply: Any) -> bool:
        body = await client.announce(task.task_id, replace(reply, values=values), 3)
        for offset in range(0, len(body), 1 << 20):
            await client.send_fragment(3, offset, body[offset : offset + (1 << 20)])
        return False

    folder = fed.client_folder("mallory")
    async with ScriptedClient(folder, fed.ports.federation, misbehave=poison) as client:
        ended = await fed.run(fed.job("probe", TRIO, payload_bytes=8_000_000, rounds=2, cohort_min_clients=2))
        assert not client.over.done()
    await fed.wait_disconnected("mallory")
    assert ended.info.state is JobState.SUCCEEDED
    assert [e.reason for e in ended.of(EventKind.CLIENT_FAILED, "mallory")] == ["INVALID_TENSOR"] * 2
    assert not list((fed.root / "data" / "spool").iterdir())


async def out_of_order(client: ScriptedClient, task: task_pb2.Task, reply: Any) -> bool:
    body = await client.announce(task.task_id, reply, 9)
    await client.send_fragment(9, 64, body[64:128])
    return False


async def beyond_size(client: ScriptedClient, task: task_pb2.Task, reply: Any) -> bool:
    body = await client.announce(task.task_id, reply, 9)
    await client.send_fragment(9, 0, body + bytes(64))
    return False


async def through_a_number(client: ScriptedClient, task: task_pb2.Task, reply: Any) -> bool:
    body = await client.announce(task.task_id, reply, 9)
    await client.send_fragment(9, 0, body[:12])
    return False


async def unannounced(client: ScriptedClient, _task: task_pb2.Task, _reply: Reply) -> bool:
    await client.send_fragment(9, 0, bytes(64))
    return False


async def announced_twice(client: ScriptedClient, task: task_pb2.Task, reply: Any) -> bool:
    await client.announce(task.task_id, reply, 9)
    await client.announce(task.task_id, reply, 10)
    return False


async def garbage(client: ScriptedClient, _task: task_pb2.Task, _reply: Reply) -> bool:
    await client.send_bytes(b"\x99 this is no frame")
    return False


async def half_a_fragment(client: ScriptedClient, _task: task_pb2.Task, _reply: Reply) -> bool:
    await client.send_bytes(b"\x2a\x7f\x08\x01")
    return False


async def huge_frame(client: ScriptedClient, _task: task_pb2.Task, _reply: Reply) -> bool:
    await client.send_bytes(bytes(6 << 20))
    return False


async def empty_frame(client: ScriptedClient, _task: task_pb2.Task, _reply: Reply) -> bool:
    await client.send_bytes(b"")
    return False


async def second_hello(client: ScriptedClient, _task: task_pb2.Task, _reply: Reply) -> bool:
    await client.send(hello())
    return False


VIOLATIONS = [
    out_of_order,
    beyond_size,
    through_a_number,
    unannounced,
    announced_twice,
    garbage,
    half_a_fragment,
    huge_frame,
    empty_frame,
    second_hello,
]


@pytest.mark.parametrize("violation", VIOLATIONS)
async def test_violation_ends_the_session(fed: Federation, expected: str, violation: Misbehave) -> None:
    """A frame that the protocol forbids ends that session with a reason; the job goes on without its client."""
    async with mallory(fed, violation) as client:
        ended = await fed.run(job(fed))
        error = await asyncio.wait_for(client.over, LIMIT_S)
    assert error is not None
    assert error.reason in ("INVALID_MESSAGE", "RESOURCE_EXHAUSTED")
    assert {e.client for e in ended.events if e.kind in (EventKind.CLIENT_FAILED, EventKind.CLIENT_MISSING)} == {
        "mallory"
    }
    assert await fed.model_sha256(ended) == expected


async def test_reply_for_unknown_task(fed: Federation) -> None:
    """A reply that nobody asked for is declined, body and all, and costs nothing else."""

    async def unasked(client: ScriptedClient, task: task_pb2.Task, reply: Any) -> bool:
        await client.send_reply("no-such-job/1/ridge.local_solve", reply)
        body = await client.announce(task.job_id + "/7/x", reply, 11)
        await client.send_fragment(11, 0, body)
        return True

    async with mallory(fed, unasked) as client:
        ended = await fed.run(job(fed))
        assert not client.over.done()
        refused = [a.task_id for a in client.acks if a.refused]
    assert refused == ["no-such-job/1/ridge.local_solve", f"{ended.info.job_id}/7/x"]
    assert ended.info.state is JobState.SUCCEEDED
    assert not ended.of(EventKind.CLIENT_FAILED)


async def test_duplicate_reply_counts_once(fed: Federation) -> None:
    """The same reply twice counts once."""

    async def twice(client: ScriptedClient, task: task_pb2.Task, reply: Any) -> bool:
        await client.send_reply(task.task_id, reply)
        return True

    async with mallory(fed, twice):
        ended = await fed.run(job(fed))
    assert ended.info.state is JobState.SUCCEEDED
    assert len([e for e in ended.of(EventKind.CLIENT_ANSWERED, "mallory") if e.step == STEP]) == 1


async def test_second_different_reply(fed: Federation, expected: str) -> None:
    """Of two replies to a task the first counts; the same again is acknowledged, another refused and reported."""

    async def thrice(client: ScriptedClient, task: task_pb2.Task, reply: Any) -> bool:
        for values in (reply.weights, reply.weights, reply.weights + 1.0):
            await client.send_reply(task.task_id, replace(reply, weights=values))
        return False

    async with mallory(fed, thrice) as client:
        ended = await fed.run(job(fed))
        await until(lambda: len([a for a in client.acks if STEP in a.task_id]) == 3)
        assert not client.over.done()
        refused = [a.refused for a in client.acks if STEP in a.task_id]
    assert refused == ["", "", "another reply to this task was counted before"]
    assert ended.info.state is JobState.SUCCEEDED
    assert not ended.of(EventKind.CLIENT_FAILED)
    assert [e.client for e in ended.of(EventKind.NOTE) if "the first one counts" in e.message] == ["mallory"]
    async with mallory(fed):
        honest = await fed.run(job(fed))
    assert await fed.model_sha256(ended) == await fed.model_sha256(honest) != expected
