"""What an earlier release sent is what this one sends and reads; `tests/golden/record_frames.py` wrote it down."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format
from pydantic import TypeAdapter

from kernfed.federation.messages.base import fields_of, validate
from kernfed.jobs.info import ArtifactInfo, ClientInfo, JobInfo, JobUpdate, NumberedEvent
from kernfed.methods.registry import METHODS
from kernfed.v1 import federation_service_pb2, task_pb2
from kernfed.wire import operator
from kernfed.wire.codec import decode, encode
from kernfed.wire.frames import RESPONSE_FRAGMENT_TAG, decode_fragment
from kernfed.wire.outgoing import Body
from kernfed.wire.payload import CHUNK_BYTES
from kernfed_client.daemon.outbox import Outbox
from kernfed_testing import recorded_frames as frames

GOLDEN: dict[str, Any] = json.loads(frames.GOLDEN.read_text())
REQUESTS = frames.requests()
FAMILIES = {"head": "newton", **{name: name for name in ("online", "personalise", "reweight", "distill", "probe")}}
"""Families of steps that go with the room of a method, and that method."""
AWAY = {family for family, method in FAMILIES.items() if method not in METHODS}
STEPS: dict[str, Any] = {step: said for step, said in GOLDEN["steps"].items() if step.partition(".")[0] not in AWAY}
FLOAT32 = np.dtype("float32")

OPERATOR: dict[str, tuple[type, Any, Any]] = {
    "Job": (JobInfo, operator.job_to_proto, operator.job_from_proto),
    "Client": (ClientInfo, operator.client_to_proto, operator.client_from_proto),
    "Event": (NumberedEvent, operator.event_to_proto, operator.event_from_proto),
    "WatchJobResponse": (JobUpdate, operator.update_to_proto, operator.update_from_proto),
    "Artifact": (ArtifactInfo, operator.artifact_to_proto, operator.artifact_from_proto),
}


def recorded(text: str) -> bytes:
    """Bytes of the golden file."""
    return base64.b64decode(text)


def rounded(plain: Any) -> Any:
    """JSON values of a message whose floats in arrays came as float32."""
    if isinstance(plain, dict):
        if plain.get("type") == "float64":
            return {**plain, "type": "float32", "numbers": np.array(plain["numbers"], FLOAT32).tolist()}
        return {key: rounded(value) for key, value in plain.items()}
    return [rounded(item) for item in plain] if isinstance(plain, list) else plain


def known(plain: dict[str, Any], message: Any) -> dict[str, Any]:
    """Fields of a message, of those that the earlier release knew."""
    fields: dict[str, Any] = _known(plain, frames.to_plain(message))
    return fields


def _known(plain: Any, found: Any) -> Any:
    if isinstance(plain, dict) and isinstance(found, dict):
        return {key: _known(plain[key], value) for key, value in found.items() if key in plain}
    if isinstance(plain, list) and isinstance(found, list) and len(plain) == len(found):
        return [_known(*pair) for pair in zip(plain, found, strict=True)]
    return found


def test_every_step_is_still_there() -> None:
    """All families of steps were recorded, and each recorded step is known under its name."""
    families = {step.partition(".")[0] for step in GOLDEN["steps"]}
    assert {"data", "evaluation", *FAMILIES} <= families
    assert len(GOLDEN["steps"]) >= 50
    assert STEPS.keys() <= REQUESTS.keys()


@pytest.mark.parametrize("step", STEPS)
def test_a_step_says_what_it_said(step: str) -> None:
    """A step has its request and reply, lets out the same kinds of information, and is kept or not as before."""
    cls, said = REQUESTS[step], STEPS[step]
    assert f"kernfed.v1.{cls.__name__}" == said["request"]
    assert f"kernfed.v1.{cls.reply.__name__}" == said["reply"]
    assert [kind.value for kind in cls.kinds] == said["kinds"]
    assert cls.setup == said["setup"]


@pytest.mark.parametrize("step", STEPS)
def test_messages_have_the_recorded_bytes(step: str) -> None:
    """Request and reply of a step are sent as the same frames, in float64 and float32.

    Statistics, shares and scales were once rounded in a float32 job; such frames are read still, and written no more.
    """
    cls, said = REQUESTS[step], STEPS[step]
    request = frames.from_plain(cls, said["request_fields"])
    reply = frames.from_plain(cls.reply, said["reply_fields"])
    assert frames.task_frame(request) == recorded(said["request_frame"])
    assert frames.reply_frame(step, reply) == recorded(said["reply_frame"])
    if not any(field.exact for field in fields_of(cls.reply)):
        assert frames.reply_frame(step, reply, 32) == recorded(said["reply_frame_float32"])


@pytest.mark.parametrize("step", STEPS)
def test_recorded_bytes_are_read(step: str) -> None:
    """Recorded frames of a step are decoded to the messages that they were made of."""
    cls, said = REQUESTS[step], STEPS[step]
    sent = federation_service_pb2.ConnectResponse.FromString(recorded(said["request_frame"])).task.payload
    request = decode(cls, sent.header, memoryview(sent.inline_body))
    assert known(said["request_fields"], request) == said["request_fields"]
    for key, want in (("reply_frame", said["reply_fields"]), ("reply_frame_float32", rounded(said["reply_fields"]))):
        sent = federation_service_pb2.ConnectRequest.FromString(recorded(said[key])).reply.payload
        reply = decode(cls.reply, sent.header, memoryview(sent.inline_body), validate(request, {}))
        assert known(want, reply) == want


@pytest.mark.parametrize("said", GOLDEN["protobuf"], ids=lambda said: said["message"])
def test_protobuf_messages(said: dict[str, Any]) -> None:
    """Every protobuf message of the contract, each field set, has the recorded bytes and is read from them."""
    message = json_format.ParseDict(said["fields"], frames.proto_class(said["message"])())
    assert message.SerializeToString(deterministic=True) == recorded(said["bytes"])
    assert type(message).FromString(recorded(said["bytes"])) == message


def test_bodies_in_pieces() -> None:
    """A body above the size that rides inline is announced and cut as before."""
    said = GOLDEN["fragments"]
    reply = REQUESTS[said["reply"]].reply(num_rows=1, values=np.arange(said["numbers"], dtype=float))  # type: ignore[call-arg]  # the reply of this step has these fields
    assert frames.reply_frame(said["reply"], reply) == recorded(said["announced"])
    body = Body(RESPONSE_FRAGMENT_TAG, said["transfer"], encode(reply))
    made = [body.frame(offset, shared=False) for offset in range(0, body.size, CHUNK_BYTES)]
    assert [hashlib.sha256(frame).hexdigest() for frame in made] == said["sha256"]
    pieces = [decode_fragment(RESPONSE_FRAGMENT_TAG, frame) for frame in made]
    assert [piece.transfer for piece in pieces if piece] == [said["transfer"]] * len(made)


def test_failure() -> None:
    """A refusal of a task is sent as the same frame."""
    failure = task_pb2.TaskFailure(task_id="job-1/2/x", reason="INVALID_DATA", message="a.csv: row 3")
    outbox = Outbox()
    outbox.add_failure("job-1", failure)
    assert outbox.frame("job-1/2/x")[0] == recorded(GOLDEN["failure"])


@pytest.mark.parametrize("said", GOLDEN["operator"], ids=lambda said: said["message"])
def test_what_operators_see(said: dict[str, Any]) -> None:
    """Jobs, events, clients and artifacts are told in the same bytes, and are understood from them."""
    cls, to_proto, from_proto = OPERATOR[said["message"]]
    fact: Any = TypeAdapter(cls).validate_python(said["fields"])
    assert to_proto(fact).SerializeToString(deterministic=True) == recorded(said["bytes"])
    message = frames.proto_class(f"kernfed.v1.{said['message']}").FromString(recorded(said["bytes"]))
    assert from_proto(message) == fact
