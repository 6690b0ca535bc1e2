"""`FederationService.Connect`: one client's stream, read, written and watched by three tasks that end together.

What comes from a client is checked before it is believed: size before bytes, order of fragments, shapes, finiteness.
A faulty reply costs the client its place in the round; a frame that the protocol does not allow ends the session.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import grpc.aio
import structlog
from google.protobuf.message import DecodeError

from kernfed.errors import CertificateError, InvalidTensorError, KernfedError, UnavailableError, WireError
from kernfed.federation.exchange import Fault
from kernfed.jobs.info import ClientInfo
from kernfed.pki.authority import utc_now
from kernfed.pki.identity import Caller, Role, require
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed.wire.frames import (
    CONNECT_METHOD,
    MAX_ID,
    MAX_TEXT,
    PROTOCOL_VERSION,
    REQUEST_FRAGMENT_TAG,
    FragmentView,
    decode_fragment,
    identity,
)
from kernfed.wire.incoming import IncomingPayload
from kernfed.wire.payload import INLINE_BYTES
from kernfed_server.federation.frame_rate import FrameRate
from kernfed_server.federation.open_call import OpenCall, reply_digest
from kernfed_server.federation.session import Session
from kernfed_server.federation.sessions import SessionRegistry

log = structlog.get_logger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]

HELLO_TIMEOUT_S = 10.0
FAREWELL_S = 2.0
"""Seconds that a client has to read the reason why its session ends."""
MAX_OPEN_REPLIES = 64
MAX_BACKLOG = 1 << 19
"""Frames and bytes that may wait for a client that does not read."""
MAX_BUSY = 100
"""Tasks of a heartbeat that are looked at."""


class _SessionOverError(Exception):
    """Ends the three tasks of a session; not an error."""


class FederationServicer:
    """Serves the clients' sessions."""

    def __init__(self, registry: SessionRegistry) -> None:
        self._registry = registry

    def handler(self) -> grpc.GenericRpcHandler:
        """The method handler: frames are bytes on this side, so that fragments are not copied by protobuf."""
        service, _, method = CONNECT_METHOD[1:].partition("/")
        stream = grpc.stream_stream_rpc_method_handler(self.connect, identity, identity)
        return grpc.method_handlers_generic_handler(service, {method: stream})

    async def connect(self, _frames: object, context: Context) -> None:
        """One session, from hello to goodbye.

        Raises:
            KernfedError: The client is refused; the interceptor turns it into a status.
        """
        caller = require(context, Role.CLIENT)
        if self._registry.draining:
            raise UnavailableError("the coordinator is shutting down; connect again in a moment")
        hello = await _read_hello(context)
        info = ClientInfo(
            caller.name, peer=context.peer(), certificate_expires_at=caller.certificate.not_valid_after_utc
        )
        session = self._registry.open(info, caller.serial, hello)
        log.info("client connected", client=caller.name, peer=context.peer(), version=hello.software_version[:40])
        del hello  # megabytes, if the client likes, for as long as it stays
        structlog.contextvars.bind_contextvars(client=caller.name)
        try:
            session.send(self._welcome(caller))
            self._registry.start(session)
            await self._run(session, caller, context)
        finally:
            self._registry.closed(session)
            log.info("client disconnected", client=caller.name)

    def _welcome(self, caller: Caller) -> pb.ConnectResponse:
        limits = self._registry.limits
        welcome = pb.Welcome(
            protocol_version=PROTOCOL_VERSION,
            coordinator_id=self._registry.coordinator_id,
            client=caller.name,
            max_body_size=limits.max_body_bytes,
        )
        welcome.heartbeat_interval.FromMilliseconds(int(limits.heartbeat_interval_s * 1000))
        welcome.heartbeat_timeout.FromMilliseconds(int(limits.heartbeat_timeout_s * 1000))
        return pb.ConnectResponse(welcome=welcome)

    async def _run(self, session: Session, caller: Caller, context: Context) -> None:
        violation: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._write(session, context))
                group.create_task(self._watch(session, caller))
                group.create_task(self._part(session))
                group.create_task(_Reader(self._registry, session, context).run())
        except* _SessionOverError:
            pass
        except* WireError as errors:
            violation = errors.exceptions[0]
        if violation is not None:
            log.warning("session ended: protocol violated", error=str(violation))
            raise violation

    async def _write(self, session: Session, context: Context) -> None:
        while (frame := await session.outgoing.next()) is not None:
            try:
                await context.write(frame)
            except grpc.aio.BaseError:
                break  # the line is gone
        raise _SessionOverError

    async def _watch(self, session: Session, caller: Caller) -> None:
        """Heartbeats, as long as the client is heard and its certificate holds; only handshakes look at that else."""
        limits = self._registry.limits
        beat = pb.ConnectResponse(heartbeat=pb.Heartbeat())
        while True:
            await asyncio.sleep(limits.heartbeat_interval_s)
            silent = time.monotonic() - session.last_heard
            if silent > limits.heartbeat_timeout_s:
                log.warning("client silent, session dropped", silent_s=round(silent, 1))
                raise _SessionOverError
            try:
                caller.check_end(utc_now())
            except CertificateError as err:
                log.warning("certificate expired, session ended")
                session.end(err.reason, str(err))
                return
            session.send(beat)

    async def _part(self, session: Session) -> None:
        """A session that was ended is over, whether or not its client reads the goodbye."""
        await session.ended.wait()
        await asyncio.sleep(FAREWELL_S)
        raise _SessionOverError


