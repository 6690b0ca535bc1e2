"""One client's session: who it is, what is queued for it, and the limits that it has to keep."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Self

from kernfed.jobs.info import ClientInfo, JobInfo
from kernfed.pki.submission import KEPT_BYTES, KEPT_JOBS, sha256_of
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
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


@dataclass(frozen=True, slots=True)
class ToldSubmission:
    """What a job's operator signed, on its way to the job's clients.

    Attributes:
        job_id: The job.
        sha256: By which its tasks name it.
        frame: For the stream of each client, once.
    """

    job_id: str
    sha256: bytes
    frame: bytes

    @classmethod
    def of(cls, job: JobInfo, submission: task_pb2.Submission) -> Self:
        """Serialized once for all clients."""
        told = task_pb2.JobSubmission(job_id=job.job_id, job_toml=job.job_toml, submission=submission)
        return cls(job.job_id, sha256_of(submission), pb.ConnectResponse(submission=told).SerializeToString())


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
    later_fields: frozenset[str] = frozenset()
    """Fields of requests that the client states to know; see `kernfed.federation.messages.later_fields`."""
    device_reports: int = 0
    """Times that the client said what it computes on."""
    told: OrderedDict[str, int] = field(default_factory=OrderedDict)
    """Jobs of which the client has what their operators signed, the last used at the end, each with its bytes."""

    @property
    def name(self) -> str:
        """Name in the client's certificate."""
        return self.info.name

    @property
    def heard_at(self) -> datetime:
        """When the last frame of the client came in."""
        return datetime.now(UTC) - timedelta(seconds=time.monotonic() - self.last_heard)

    def send(self, frame: pb.ConnectResponse) -> None:
        """Queue a small frame."""
        self.outgoing.put(frame.SerializeToString())

    def tell_submission(self, submission: ToldSubmission) -> None:
        """Pass on what a job's operator signed, ahead of a task, unless the client still has it.

        It keeps those that tasks used last, so what it may have let go is told again.
        """
        if submission.job_id not in self.told:
            self.outgoing.put(submission.frame)
        self.told[submission.job_id] = len(submission.frame)
        self.told.move_to_end(submission.job_id)
        while len(self.told) > KEPT_JOBS or sum(self.told.values()) > KEPT_BYTES:
            self.told.popitem(last=False)

    def end_job(self, job_id: str, why: str) -> None:
        """A job is over: the client drops its state."""
        self.told.pop(job_id, None)
        self.send(pb.ConnectResponse(cancel=task_pb2.Cancel(job_id=job_id, why=why[:500])))

    def end(self, reason: str, message: str) -> None:
        """Say goodbye and end the session."""
        if not self.ended.is_set():
            self.send(pb.ConnectResponse(goodbye=pb.Goodbye(reason=reason, message=message)))
            self.outgoing.close()
            self.ended.set()
