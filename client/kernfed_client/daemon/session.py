"""The client's side of the session: dial, say hello, serve tasks; and dial again when the line breaks.

Nothing is lost by a broken line: `kernfed_client.daemon.answering` outlives it, and the hello after a reconnect tells
the coordinator which tasks need not be sent again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import grpc
import grpc.aio
import structlog

from kernfed.errors import KernfedError, UnavailableError
from kernfed.pki.authority import utc_now
from kernfed.pki.identity import Identity, channel_credentials
from kernfed.status import PeerStatus
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.wire.frames import (
    CONNECT_METHOD,
    PROTOCOL_VERSION,
    identity,
)
from kernfed.wire.outgoing import Outgoing
from kernfed.wire.proxy import channel_options
from kernfed_client.daemon.answering import Answering
from kernfed_client.daemon.connection import (
    Connection,
    LineDownError,
    SaidGoodbyeError,
    Stream,
    backoff_s,
    first_failure,
    parse,
    welcomed,
    why_it_ended,
)
from kernfed_client.daemon.idle_cuts import IdleCuts

log = structlog.get_logger(__name__)

WELCOME_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Offer:
    """Facts about this client for the hello."""

    software_version: str
    datasets: tuple[tuple[str, tuple[str, ...]], ...]
    """(name, partitions) pairs."""


class ClientSession:
    """Keeps a session with the coordinator for as long as the daemon lives."""

    def __init__(
        self,
        load_identity: Callable[[], Identity],
        address: str | None,
        offer: Offer,
        tasks: Answering,
        reconnect_max_s: float = 30.0,
        explain: Callable[[str, Identity, KernfedError], KernfedError] = lambda _address, _identity, err: err,
        trouble: Callable[[], str] = str,
    ) -> None:
        """Prepare; `run` dials.

        Args:
            load_identity: Reads the identity from disk at each attempt, so that a renewed certificate is used.
            address: host:port of the coordinator; None: the one in the identity.
            offer: For the hello.
            tasks: Answers what the coordinator asks.
            reconnect_max_s: Longest pause between attempts.
            explain: Turns a failed connection into an error with diagnosis and remedy; may take seconds, and blocks.
            trouble: What keeps this client from work, for operators; empty: nothing.
        """
        self._load_identity = load_identity
        self._address = address
        self._offer = offer
        self.tasks = tasks
        self._reconnect_max_s = reconnect_max_s
        self._explain = explain
        self._trouble = trouble
        self._instance_id = secrets.token_hex(8)
        self._outgoing: Outgoing | None = None
        self._device: tuple[str, str] | None = None
        self.idle_cuts = IdleCuts()
        """What is known of a box that cuts idle lines."""
        self._connected = asyncio.Event()
        self._ended_here = False

    @property
    def connected(self) -> bool:
        """Whether there is a session now."""
        return self._connected.is_set()

    async def wait_connected(self) -> None:
        """Wait for a session."""
        await self._connected.wait()

    def report_device(self, device: str, note: str) -> None:
        """Tell the coordinator what this client computes on, now and after each reconnect."""
        self._device = (device, note)
        if self._outgoing is not None:
            self._send_device(self._outgoing)

    def dial_again(self) -> None:
        """End the connection, so that the next one shows the certificate that lies in the identity folder by now."""
        if self._outgoing is not None:
            self._ended_here = True
            self._outgoing.close()

    async def run(self) -> None:
        """Dial and serve until cancelled. A refusal or a dead line is logged once per change and tried again."""
        attempt = 0
        said = ""
        while True:
            try:
                await self._serve()
                attempt, said = 0, ""
            except (KernfedError, LineDownError) as err:
                if self._was_connected():
                    attempt, said = 0, ""
                else:
                    self.idle_cuts.forget()
                if not self._ended_here:
                    said = await self._say(err, said)
                self._ended_here = False
            await asyncio.sleep(backoff_s(attempt, self._reconnect_max_s))
            attempt += 1

    def _was_connected(self) -> bool:
        was = self._connected.is_set()
        self._connected.clear()
        return was

    async def _say(self, err: Exception, said: str) -> str:
        text = str(err)
        if isinstance(err, UnavailableError):
            text = await self._explained(err)
        if text != said:
            log.warning(
                "no session with the coordinator; trying again until there is one",
                error=text,
                reason=getattr(err, "reason", "UNAVAILABLE"),
            )
        return text

    async def _explained(self, err: KernfedError) -> str:
        def diagnose() -> KernfedError:
            me = self._load_identity()
            return self._explain(self._address or me.coordinator, me, err)

        try:
            return str(await asyncio.to_thread(diagnose))
        except KernfedError as own:
            return str(own)

    async def _serve(self) -> None:
        """One connection, from dialling to its end."""
        me = await asyncio.to_thread(self._load_identity)
        address = self._address or me.coordinator
        async with grpc.aio.secure_channel(
            address, channel_credentials(me), options=channel_options(address)
        ) as channel:
            call = channel.stream_stream(CONNECT_METHOD, request_serializer=identity, response_deserializer=identity)
            stream: Stream = call()
            ended = PeerStatus(stream)
            try:
                welcome = await self._greet(stream, ended)
                log.info("session open", coordinator=address, client=welcome.client)
                await self._converse(stream, ended, welcome, lambda: me.check_end(utc_now()))
            except grpc.aio.AioRpcError as err:
                raise why_it_ended(await ended.behind(err)) from err
            except asyncio.InvalidStateError as err:
                raise LineDownError("the stream ended") from err
            finally:
                stream.cancel()

    async def _greet(self, stream: Stream, ended: PeerStatus) -> pb.Welcome:
        known = self.tasks.known
        hello = pb.Hello(
            protocol_version=PROTOCOL_VERSION,
            software_version=self._offer.software_version,
            instance_id=self._instance_id,
            datasets=[pb.OfferedDataset(name=n, partitions=p) for n, p in self._offer.datasets],
            steps=self.tasks.step_names,
            later_fields=self.tasks.later_fields,
            known_task_ids=list(known),
            known_requests_sha256=list(known.values()),
        )
        try:
            async with asyncio.timeout(WELCOME_TIMEOUT_S):
                await stream.write(pb.ConnectRequest(hello=hello).SerializeToString())
                first = await stream.read()
        except TimeoutError:
            raise UnavailableError(f"no welcome from the coordinator within {WELCOME_TIMEOUT_S:g} s") from None
        if not isinstance(first, bytes):
            raise why_it_ended(await ended.end())
        return welcomed(parse(first))

    async def _converse(
        self, stream: Stream, ended: PeerStatus, welcome: pb.Welcome, check_identity: Callable[[], None]
    ) -> None:
        outgoing = self._outgoing = Outgoing()
        self.tasks.connected(outgoing)
        self._send_device(outgoing)
        self._connected.set()
        connection = Connection(
            self.tasks, stream, ended, outgoing, welcome, self.idle_cuts, check_identity, self._trouble
        )
        try:
            failure = await first_failure(connection.write(), connection.read(), connection.heartbeat())
        finally:
            self._outgoing = None
            self.tasks.disconnected(connection.unfinished)
        if failure is not None:
            broke = isinstance(failure, (UnavailableError, LineDownError, grpc.aio.AioRpcError))
            if broke and not connection.silent and not self._ended_here and not isinstance(failure, SaidGoodbyeError):
                self.idle_cuts.broke(connection.idle_s)
            else:
                self.idle_cuts.forget()
            raise failure

    def _send_device(self, outgoing: Outgoing) -> None:
        if self._device is not None:
            report = pb.DeviceReport(device=self._device[0], note=self._device[1])
            outgoing.put(pb.ConnectRequest(device=report).SerializeToString())