async def _read_hello(context: Context) -> pb.Hello:
    try:
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            first = await context.read()
    except TimeoutError:
        raise WireError(f"no hello within {HELLO_TIMEOUT_S:g} s") from None
    if not isinstance(first, bytes):
        raise WireError("the stream ended before its hello")
    frame = _parse(first)
    if frame.WhichOneof("frame") != "hello":
        raise WireError("the first frame must be a hello")
    return frame.hello


def _parse(data: bytes) -> pb.ConnectRequest:
    try:
        return pb.ConnectRequest.FromString(data)
    except DecodeError:
        raise WireError("a frame is not a ConnectRequest") from None


class _Reader:
    """Reads one session's frames; the next is read only when the last one is placed."""

    def __init__(self, registry: SessionRegistry, session: Session, context: Context) -> None:
        self._registry = registry
        self._session = session
        self._context = context
        self._open: dict[int, tuple[OpenCall, IncomingPayload]] = {}
        self._discarded: dict[int, int] = {}
        """Transfers whose bytes are not wanted, and how many of them are still to come."""
        self._rate = FrameRate(registry.limits.max_frames_per_s)

    async def run(self) -> None:
        """Read until the stream ends."""
        try:
            while True:
                data = await self._context.read()
                if not isinstance(data, bytes):
                    raise _SessionOverError
                if self._session.ended.is_set():
                    continue  # revoked or replaced: nothing that it says counts any more
                self._registry.heard(self._session)
                if self._session.outgoing.backlog > MAX_BACKLOG:
                    raise WireError("the client asks for more answers than it reads")
                fragment = decode_fragment(REQUEST_FRAGMENT_TAG, data)
                if fragment is not None:
                    await self._on_fragment(fragment)
                else:
                    if (pause_s := self._rate.pause_s(time.monotonic())) > 0:
                        await asyncio.sleep(pause_s)  # flow control passes it on: the client can send no more
                    self._on_frame(_parse(data))
        finally:
            for _, incoming in self._open.values():
                incoming.abandon()

    def _on_frame(self, frame: pb.ConnectRequest) -> None:
        kind = frame.WhichOneof("frame")
        if kind == "reply":
            self._on_reply(frame.reply)
        elif kind == "failure":
            self._on_failure(frame.failure)
        elif kind == "device":
            self._registry.report_device(self._session, frame.device.device, frame.device.note[:MAX_TEXT])
        elif kind == "heartbeat" and frame.heartbeat.decided_job_ids:
            self._registry.decided(self._session, frame.heartbeat.decided_job_ids)
        elif kind == "heartbeat":
            self._session.busy = frozenset(t for t in frame.heartbeat.busy_task_ids[:MAX_BUSY] if len(t) <= MAX_ID)
            self._registry.report_trouble(self._session, frame.heartbeat.trouble)
        else:
            raise WireError(f"a client may not send {kind or 'an empty frame'} here")

    def _on_reply(self, reply: task_pb2.TaskReply) -> None:
        call = self._registry.call(reply.task_id)
        if call is None or not call.wants(self._session.name):
            self._decline(reply)
            return
        if not call.asked(self._session.name, reply.request_sha256):
            self._discard(reply, "it answers another request: this coordinator was restored from a backup")
            call.ask_anew(self._session)
            return
        try:
            incoming = call.receive(self._session, reply)
        except KernfedError as err:
            self._discard(reply, self._refuse(call, err))
            return
        if incoming.complete:
            self._finish(call, incoming)
            return
        transfer = reply.payload.transfer
        if (
            transfer in self._open
            or transfer in self._discarded
            or any(other is call for other, _ in self._open.values())
            or len(self._open) >= MAX_OPEN_REPLIES
        ):
            incoming.abandon()
            raise WireError(f"this reply, or transfer {transfer}, is under way already, or {MAX_OPEN_REPLIES} others")
        under_way = sum(other.size for _, other in self._open.values())
        if under_way + incoming.size > self._registry.limits.max_inflight_bytes:
            incoming.abandon()
            raise WireError(
                f"{under_way} bytes of replies are under way and {incoming.size} more are announced; at most "
                f"{self._registry.limits.max_inflight_bytes} are allowed (max_inflight_bytes of the coordinator file)"
            )
        self._open[transfer] = (call, incoming)

    def _decline(self, reply: task_pb2.TaskReply) -> None:
        """A reply that is late, or comes again: if it was counted, its acknowledgement is sent again."""
        counted = self._registry.counted(reply.task_id, self._session.name)
        if counted is None:
            self._discard(reply, self._registry.why_unwanted(reply.task_id))
        elif counted == reply_digest(reply.payload):
            self._discard(reply, "")
        else:
            self._registry.report_second_reply(reply.task_id, self._session.name)
            self._discard(reply, "another reply to this task was counted before")

    def _discard(self, reply: task_pb2.TaskReply, why: str) -> None:
        if reply.payload.transfer and reply.payload.body_size:
            self._expect_rest(reply.payload.transfer, reply.payload.body_size)
        self._ack(reply.task_id, why)

    def _expect_rest(self, transfer: int, num_bytes: int) -> None:
        """The client stops sending once it has read that the reply is refused; some of it is on its way."""
        self._discarded[transfer] = num_bytes
        if len(self._discarded) > MAX_OPEN_REPLIES:
            del self._discarded[next(iter(self._discarded))]

    def _refuse(self, call: OpenCall, err: KernfedError) -> str:
        """Note that a client's reply is of no use; the words for the client."""
        log.warning("reply refused", task_id=call.task_id, reason=err.reason, error=str(err))
        call.on_fault(self._session.name, Fault.of(err))
        return f"{err.reason}: {err}"

    async def _on_fragment(self, fragment: FragmentView) -> None:
        left = self._discarded.get(fragment.transfer)
        if left is not None:
            left -= len(fragment.data)
            if left > 0:
                self._discarded[fragment.transfer] = left
            else:
                del self._discarded[fragment.transfer]
            return
        if fragment.transfer not in self._open:
            raise WireError(f"a fragment of transfer {fragment.transfer}, which nobody announced")
        call, incoming = self._open[fragment.transfer]
        try:
            if incoming.spooled:
                await asyncio.to_thread(incoming.add, fragment)
            else:
                incoming.add(fragment)
        except WireError as err:
            del self._open[fragment.transfer]
            left = incoming.missing - len(fragment.data)
            incoming.abandon()
            said = self._refuse(call, err)
            if not isinstance(err, InvalidTensorError):
                raise
            if left > 0:
                self._expect_rest(fragment.transfer, left)
            self._ack(call.task_id, said)
            return
        if incoming.complete:
            del self._open[fragment.transfer]
            self._finish(call, incoming)

    def _finish(self, call: OpenCall, incoming: IncomingPayload) -> None:
        if not call.wants(self._session.name):
            incoming.abandon()
            self._ack(call.task_id, "the step closed while this reply was on its way")
            return
        try:
            call.on_message(self._session.name, incoming)
        except KernfedError as err:
            incoming.abandon()
            self._ack(call.task_id, self._refuse(call, err))
        else:
            # A small reply costs the client nothing to keep: its acknowledgement waits for the next task or heartbeat.
            self._ack(call.task_id, "", now=incoming.size > INLINE_BYTES)

    def _on_failure(self, failure: task_pb2.TaskFailure) -> None:
        call = self._registry.call(failure.task_id)
        self._ack(failure.task_id, "")
        if call is None:
            return
        if not call.asked(self._session.name, failure.request_sha256):
            call.ask_anew(self._session)
        elif call.on_fault(self._session.name, Fault(failure.reason[:64], failure.message[:MAX_TEXT])):
            call.send_to(self._session)

    def _ack(self, task_id: str, refused: str, *, now: bool = True) -> None:
        # A task that is asked again later must be sent: the client may have forgotten it by then.
        self._session.known_tasks.pop(task_id, None)
        ack = pb.ConnectResponse(acks=[task_pb2.TaskAck(task_id=task_id, refused=refused[:MAX_TEXT])])
        self._session.outgoing.attach(ack.SerializeToString(), now=now)
