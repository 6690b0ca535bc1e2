"""One request to many clients over their sessions: replies are checked as they arrive, and a step's state closes it."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, cast

import structlog

from kernfed.errors import PolicyError, RevokedError, VersionMismatchError, WireError
from kernfed.federation.events import EventKind, JobEvent
from kernfed.federation.exchange import Call, Fault, quorum_error
from kernfed.federation.messages.base import Reply
from kernfed.federation.messages.later_fields import unknown_fields
from kernfed.v1 import task_pb2
from kernfed.wire.incoming import IncomingPayload
from kernfed.wording import listed, moment
from kernfed_server.federation.call_frames import CallFrames
from kernfed_server.federation.holding import UNAPPROVED, UNSIGNED, Holding
from kernfed_server.federation.session import Session, SessionLimits, ToldSubmission
from kernfed_server.federation.standing import Standing
from kernfed_server.jobs.step_state import Decision, StepRules, StepState

MAX_ANEW = 3
"""Times that a client is sent a task again that answers another request."""

_NEVER_S = 1e9

log = structlog.get_logger(__name__)


class Clients(Protocol):
    """All that a call needs to know of the other sessions."""

    @property
    def limits(self) -> SessionLimits:
        """Times and sizes of every session."""

    @property
    def spool(self) -> Path:
        """Folder for large replies as they arrive."""

    @property
    def sent_bytes(self) -> Counter[str]:
        """Of requests, by step."""

    @property
    def received_bytes(self) -> Counter[str]:
        """Of replies that were counted, by step."""

    def next_transfer(self) -> int:
        """A number for the fragments of a body."""

    def away(self, clients: Iterable[str]) -> dict[str, float]:
        """Those of the clients that have no session, each with the time since when (`time.monotonic`)."""

    def holds(self, job_id: str, client: str, reason: str) -> float:
        """A client holds its answers to a job back for a reason; returns since when (`time.monotonic`)."""

    def holds_no_more(self, job_id: str, client: str) -> None:
        """It answers."""

    def what_is_known(self, client: str, task_id: str) -> str:
        """Words on a client that does not answer."""


class OpenCall:
    """A call that waits for replies."""

    def __init__(
        self,
        call: Call[Any],
        clients: Clients,
        submitted_by: str,
        method: str,
        submission: ToldSubmission | None = None,
    ) -> None:
        self._call = call
        self._sessions = clients
        rules = StepRules(call.needed, call.everyone, call.deadline_s, call.wait_s, call.grace_s, call.rows)
        self._began, self._began_at = time.monotonic(), datetime.now(UTC)
        self._state = StepState(call.clients, rules, self._began)
        self.outcomes: dict[str, Reply | Fault] = {}
        self._wake = asyncio.Event()
        self._waiting = ""
        self._spools: list[Path] = []
        self._submission = submission
        signed = b"" if submission is None else submission.sha256
        told = task_pb2.Task(submitted_by=submitted_by, method=method, submission_sha256=signed)
        self._frames = CallFrames(call, clients.next_transfer, told)
        self._holding = Holding(call.job_id, submitted_by, clients.holds)
        self._signed_late: set[str] = set()
        """Clients that were sent the task before the job was signed."""
        self._announced: dict[str, bytes] = {}
        self._anew: Counter[str] = Counter()
        """Times that a client answered another request."""

    async def prepare(self) -> None:
        """Serialize the request of all clients; a large one is hashed beside the event loop."""
        await self._frames.prepare()

    def transfer_to(self, client: str) -> int:
        """Number of the fragments of the request to a client; 0: nothing was sent to it."""
        sent = self._frames.sent_to(client)
        return 0 if sent is None else sent.transfer

    @property
    def task_id(self) -> str:
        """The same for all clients of the call."""
        return self._call.task_id

    @property
    def job_id(self) -> str:
        """Job of the call."""
        return self._call.job_id

    @property
    def round_num(self) -> int:
        """Round of the call."""
        return self._call.round_num

    @property
    def step(self) -> str:
        """Wire name of the step."""
        return self._call.request.step

    @property
    def clients(self) -> tuple[str, ...]:
        """Names of those asked."""
        return self._call.clients

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Clients whose reply is still wanted."""
        return self._state.pending

    def counted(self, client: str) -> bytes | None:
        """Digest of the reply of a client that was counted; None: none was."""
        return self._announced.get(client) if isinstance(self.outcomes.get(client), Reply) else None

    @property
    def all_counted(self) -> dict[str, bytes]:
        """Digests of the replies that were counted, by client."""
        return {client: digest for client in self.outcomes if (digest := self.counted(client)) is not None}

    @property
    def observe(self) -> Callable[[JobEvent], None]:
        """Takes the events of the job."""
        return self._call.observe

    def wake(self) -> None:
        """Something changed that the waiting side should look at."""
        self._wake.set()

    def send_to(self, session: Session) -> None:
        """Give a client its task, unless it has it already."""
        if session.name not in self._state.pending:
            return
        if self._holding.holds(session.name, UNAPPROVED):
            self._holding.release(session.name)
            self.outcomes.pop(session.name, None)
        if lacking := unknown_fields(self._call.request_of(session.name), session.later_fields):
            self.on_fault(session.name, _too_old(session, lacking))
            return
        task = self._frames.to(session.name)
        if session.known_tasks.get(self.task_id) not in (b"", task.sha256):
            if self._submission is not None:
                session.tell_submission(self._submission)
            session.outgoing.put(task.frame, task.body, shared=task.shared)
            self._sessions.sent_bytes[self.step] += len(task.frame) + (task.body.size if task.body else 0)

    def ask_anew(self, session: Session) -> None:
        """A client answered another request, as of before a backup was restored: it gets its own, a few times."""
        if not self.wants(session.name):
            return
        self._anew[session.name] += 1
        if self._anew[session.name] > MAX_ANEW:
            self.on_fault(
                session.name, Fault(WireError.reason, "it answers another request, however often it is asked")
            )
        else:
            self.send_to(session)

    def asked(self, client: str, sha256: bytes) -> bool:
        """Whether this is the digest of the request to a client; an empty one, of a client of before, passes."""
        sent = self._frames.sent_to(client)
        return not sha256 or sent is None or sha256 == sent.sha256

    def wants(self, client: str) -> bool:
        """Whether a reply of this client would count."""
        return client in self._state.pending

    def receive(self, session: Session, reply: task_pb2.TaskReply) -> IncomingPayload:
        """Begin to receive a reply.

        Raises:
            WireError: The reply is malformed or declares more than is allowed.
        """
        limits = self._sessions.limits
        spool = None
        if reply.payload.body_size > limits.spool_bytes:
            name = hashlib.sha256(f"{self.task_id}\0{session.name}\0{session.instance_id}".encode()).hexdigest()
            spool = self._sessions.spool / f"{name}-{self._sessions.next_transfer()}.body"
            self._spools.append(spool)
        dims = self._call.dims_of(session.name)
        incoming = IncomingPayload(self._call.request.reply, reply.payload, limits.max_body_bytes, dims, spool)
        self._announced[session.name] = reply_digest(reply.payload)
        return incoming

    def on_message(self, client: str, incoming: IncomingPayload) -> None:
        """A reply is complete: check it and count it.

        Raises:
            KernfedError: The reply is refused; the caller passes it to `on_fault`.
        """
        reply = cast("Reply", incoming.message())
        self._call.accept(client, reply)
        if self._state.on_reply(client):
            self.outcomes[client] = reply
            self._holding.release(client)
            self._sessions.holds_no_more(self.job_id, client)
            self._sessions.received_bytes[self.step] += incoming.size
            self._observe(EventKind.CLIENT_ANSWERED, client)
            self._wake_if_decided()

    def on_fault(self, client: str, fault: Fault) -> bool:
        """A client cannot or may not answer; gives whether it is to be asked again at once."""
        if fault.reason == UNAPPROVED and client in self._state.pending:
            self._hold(client, fault)
            return False
        if fault.reason == UNSIGNED and client in self._state.pending:
            if self._submission is None:
                self._hold(client, fault)
                return False
            if client in self._signed_late:  # the refusal was on its way when the job was signed
                self._signed_late.remove(client)
                return True
        # A client without the job's state is prepared and asked again by the cohort, which tells it: the quorum has it.
        if self._state.on_reply(client) if fault.unprepared else self._state.on_fault(client):
            self.outcomes[client] = fault
            if not fault.unprepared:
                self._observe(EventKind.CLIENT_FAILED, client, fault.message, fault.reason)
            self._wake_if_decided()
        return False

    def on_revoked(self, client: str) -> None:
        """A client has no certificate any more: it is out, unless the quorum hangs on it; then it may enrol anew."""
        if self._state.can_spare(client):
            self.on_fault(client, Fault(RevokedError.reason, "its certificate was revoked"))

    def _wake_if_decided(self) -> None:
        away = self._away()
        if self._waiting or away or self._state.decide(time.monotonic(), away) is not Decision.OPEN:
            self._wake.set()

    def _observe(self, kind: EventKind, client: str, message: str = "", reason: str = "") -> None:
        self._call.observe(JobEvent(kind, self._call.round_num, self._call.request.step, client, message, reason))

    def _hold(self, client: str, fault: Fault) -> None:
        """A client refuses for a reason that may pass: the job's operator may sign it, or the site approve it."""
        self.outcomes[client] = fault  # unless it answers after all
        self._holding.add(client, fault.reason)
        self._wake.set()

    def decided(self, client: str) -> bool:
        """The site of a client has decided on the job; gives whether the client is to be asked again."""
        if not (self._holding.holds(client, UNAPPROVED) and self.wants(client)):
            return False
        if self._holding.decides_too_often(client):
            self._holding.release(client)
            self.on_fault(client, Fault(PolicyError.reason, "its site decides on the job over and over"))
            return False
        self._wake.set()
        return True

    def sign(self, submission: ToldSubmission) -> Iterable[str]:
        """The job was signed; gives the clients that are to be asked again."""
        self._submission = submission
        self._signed_late = {c for c in self._frames.sent if not self._holding.holds(c, UNSIGNED)}
        self._frames.sign(submission.sha256)
        again = self._holding.signed()
        for client in again:
            self.outcomes.pop(client, None)
        self._wake.set()
        return again

    def _away(self) -> dict[str, float]:
        """Clients that are not at work on the step: those without a session, and those that hold back."""
        pending = self._state.pending
        return self._holding.among(pending) | self._sessions.away(pending)

    async def result(self) -> Mapping[str, Reply | Fault]:
        """Wait until the step closes.

        Raises:
            QuorumNotMetError: Too few answers.
        """
        loop = asyncio.get_running_loop()
        while True:
            now = time.monotonic()
            away = self._away()
            decision = self._state.decide(now, away)
            if decision is Decision.CLOSE:
                if self._waiting:
                    self._observe(EventKind.WAITING, "", "")  # no more
                for client in self._state.pending:
                    why = self._holding.why_missing(client) or self._sessions.what_is_known(client, self.task_id)
                    limit = "by the deadline" if self._state.is_late(now) else "in the time that cohort.grace_s gives"
                    self._observe(EventKind.CLIENT_MISSING, client, f"no answer {limit}{why}")
                return self.outcomes
            if decision is Decision.FAIL:
                raise quorum_error(self._call, self.outcomes)
            self._say_waiting(now, away)
            self._wake.clear()
            timer = loop.call_later(self._state.next_change(now, away) + 1e-3, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()

    def _say_waiting(self, now: float, away: Mapping[str, float]) -> None:
        text, until = self._state.waiting(away, now), self._state.closes_at(away)
        if until < math.inf and len(away) == len(self._state.pending):  # else it waits for those that compute
            text = self._holding.closing(away, self._clock(until))
        elif held := self._holding.waiting(away, self._clock(min(until, self._state.gives_up_at))):
            text = held
        if text != self._waiting:
            self._waiting = text
            self._observe(EventKind.WAITING, "", text)

    def standing(self) -> Standing:
        """Where the call stands now."""
        away = self._away()
        closes_at, gives_up_at = self._state.closes_at(away), self._state.gives_up_at
        closes = closes_at <= gives_up_at
        until = self._clock(closes_at if closes else gives_up_at)
        return Standing(self.step, self.round_num, self.clients, self.unanswered, frozenset(away), until, closes)

    def _clock(self, when: float) -> str:
        """A time to come, by `time.monotonic`, for reading; empty: none that anybody lives to see."""
        if when - self._began > _NEVER_S:
            return ""
        at = self._began_at + timedelta(seconds=when - self._began)
        return f"{at:%H:%M:%S} UTC" if at.date() == datetime.now(UTC).date() else moment(at)

    def forget_spools(self) -> None:
        """Remove the files of the replies; memory maps of them stay readable until they are dropped."""
        for path in self._spools:
            path.unlink(missing_ok=True)


def _too_old(session: Session, lacking: list[str]) -> Fault:
    """Of a client that would pass over what it is asked."""
    named = listed([name.replace(":", ": ") for name in lacking], 5)
    return Fault(
        VersionMismatchError.reason,
        f"its release of kernfed ({session.info.software_version or 'unknown'}) does not know what the job asks for "
        f"({named}); install this coordinator's release there, or leave out the keys of the job that need it",
    )


def reply_digest(payload: task_pb2.Payload) -> bytes:
    """Digest that tells two replies to one task apart: header, size, and the body where it is in the frame.

    Bodies that come in pieces are told apart by header and size alone: to hash what is gigabytes in every round would
    cost more than it tells about a client that answers twice.
    """
    digest = hashlib.blake2b(payload.header, digest_size=16)
    digest.update(payload.body_size.to_bytes(8, "little"))
    digest.update(payload.inline_body)
    return digest.digest()
