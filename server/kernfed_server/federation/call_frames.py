"""The frames of a call's requests: serialized once for all clients, with what is each client's own behind."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from kernfed.federation.exchange import Call
from kernfed.federation.messages.base import Request
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed.wire.codec import encode
from kernfed.wire.frames import RESPONSE_FRAGMENT_TAG
from kernfed.wire.outgoing import Body, payload_to_proto
from kernfed.wire.payload import INLINE_BYTES, Payload

_HASHED_AT_ONCE = 4 << 20
"""Bytes that are hashed in a few milliseconds, which is what other sessions may wait."""


@dataclass(frozen=True, slots=True)
class TaskFrame:
    """A request on its way: the frame, and the body that follows it in fragments."""

    frame: bytes
    body: Body | None
    transfer: int
    sha256: bytes
    """Of the request."""
    shared: bool
    """Whether other clients are sent the same body."""

    def with_more(self, more: task_pb2.Task) -> TaskFrame:
        """The task with more fields: serialized messages that follow each other are merged."""
        return replace(self, frame=self.frame + pb.ConnectResponse(task=more).SerializeToString())


class CallFrames:
    """What each client of a call is sent."""

    def __init__(self, call: Call[Any], next_transfer: Callable[[], int], told: task_pb2.Task) -> None:
        """Begin with nothing sent.

        Args:
            call: The call.
            next_transfer: Gives a number for the fragments of a body.
            told: Fields of every task beside those of the call: operator, method, and a submission where there is one.
        """
        self._call = call
        self._next_transfer = next_transfer
        self._told = told
        self._shared: TaskFrame | None = None
        self._standing: dict[bytes, TaskFrame] = {}
        """The shared one by what the answer is to stand on."""
        self._sent: dict[str, TaskFrame] = {}

    async def prepare(self) -> None:
        """Serialize the request of all clients; a large one is hashed beside the event loop."""
        if self._call.own is None:
            payload = encode(self._call.request, self._call.float_bits)
            large = payload.body_size > _HASHED_AT_ONCE
            digest = asyncio.to_thread(self._sha256, payload) if large else None
            self._shared = self._frame(self._call.request, payload, await digest if digest else self._sha256(payload))

    @property
    def sent(self) -> Collection[str]:
        """Clients that were sent their task."""
        return self._sent.keys()

    def to(self, client: str) -> TaskFrame:
        """The task of a client, which counts as sent."""
        frame = self._sent.get(client) or self._make(client)
        self._sent[client], self._call.sent[client] = frame, frame.sha256
        return frame

    def sent_to(self, client: str) -> TaskFrame | None:
        """What a client was sent; None: nothing."""
        return self._sent.get(client)

    def sign(self, submission_sha256: bytes) -> None:
        """From now on tasks, and those that are sent again, name what the operator signed."""
        signed = task_pb2.Task(submission_sha256=submission_sha256)
        self._told.MergeFrom(signed)
        if self._shared is not None:
            self._shared, self._standing = self._shared.with_more(signed), {}
        self._sent = {client: frame.with_more(signed) for client, frame in self._sent.items()}

    def _make(self, client: str) -> TaskFrame:
        more = task_pb2.Task(setup_sha256=self._call.stands_on.get(client, b""))
        if self._shared is None:
            request = self._call.request_of(client)
            payload = encode(request, self._call.float_bits)
            return self._frame(request, payload, self._sha256(payload)).with_more(more)
        if more.setup_sha256 not in self._standing:
            self._standing[more.setup_sha256] = self._shared.with_more(more)
        return self._standing[more.setup_sha256]

    def _sha256(self, payload: Payload) -> bytes:
        """Digest of all that an answer depends on."""
        bits, length = self._call.float_bits.to_bytes(1, "little"), len(payload.header).to_bytes(4, "little")
        digest = hashlib.sha256(bits + length + payload.header)
        for segment in payload.segments():
            digest.update(segment)
        return digest.digest()

    def _frame(self, request: Request[Any], payload: Payload, sha256: bytes) -> TaskFrame:
        call, transfer = self._call, self._next_transfer()
        task = task_pb2.Task(
            task_id=call.task_id,
            job_id=call.job_id,
            round=call.round_num,
            step=request.step,
            payload=payload_to_proto(payload, transfer),
            float_bits=call.float_bits,
            request_sha256=sha256,
            cohort_size=call.cohort_size,
        )
        task.MergeFrom(self._told)
        task.deadline.FromMilliseconds(int(min(call.deadline_s + call.wait_s, 1e9) * 1000))
        body = Body(RESPONSE_FRAGMENT_TAG, transfer, payload) if payload.body_size > INLINE_BYTES else None
        shared = call.own is None and len(call.clients) > 1
        return TaskFrame(pb.ConnectResponse(task=task).SerializeToString(), body, transfer, sha256, shared)
