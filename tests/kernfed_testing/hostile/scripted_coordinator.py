"""A coordinator that speaks the protocol by hand: it asks a client whatever a test wants, in whatever order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from kernfed.federation.messages.base import Request
from kernfed.pki.identity import server_credentials
from kernfed.pki.submission import sha256_of
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed.wire.channel import SERVER_OPTIONS
from kernfed.wire.codec import encode
from kernfed.wire.frames import CONNECT_METHOD, PROTOCOL_VERSION, RESPONSE_FRAGMENT_TAG, decode_fragment, identity
from kernfed.wire.outgoing import Body, payload_to_proto
from kernfed.wire.payload import CHUNK_BYTES, INLINE_BYTES
from kernfed_testing.identities import Identities
from kernfed_testing.limits import LIMIT_S

HEARTBEAT_S = 0.2


@dataclass(eq=False)
class Line:
    """One session that a client opened."""

    stream: Any
    frames: asyncio.Queue[pb.ConnectRequest] = field(default_factory=asyncio.Queue)
    """What the client sent, but for heartbeats and fragments."""
    beats: int = 0
    """Heartbeats of the client so far."""
    transfers: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """The client ended it."""
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def send(self, frame: pb.ConnectResponse | bytes) -> None:
        """Write a frame."""
        async with self.writing:
            await self.stream.write(frame if isinstance(frame, bytes) else frame.SerializeToString())

    async def ask(
        self,
        job_id: str,
        task_id: str,
        request: Request[Any],
        method: str = "probe",
        operator: str = "ann",
        told: task_pb2.JobSubmission | None = None,
    ) -> None:
        """Send a task, its body too, after the submission that is told; answers come as `frames`."""
        if told is not None:
            await self.send(pb.ConnectResponse(submission=told))
        payload = encode(request)
        self.transfers += 1
        task = task_pb2.Task(
            task_id=task_id,
            job_id=job_id,
            step=request.step,
            payload=payload_to_proto(payload, self.transfers),
            submitted_by=operator,
            method=method,
            cohort_size=3,
            submission_sha256=b"" if told is None else sha256_of(told.submission),
        )
        await self.send(pb.ConnectResponse(task=task))
        if payload.body_size > INLINE_BYTES:
            body = Body(RESPONSE_FRAGMENT_TAG, self.transfers, payload)
            for offset in range(0, body.size, CHUNK_BYTES):
                await self.send(body.frame(offset, shared=False))

    async def answer(self) -> pb.ConnectRequest:
        """The next answer: a frame with `reply` or `failure`."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                frame = await self.frames.get()
                if frame.WhichOneof("frame") in ("reply", "failure"):
                    return frame

    async def read(self) -> None:
        """Take what comes, until the client ends the session."""
        while isinstance(data := await self.stream.read(), bytes):
            if decode_fragment(pb.ConnectRequest.FRAGMENT_FIELD_NUMBER << 3 | 2, data) is not None:
                continue
            frame = pb.ConnectRequest.FromString(data)
            if frame.WhichOneof("frame") == "heartbeat":
                self.beats += 1
            else:
                self.frames.put_nowait(frame)
        self.over.set()


class ScriptedCoordinator:
    """A server on a port of its own. Use through `scripted_coordinator`."""

    def __init__(self) -> None:
        self.port = 0
        self._lines: asyncio.Queue[Line] = asyncio.Queue()
        self.reads = True
        """Whether it reads what clients send after their hellos."""

    async def line(self) -> Line:
        """The next session that a client opens."""
        async with asyncio.timeout(LIMIT_S):
            return await self._lines.get()

    async def connect(self, _frames: object, context: Any) -> None:
        """Greet, then leave the line to the test."""
        line = Line(context)
        await context.read()
        welcome = pb.Welcome(protocol_version=PROTOCOL_VERSION, coordinator_id="scripted", client="a")
        welcome.heartbeat_interval.FromMilliseconds(int(HEARTBEAT_S * 1000))
        welcome.heartbeat_timeout.FromMilliseconds(int(LIMIT_S * 1000))
        await line.send(pb.ConnectResponse(welcome=welcome))
        self._lines.put_nowait(line)
        try:
            if self.reads:
                await line.read()
            else:
                await asyncio.Event().wait()
        finally:
            line.over.set()


@contextlib.asynccontextmanager
async def scripted_coordinator(ids: Identities) -> AsyncIterator[ScriptedCoordinator]:
    """Serve under the coordinator's certificate."""
    scripted = ScriptedCoordinator()
    server = grpc.aio.server(options=SERVER_OPTIONS)
    service, _, method = CONNECT_METHOD[1:].partition("/")
    handler = grpc.stream_stream_rpc_method_handler(scripted.connect, identity, identity)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    scripted.port = server.add_secure_port("127.0.0.1:0", server_credentials(ids.coordinator))
    await server.start()
    try:
        yield scripted
    finally:
        await server.stop(None)
