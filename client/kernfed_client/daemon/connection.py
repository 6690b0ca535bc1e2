"""One connection to the coordinator: what is written to its stream, what arrives on it, and the heartbeats."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from kernfed.errors import KernfedError, UnavailableError, VersionMismatchError, WireError, error_from_reason
from kernfed.status import PeerStatus, error_from_rpc
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed.wire.frames import (
    MAX_HEARTBEAT_S,
    MAX_ID,
    MAX_SILENCE_S,
    MAX_TEXT,
    PROTOCOL_VERSION,
    RESPONSE_FRAGMENT_TAG,
    FragmentView,
    decode_fragment,
)
from kernfed.wire.incoming import IncomingPayload
from kernfed.wire.outgoing import Outgoing
from kernfed_client.daemon.idle_cuts import IdleCuts

MAX_BACKLOG = 64
"""Frames that wait to be written, beyond which no heartbeat joins them."""

MIN_BACKOFF_S = 0.2

Stream = grpc.aio.StreamStreamCall[bytes, bytes]


class LineDownError(Exception):
    """Ends the tasks of one connection."""


_ENDS = (KernfedError, LineDownError, grpc.aio.AioRpcError, asyncio.InvalidStateError)
"""Errors that a line's end explains."""


class SaidGoodbyeError(LineDownError):
    """The coordinator said why it ends the session."""


class Tasks(Protocol):
    """Whoever has tasks begun, computed and dropped, and outlives the connections."""

    @property
    def busy_task_ids(self) -> Sequence[str]:
        """Tasks being received or computed."""

    def begin(self, task: task_pb2.Task) -> IncomingPayload | None:
        """A task arrives: make room for its request; None: it needs none."""

    def compute(self, task: task_pb2.Task, incoming: IncomingPayload) -> None:
        """A request is complete: run its step."""

    def told(self, submission: task_pb2.JobSubmission) -> None:
        """What a job's operator signed arrives, ahead of the job's first task."""

    def told_revoked(self, der: bytes) -> None:
        """Which operators' signatures count no more, as the CA signed it."""

    def acknowledged(self, ack: task_pb2.TaskAck) -> None:
        """The coordinator has an answer, or refuses it."""

    def cancelled(self, cancel: task_pb2.Cancel) -> list[str]:
        """Drop a task, or a whole job; returns the tasks that were not answered yet."""


class Connection:
    """One stream's three tasks."""

    def __init__(
        self,
        tasks: Tasks,
        stream: Stream,
        ended: PeerStatus,
        outgoing: Outgoing,
        welcome: pb.Welcome,
        idle_cuts: IdleCuts,
        check_identity: Callable[[], None] = lambda: None,
        trouble: Callable[[], str] = str,
    ) -> None:
        """Prepare.

        Args:
            tasks: Answers what the coordinator asks.
            stream: To the coordinator, open.
            ended: With what the peer ended it.
            outgoing: Frames to send.
            welcome: The coordinator's.
            idle_cuts: What is known of a box that cuts idle lines.
            check_identity: Raises CertificateError once the certificate has ended with which the line was dialled.
            trouble: What keeps this client from work, for operators; empty: nothing.
        """
        self._tasks = tasks
        self._stream = stream
        self._ended = ended
        self._outgoing = outgoing
        self._check_identity = check_identity
        self._trouble = trouble
        wanted_s, limit_s = (d.ToMilliseconds() / 1000 for d in (welcome.heartbeat_interval, welcome.heartbeat_timeout))
        self._interval_s = idle_cuts.interval_s(min(max(wanted_s, 0.05), MAX_HEARTBEAT_S))
        self._timeout_s = min(max(limit_s, 0.1), MAX_SILENCE_S)
        self._last_heard = self._last_sent = time.monotonic()
        self.silent = False
        """Whether the coordinator was given up for its silence."""
        self._open: dict[int, tuple[task_pb2.Task, IncomingPayload]] = {}

    @property
    def unfinished(self) -> list[str]:
        """Tasks whose requests were still arriving when the connection ended."""
        return [task.task_id for task, _ in self._open.values()]

    @property
    def idle_s(self) -> float:
        """Seconds since a frame came or went."""
        return time.monotonic() - max(self._last_heard, self._last_sent)

    async def write(self) -> None:
        """Send what is queued; where the queue is closed, end the session, as the coordinator's end will tell."""
        while (frame := await self._outgoing.next()) is not None:
            await self._stream.write(frame)
            self._last_sent = time.monotonic()
        await self._stream.done_writing()

    async def heartbeat(self) -> None:
        """Say that we live, and notice when the coordinator does not, or our certificate has ended."""
        while True:
            await asyncio.sleep(self._interval_s)
            self._check_identity()
            silent = time.monotonic() - self._last_heard
            if silent > self._timeout_s:
                self.silent = True
                raise UnavailableError(f"the coordinator has been silent for {silent:.0f} s")
            if self._outgoing.backlog > MAX_BACKLOG:
                continue  # the coordinator does not read
            beat = pb.Heartbeat(busy_task_ids=list(self._tasks.busy_task_ids)[:100], trouble=self._trouble())
            self._outgoing.put(pb.ConnectRequest(heartbeat=beat).SerializeToString())

    async def read(self) -> None:
        """Take what comes until the stream ends."""
        while True:
            data: Any = await self._stream.read()
            if not isinstance(data, bytes):
                raise why_it_ended(await self._ended.end())
            self._last_heard = time.monotonic()
            fragment = decode_fragment(RESPONSE_FRAGMENT_TAG, data)
            if fragment is not None:
                self._on_fragment(fragment)
                continue
            frame = parse(data)
            for ack in frame.acks:
                self._tasks.acknowledged(ack)
            match frame.WhichOneof("frame"):
                case "task":
                    self._on_task(frame.task)
                case "submission":
                    self._tasks.told(frame.submission)
                case "revoked_operators":
                    self._tasks.told_revoked(frame.revoked_operators.der)
                case "cancel":
                    self._on_cancel(frame.cancel)
                case "goodbye":
                    raise _goodbye(frame.goodbye)
                case "heartbeat" | None:
                    pass
                case other:
                    raise WireError(f"a coordinator may not send {other} here")

    def _on_task(self, task: task_pb2.Task) -> None:
        incoming = self._tasks.begin(task)
        if incoming is None:
            return
        if incoming.complete:
            self._start(task, incoming)
        elif task.payload.transfer in self._open:
            raise WireError(f"transfer {task.payload.transfer} is announced a second time")
        else:
            self._open[task.payload.transfer] = (task, incoming)

    def _on_cancel(self, cancel: task_pb2.Cancel) -> None:
        gone = self._tasks.cancelled(cancel)
        for transfer in [t for t, (task, _) in self._open.items() if task.task_id in gone]:
            del self._open[transfer]

    def _on_fragment(self, fragment: FragmentView) -> None:
        found = self._open.get(fragment.transfer)
        if found is None:
            return  # of a task that we answer already, or refused
        task, incoming = found
        incoming.add(fragment)
        if incoming.complete:
            del self._open[fragment.transfer]
            self._start(task, incoming)

    def _start(self, task: task_pb2.Task, incoming: IncomingPayload) -> None:
        self._tasks.compute(task, incoming)


