"""A client that speaks the protocol by hand: it answers honestly but where a test makes it do otherwise."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

import grpc
import grpc.aio

from kernfed.errors import KernfedError, error_from_reason
from kernfed.federation.messages.base import Reply
from kernfed.federation.messages.later_fields import stated_fields
from kernfed.jobs.client_file import load_client_file
from kernfed.pki.identity import Identity, channel_credentials
from kernfed.status import PeerStatus, error_from_rpc
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed.wire.channel import CHANNEL_OPTIONS
from kernfed.wire.codec import encode
from kernfed.wire.frames import (
    CONNECT_METHOD,
    PROTOCOL_VERSION,
    REQUEST_FRAGMENT_TAG,
    RESPONSE_FRAGMENT_TAG,
    decode_fragment,
    encode_fragment,
    identity,
)
from kernfed.wire.incoming import IncomingPayload
from kernfed_client.data.local_job import LocalJob
from kernfed_client.steps.registry import STEPS

Misbehave = Callable[["ScriptedClient", task_pb2.Task, Reply], Awaitable[bool]]
"""(client, task, honest reply) -> whether the honest reply is still to be sent."""

_STEPS = {request.step: (request, function) for request, function in STEPS.items()}
MAX_BODY_BYTES = 1 << 30


def hello(**changes: Any) -> pb.ConnectRequest:
    """A hello that the coordinator accepts, but for what a test changes."""
    fields: dict[str, Any] = {
        "protocol_version": PROTOCOL_VERSION,
        "software_version": "scripted",
        "instance_id": "scripted",
        "datasets": [pb.OfferedDataset(name="default", partitions=["train"])],
        "steps": sorted(_STEPS),
        "later_fields": stated_fields(STEPS),
    }
    return pb.ConnectRequest(hello=pb.Hello(**{**fields, **changes}))


class ScriptedClient:
    """One stream. Use as an async context manager."""

    def __init__(
        self,
        folder: Path,
        port: int,
        *,
        misbehave: Misbehave | None = None,
        says_hello: bool = True,
        first: pb.ConnectRequest | None = None,
        reads: bool = True,
    ) -> None:
        """Prepare.

        Args:
            folder: The client's folder in a `Federation`.
            port: Of the coordinator.
            misbehave: Called before each honest reply.
            says_hello: Whether to send anything at all.
            first: The first frame; a good hello where unset.
            reads: Whether to read at all after the welcome.
        """
        self._folder = folder
        self._misbehave = misbehave
        self._first = (first or hello()) if says_hello else None
        self._reads = reads
        self._identity = Identity.load(folder / "identity")
        self._port = port
        self._jobs: dict[str, LocalJob] = {}
        self._open: dict[int, tuple[task_pb2.Task, IncomingPayload]] = {}
        self._stack = contextlib.AsyncExitStack()
        self._writing = asyncio.Lock()
        self.acks: list[task_pb2.TaskAck] = []
        self.over: asyncio.Future[KernfedError | None] = asyncio.get_running_loop().create_future()
        """Why the coordinator ended the stream; None: without an error."""

    async def __aenter__(self) -> Self:
        channel = await self._stack.enter_async_context(
            grpc.aio.secure_channel(
                f"localhost:{self._port}", channel_credentials(self._identity), options=_unlimited(CHANNEL_OPTIONS)
            )
        )
        call = channel.stream_stream(CONNECT_METHOD, request_serializer=identity, response_deserializer=identity)
        self._stream: Any = call()
        self._ended = PeerStatus(self._stream)
        self._stack.callback(self._stream.cancel)
        tasks = [asyncio.ensure_future(self._read())] if self._reads else []
        if self._first is not None:
            await self.send(self._first)
            tasks.append(asyncio.ensure_future(self._beat()))

        async def end() -> None:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

        self._stack.push_async_callback(end)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def send(self, frame: pb.ConnectRequest) -> None:
        """Write a frame."""
        await self.send_bytes(frame.SerializeToString())

    async def send_bytes(self, frame: bytes) -> None:
        """Write any bytes as a frame; a stream that is over takes none."""
        async with self._writing:
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await self._stream.write(frame)

    async def send_reply(self, task_id: str, reply: Reply) -> None:
        """Answer a task with any reply, its body inline."""
        payload = encode(reply)
        proto = task_pb2.Payload(header=payload.header, body_size=payload.body_size, inline_body=payload.body())
        await self.send(pb.ConnectRequest(reply=task_pb2.TaskReply(task_id=task_id, payload=proto)))

    async def announce(self, task_id: str, reply: Reply, transfer: int, body_size: int | None = None) -> bytes:
        """Announce a reply whose body follows in fragments; returns that body."""
        payload = encode(reply)
        size = payload.body_size if body_size is None else body_size
        proto = task_pb2.Payload(header=payload.header, body_size=size, transfer=transfer)
        await self.send(pb.ConnectRequest(reply=task_pb2.TaskReply(task_id=task_id, payload=proto)))
        return payload.body()

    async def send_fragment(self, transfer: int, offset: int, data: bytes) -> None:
        """Send a piece of a body."""
        await self.send_bytes(encode_fragment(REQUEST_FRAGMENT_TAG, transfer, offset, [memoryview(data)]))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            await self.send(pb.ConnectRequest(heartbeat=pb.Heartbeat()))

    async def _read(self) -> None:
        try:
            while isinstance(data := await self._stream.read(), bytes):
                fragment = decode_fragment(RESPONSE_FRAGMENT_TAG, data)
                if fragment is not None:
                    task, incoming = self._open[fragment.transfer]
                    incoming.add(fragment)
                    if incoming.complete:
                        await self._answer(task, incoming)
                    continue
                frame = pb.ConnectResponse.FromString(data)
                self.acks += frame.acks
                if frame.HasField("goodbye"):
                    self._settle(error_from_reason(frame.goodbye.reason, frame.goodbye.message))
                elif frame.HasField("task"):
                    incoming = IncomingPayload(_STEPS[frame.task.step][0], frame.task.payload, MAX_BODY_BYTES, {})
                    self._open[frame.task.payload.transfer] = (frame.task, incoming)
                    if incoming.complete:
                        await self._answer(frame.task, incoming)
            status = await self._ended.end()
            if status.code() is not grpc.StatusCode.OK:
                raise status
            self._settle(None)
        except grpc.aio.AioRpcError as err:
            self._settle(error_from_rpc(await self._ended.behind(err)))

    def _settle(self, error: KernfedError | None) -> None:
        if not self.over.done():
            self.over.set_result(error)

    async def _answer(self, task: task_pb2.Task, incoming: IncomingPayload) -> None:
        job = self._jobs.get(task.job_id)
        if job is None:
            file = load_client_file(self._folder / "client.toml")
            job = self._jobs[task.job_id] = LocalJob(task.job_id, self._identity.name, file)
        request, function = incoming.message(), _STEPS[task.step][1]
        reply = await asyncio.to_thread(function, job, request)
        if self._misbehave is None or await self._misbehave(self, task, reply):
            await self.send_reply(task.task_id, reply)


def _unlimited(options: tuple[tuple[str, int], ...]) -> list[tuple[str, int]]:
    """Channel options without our own end's limit on what is sent."""
    return [*((k, v) for k, v in options if k != "grpc.max_send_message_length"), ("grpc.max_send_message_length", -1)]
