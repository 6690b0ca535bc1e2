"""One client's session: who it is, what is queued for it, and the limits that it has to keep."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from kernfed.jobs.info import ClientInfo
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.wire.outgoing import Outgoing


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Times and sizes of a session.

    Attributes:
        heartbeat_interval_s: Seconds between heartbeats, both ways.
        heartbeat_timeout_s: A peer silent for this long is taken for dead.
        max_body_bytes: Largest reply body.
        spool_bytes: Reply bodies above this go to a file as they arrive.
        max_inflight_bytes: Bytes of a client's replies that may be under way at a time, as declared.
        max_frames_per_s: Frames of a client that are read per second, pieces of bodies not counted; more wait.
    """

    heartbeat_interval_s: float = 5.0
    heartbeat_timeout_s: float = 20.0
    max_body_bytes: int = 8 << 30
    spool_bytes: int = 4 << 20
    max_inflight_bytes: int = 16 << 30
    max_frames_per_s: float = 5000.0


@dataclass(eq=False)
class Session:
    """One client's stream."""

    info: ClientInfo
    instance_id: str
    serial: str
    known_tasks: dict[str, bytes]
    """Tasks that the client has in full, and whose answers are still to come; they are not sent again. Each with the
    digest of its request; empty from a client that tells none."""
    outgoing: Outgoing = field(default_factory=Outgoing)
    last_heard: float = field(default_factory=time.monotonic)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    busy: frozenset[str] = frozenset()
    """Tasks that the client was receiving or computing at its last heartbeat."""

    @property
    def name(self) -> str:
        """Name in the client's certificate."""
        return self.info.name

    def send(self, frame: pb.ConnectResponse) -> None:
        """Queue a small frame."""
        self.outgoing.put(frame.SerializeToString())

    def end(self, reason: str, message: str) -> None:
        """Say goodbye and end the session."""
        if not self.ended.is_set():
            self.send(pb.ConnectResponse(goodbye=pb.Goodbye(reason=reason, message=message)))
            self.outgoing.close()
            self.ended.set()