def parse(data: bytes) -> pb.ConnectResponse:
    """Read a frame.

    Raises:
        WireError: It is none.
    """
    try:
        return pb.ConnectResponse.FromString(data)
    except DecodeError:
        raise WireError("a frame is not a ConnectResponse") from None


def welcomed(frame: pb.ConnectResponse) -> pb.Welcome:
    """The coordinator's answer to the hello.

    Raises:
        WireError: The first frame is another one, or names nobody.
        VersionMismatchError: The coordinator speaks another protocol version.
    """
    welcome = frame.welcome
    if frame.WhichOneof("frame") != "welcome" or len(welcome.client) > MAX_ID:
        raise WireError("the coordinator's first frame is not a welcome")
    if welcome.protocol_version != PROTOCOL_VERSION:
        raise VersionMismatchError(
            f"the coordinator speaks protocol {welcome.protocol_version}, this client speaks {PROTOCOL_VERSION}; "
            "install matching releases of kernfed"
        )
    return welcome


def _goodbye(goodbye: pb.Goodbye) -> Exception:
    message = goodbye.message[:MAX_TEXT]
    if goodbye.reason == UnavailableError.reason:
        return SaidGoodbyeError(message)  # it says all there is to say: nothing to diagnose
    return error_from_reason(goodbye.reason, message)


def why_it_ended(status: grpc.aio.AioRpcError) -> Exception:
    """Why a stream ended, from its status."""
    if status.code() is grpc.StatusCode.OK:
        return LineDownError("the coordinator closed the session")
    return error_from_rpc(status)


def backoff_s(attempt: int, longest_s: float) -> float:
    """Seconds to pause before attempt `attempt` (from 0): exponential, capped, with full jitter above a floor."""
    return MIN_BACKOFF_S + random.uniform(0, min(longest_s, MIN_BACKOFF_S * 2 ** min(attempt, 20)))


async def first_failure(*parts: Coroutine[Any, Any, None]) -> BaseException | None:
    """What ended a connection's parts, once all of them have ended: the first that fails ends the others.

    A cancellation is never lost, whenever it comes: before Python 3.13 a `TaskGroup` forgets one that comes while its
    parts end by an error.

    Raises:
        BaseException: the error of a part that no line's end explains.
    """
    tasks = [asyncio.ensure_future(part) for part in parts]
    cancelled: asyncio.CancelledError | None = None
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    except asyncio.CancelledError as err:
        cancelled = err
    for task in tasks:
        task.cancel()
    while any(not task.done() for task in tasks):
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError as err:
            cancelled = err
    errors = [error for task in tasks if not task.cancelled() and (error := task.exception()) is not None]
    if cancelled is not None:
        raise cancelled
    for failed in errors:
        if not isinstance(failed, _ENDS):
            raise failed
    return _foremost(errors) if errors else None


def _foremost(errors: Sequence[BaseException]) -> BaseException:
    """The most telling of the errors that ended a connection's tasks."""
    for kind in (LineDownError, KernfedError, grpc.aio.AioRpcError):  # what the coordinator said, what we saw, status
        for err in errors:
            if isinstance(err, kind):
                return err
    return LineDownError("the line to the coordinator broke")
