"""A coordinator that asks in no order, of no job, twice, and breaks the protocol, meets typed refusals and no crash."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.federation.messages.base import Request
from kernfed.federation.messages.data import DescribeDataRequest, MeanEmbeddingRequest, StandardiseRequest
from kernfed.methods.probe.messages import EchoRequest
from kernfed.methods.ridge.messages import GradientDescentRequest, GradientRequest, LocalSolveRequest
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed.wire.codec import encode
from kernfed.wire.frames import RESPONSE_FRAGMENT_TAG, encode_fragment
from kernfed.wire.outgoing import payload_to_proto
from kernfed_testing.hostile.against_client import SCHEMA, features, victim
from kernfed_testing.hostile.scripted_coordinator import Line
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.nodes import until

pytestmark = pytest.mark.redteam
WRONG = np.zeros((7, 3))
"""Weights of no map."""
QUESTIONS: tuple[Request[Any], ...] = (
    DescribeDataRequest(dataset="default", schema=SCHEMA),
    DescribeDataRequest(dataset="none", schema=SCHEMA),
    StandardiseRequest(classes=(), mean=np.zeros(3), deviation=np.ones(3), median_distance=True),
    StandardiseRequest(classes=("a", "b"), mean=np.zeros(5), deviation=np.ones(5), median_distance=False),
    features(20),
    MeanEmbeddingRequest(num_features=9, num_outputs=4),
    LocalSolveRequest(ridge=1.0, num_features=20, num_outputs=1),
    GradientRequest(weights=WRONG, ridge=1.0),
    GradientDescentRequest(ridge=1.0, weights=WRONG, learning_rate=1.0, num_steps=1, batch_size=0, seed=1),
    EchoRequest(values=np.ones(3)),
)
METHODS = ("probe", "dkrr", "newton", "fedavg", "online", "none", "")


def frame(**task: Any) -> pb.ConnectResponse:
    payload = encode(EchoRequest(values=np.ones(3)))
    fields = {"task_id": "t", "job_id": "j", "step": "probe.echo", "payload": payload_to_proto(payload, 1)}
    return pb.ConnectResponse(task=task_pb2.Task(**{**fields, **task}))


NOISE: tuple[pb.ConnectResponse, ...] = (
    pb.ConnectResponse(),
    pb.ConnectResponse(acks=[task_pb2.TaskAck(task_id="never asked", refused="no" * 5000)]),
    pb.ConnectResponse(cancel=task_pb2.Cancel(job_id="never seen")),
    pb.ConnectResponse(cancel=task_pb2.Cancel(job_id="j", task_id="never asked")),
    pb.ConnectResponse(cancel=task_pb2.Cancel()),
    pb.ConnectResponse(submission=task_pb2.JobSubmission()),
    pb.ConnectResponse(submission=task_pb2.JobSubmission(job_id="k", job_toml="\x00" * 1000)),
    pb.ConnectResponse(revoked_operators=pb.RevocationList(der=b"x")),
)
"""What changes nothing."""
BREACHES: tuple[pb.ConnectResponse | bytes, ...] = (
    b"\x99 this is no frame",
    pb.ConnectResponse(welcome=pb.Welcome(protocol_version=1)),
    frame(task_id="t" * 300),
    pb.ConnectResponse(goodbye=pb.Goodbye(reason="no such reason", message="\x1b[2J" * 1000)),
    pb.ConnectResponse(goodbye=pb.Goodbye()),
)
"""What ends the session."""
REFUSED = (
    frame(step="no.such.step"),
    frame(step=""),
    frame(payload=task_pb2.Payload()),
    frame(payload=task_pb2.Payload(header=b"\xff\xff")),
    frame(payload=task_pb2.Payload(body_size=1 << 62, transfer=5)),
    frame(payload=task_pb2.Payload(body_size=8, inline_body=b"1234")),
    frame(submission_sha256=b"x" * 32),
)
"""Tasks that are answered by a failure."""


async def test_questions_in_no_order(tmp_path: Path) -> None:
    """Forty of three jobs, with noise between them, are answered or refused, each by a reason; the client is there."""
    draw = random.Random(20261129)
    async with victim(tmp_path) as (coordinator, client):
        line = await coordinator.line()
        reasons = []
        for number in range(40):
            await line.send(draw.choice(NOISE))
            job_id = draw.choice(("j", "j", "j", "k", ""))
            await line.ask(job_id, f"{job_id}/{number}", draw.choice(QUESTIONS), draw.choice(METHODS))
            reasons.append(await answer(line))
            if number % 20 == 19:
                await line.send(pb.ConnectResponse(cancel=task_pb2.Cancel(job_id="j")))
        assert "" in reasons
        for task in REFUSED:
            await line.send(task)
            reasons.append(await answer(line))
            assert reasons[-1]
        assert {"INTERNAL", "STEP_FAILED"}.isdisjoint(reasons)
        beats = line.beats
        await until(lambda: line.beats > beats)
        assert client.traces == []


async def answer(line: Line) -> str:
    """Take the next answer; the reason of a failure, or empty."""
    got = await line.answer()
    task_id = got.reply.task_id if got.HasField("reply") else got.failure.task_id
    await line.send(pb.ConnectResponse(acks=[task_pb2.TaskAck(task_id=task_id)]))
    return "" if got.HasField("reply") else got.failure.reason


async def test_breaches_end_the_session_and_nothing_else(tmp_path: Path) -> None:
    """The client dials again; a fragment that nobody announced, or a second copy of a task, is passed by."""
    async with victim(tmp_path) as (coordinator, client):
        for breach in BREACHES:
            line = await coordinator.line()
            await line.send(breach)
            async with asyncio.timeout(LIMIT_S):
                await line.over.wait()
        line = await coordinator.line()
        await line.send(bytes(encode_fragment(RESPONSE_FRAGMENT_TAG, 99, 0, [memoryview(b"12345678")])))
        for _ in range(3):
            await line.send(frame())
        assert await answer(line) == ""
        await line.ask("j", "after", EchoRequest(values=np.ones(3)))
        assert await answer(line) == ""
        assert client.traces == []
