"""A hostile value in every field of a session's messages: it is refused by a typed error, or does nothing.

The fields are read from the messages, so one that is new fails here until it has hostile values.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from kernfed.errors import KernfedError
from kernfed.federation.events import EventKind
from kernfed.methods.probe.messages import Echo
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed.wire.codec import encode
from kernfed.wire.frames import MAX_HEARTBEAT_S, MAX_SILENCE_S, MAX_TEXT, PROTOCOL_VERSION
from kernfed.wire.outgoing import Outgoing, payload_to_proto
from kernfed_client.daemon.answering import Answering
from kernfed_client.daemon.connection import Connection, welcomed
from kernfed_client.daemon.idle_cuts import IdleCuts
from kernfed_client.daemon.worker import Worker
from kernfed_server.federation.session import SessionLimits
from kernfed_server.federation.sessions import SessionRegistry
from kernfed_testing.worlds.session_calls import REQUEST, TASK, Asked, connect, drain, said
from kernfed_testing.worlds.task_world import World

LONG = "x" * 100_000
NAMES = ("", LONG, "../../etc/passwd", "\0", "\x1b[2J\n", "\N{RIGHT-TO-LEFT OVERRIDE}")
DIGESTS = (b"", b"\0", b"\xff" * 100_000)
COUNTS = (0, 2**32 - 1)
TIMES = (Duration(), Duration(seconds=-(2**62), nanos=-1), Duration(seconds=2**62, nanos=2**31 - 1))
PAYLOADS = (
    task_pb2.Payload(),
    task_pb2.Payload(header=b"\xff" * 100),
    task_pb2.Payload(header=encode(REQUEST).header, body_size=2**63, transfer=2**32 - 1),
    task_pb2.Payload(header=encode(REQUEST).header, body_size=7, inline_body=b"\xff" * 7),
)

FIELDS: Mapping[type[Message], Mapping[str, Sequence[Any]]] = {
    task_pb2.Task: {
        "task_id": NAMES,
        "job_id": NAMES,
        "round": COUNTS,
        "step": NAMES,
        "payload": PAYLOADS,
        "deadline": TIMES,
        "float_bits": (0, 1, 33, 2**32 - 1),
        "submitted_by": NAMES,
        "method": NAMES,
        "request_sha256": DIGESTS,
        "cohort_size": COUNTS,
        "submission_sha256": DIGESTS,
        "setup_sha256": DIGESTS,
    },
    pb.Welcome: {
        "protocol_version": COUNTS,
        "coordinator_id": NAMES,
        "client": NAMES,
        "heartbeat_interval": TIMES,
        "heartbeat_timeout": TIMES,
        "max_body_size": (0, 2**64 - 1),
    },
    pb.Hello: {
        "protocol_version": COUNTS,
        "software_version": NAMES,
        "instance_id": NAMES,
        "datasets": [[pb.OfferedDataset(name=n, partitions=[n])] for n in NAMES] + [[pb.OfferedDataset()] * 5000],
        "steps": [[n] for n in NAMES] + [["x"] * 5000],
        "known_task_ids": [[n] for n in NAMES] + [["x"] * 5000],
        "known_requests_sha256": [[b] for b in DIGESTS] + [[b"x"] * 5000],
        "later_fields": [[n] for n in NAMES] + [["x"] * 5000],
    },
    task_pb2.TaskReply: {
        "task_id": NAMES,
        "payload": PAYLOADS,
        "compute_s": (float("nan"), float("inf"), -1e308),
        "request_sha256": DIGESTS,
    },
    pb.Heartbeat: {
        "busy_task_ids": [[n] for n in NAMES] + [["x"] * 5000],
        "trouble": NAMES,
        "decided_job_ids": [[n] for n in NAMES] + [["x"] * 5000],
    },
    pb.DeviceReport: {"device": NAMES, "note": NAMES},
    task_pb2.TaskFailure: {"task_id": NAMES, "reason": NAMES, "message": NAMES, "request_sha256": DIGESTS},
}


def cases(kind: type[Message]) -> pytest.MarkDecorator:
    """Every field of a message with each of its hostile values."""
    found = [(field, value) for field, values in FIELDS[kind].items() for value in values]
    return pytest.mark.parametrize(("field", "value"), found, ids=[f"{f}-{i}" for i, (f, _) in enumerate(found)])


@contextlib.contextmanager
def refusal() -> Iterator[None]:
    """Whatever refuses does so by a typed error, which does not repeat what was sent at length."""
    try:
        yield
    except KernfedError as err:
        if len(str(err)) > 1000:
            pytest.fail(f"{len(str(err))} characters of error")


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.DESCRIPTOR.name)
def test_every_field_has_hostile_values(kind: type[Message]) -> None:
    """A new field of the wire is tried here too."""
    assert {field.name for field in kind.DESCRIPTOR.fields} == set(FIELDS[kind])


def changed(message: Any, field: str, value: Any) -> Any:
    """The message with another value in a field."""
    message.ClearField(field)
    return type(message).FromString(message.SerializeToString() + type(message)(**{field: value}).SerializeToString())


@cases(task_pb2.Task)
def test_a_task(tmp_path: Path, field: str, value: Any) -> None:
    """It is answered or refused, and nothing is written outside the folder of jobs."""
    world, worker = World(tmp_path / "state"), Worker()
    payload = payload_to_proto(encode(REQUEST), 0)
    payload.inline_body = encode(REQUEST).body()
    task = task_pb2.Task(task_id=TASK, job_id="job", round=1, step=REQUEST.step, payload=payload, method="probe")
    with refusal():
        task = changed(task, field, value)
        incoming = Answering(world.runner, worker).begin(task)
        if incoming is not None and incoming.complete:
            world.runner.answer(task, incoming)
    worker.close()
    assert {p.parts[len(tmp_path.parts)] for p in tmp_path.rglob("*") if p.is_file()} <= {"state"}


@cases(pb.Welcome)
async def test_a_welcome(field: str, value: Any) -> None:
    """It is refused, or heartbeats stay within bounds."""
    welcome = pb.Welcome(protocol_version=PROTOCOL_VERSION, client="a")
    none: Any = None
    with refusal():
        taken = welcomed(pb.ConnectResponse(welcome=changed(welcome, field, value)))
        line = Connection(none, none, none, Outgoing(), taken, IdleCuts())
        assert 0 < line._interval_s <= MAX_HEARTBEAT_S
        assert 0 < line._timeout_s <= MAX_SILENCE_S


@cases(pb.Hello)
def test_a_hello(tmp_path: Path, field: str, value: Any) -> None:
    """It is refused, or what is kept of it is short."""
    registry = SessionRegistry(SessionLimits(heartbeat_timeout_s=20.0), tmp_path)
    with refusal():
        connect(registry, "a", **{"instance" if field == "instance_id" else field: value})
        assert len(repr(registry.clients()["a"])) < 20_000


@cases(pb.Heartbeat)
async def test_a_heartbeat(tmp_path: Path, field: str, value: Any) -> None:
    """What is kept of it is short."""
    assert len(await _kept(tmp_path, pb.ConnectRequest(heartbeat=pb.Heartbeat(**{field: value})))) < 20_000


@cases(pb.DeviceReport)
async def test_a_device(tmp_path: Path, field: str, value: Any) -> None:
    """What is kept of it is short."""
    assert len(await _kept(tmp_path, pb.ConnectRequest(device=pb.DeviceReport(**{field: value})))) < 20_000


async def _kept(folder: Path, frame: pb.ConnectRequest) -> str:
    """What is kept of a client after a frame of it, and shown to operators."""
    registry = SessionRegistry(SessionLimits(heartbeat_timeout_s=20.0), folder)
    session = connect(registry, "a")
    await said(registry, session, frame)
    return f"{registry.clients()['a']!r} {session.busy!r}"


@cases(task_pb2.TaskReply)
async def test_a_reply(tmp_path: Path, field: str, value: Any) -> None:
    """It counts as the honest one, or is told in short words."""
    assert all(len(message) < MAX_TEXT + 100 for message in await _told(tmp_path, "reply", field, value))


@cases(task_pb2.TaskFailure)
async def test_a_failure(tmp_path: Path, field: str, value: Any) -> None:
    """What is told of it is short."""
    assert all(len(message) < MAX_TEXT + 100 for message in await _told(tmp_path, "failure", field, value))


async def _told(folder: Path, kind: str, field: str, value: Any) -> list[str]:
    """Failures of clients that a job tells, one of which sent such a message."""
    registry = SessionRegistry(SessionLimits(heartbeat_timeout_s=20.0), folder)
    a, b = connect(registry, "a"), connect(registry, "b")
    asked = await Asked(registry, ["a", "b"], min_clients=1).begun()
    [sent] = [f.task for f in await drain(a) if f.HasField("task")]
    asked.reply(b)
    common: dict[str, Any] = {"task_id": TASK, "request_sha256": sent.request_sha256}
    if kind == "reply":
        values = task_pb2.TaskReply(
            **common, payload=payload_to_proto(encode(Echo(num_rows=1, values=REQUEST.values)), 1)
        )
        frame = pb.ConnectRequest(reply=changed(values, field, value))
    else:
        failed = task_pb2.TaskFailure(**common, reason="NUMERICAL", message="no")
        frame = pb.ConnectRequest(failure=changed(failed, field, value))
    with refusal():
        await said(registry, a, frame)
    registry.closed(a)
    asked.asking.cancel()
    await asyncio.wait([asked.asking])
    return [message for _, message in asked.of(EventKind.CLIENT_FAILED)]
