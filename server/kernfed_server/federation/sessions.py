"""The clients' sessions: who is connected, one session per identity, and the calls that are open to them."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import structlog

from kernfed.errors import AlreadyConnectedError, RevokedError, VersionMismatchError, WireError
from kernfed.federation.events import EventKind, JobEvent
from kernfed.jobs.info import ClientInfo, JobInfo
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed.wire.frames import MAX_DECIDED_JOBS, MAX_ID, PROTOCOL_VERSION
from kernfed_server.federation.holding import UNSIGNED
from kernfed_server.federation.open_call import OpenCall
from kernfed_server.federation.session import Session, SessionLimits, ToldSubmission
from kernfed_server.federation.standing import Standing

log = structlog.get_logger(__name__)

ON_THEIR_WAY_S = 50.0
"""After a start of the coordinator, the time in which clients dial again, whose pauses have grown up to 30 s."""

MAX_NAMES = 1000
MAX_NAME = 128
"""Data sets and steps that a client may offer, and characters of their names; tasks that it may know."""
MAX_DIGEST = 32
"""Bytes of the digest of a request (SHA-256)."""

MAX_DEVICE_REPORTS = 8
MAX_DEVICE = 200
"""Reports of its device that a client may send in a session, and characters of one."""

MAX_TROUBLE = 200
"""Characters of what a client says to keep it from work."""

KEPT_CALLS = 512
"""Closed calls of which it is known whose replies were counted."""


@dataclass(frozen=True, slots=True)
class _ClosedCall:
    """The kept part of a closed call: clients that lost the acknowledgement of a counted reply send it again."""

    job_id: str
    round_num: int
    step: str
    digests: Mapping[str, bytes]
    observe: Callable[[JobEvent], None]

    def counted(self, client: str) -> bytes | None:
        return self.digests.get(client)


class SessionRegistry:
    """All sessions of the coordinator, and the calls that wait for replies."""

    def __init__(self, limits: SessionLimits, spool: Path) -> None:
        self.limits = limits
        self.spool = spool
        self.coordinator_id = secrets.token_hex(8)
        self.draining = False
        self._sessions: dict[str, Session] = {}
        self._began = time.monotonic()
        self._left: dict[str, float] = {}
        """When clients that have no session lost it."""
        self._revoked: dict[str, str] = {}
        """Clients that have no certificate any more, each with the reason that the operator gave."""
        self._cut: dict[str, str] = {}
        """Serials of certificates that were revoked in this life, each with the words for its holder."""
        self._revoked_operators: pb.ConnectResponse | None = None
        self._seen: dict[str, ClientInfo] = {}
        self._calls: dict[str, OpenCall] = {}
        self._closed: OrderedDict[str, _ClosedCall] = OrderedDict()
        self._signed: dict[str, ToldSubmission] = {}
        """Jobs that were signed while they ran."""
        self._held: dict[str, dict[tuple[str, str], float]] = {}
        """Jobs to clients that hold their answers back, with the reason, each with the time since when."""
        self._told_twice: set[tuple[str, str]] = set()
        """Jobs, each with a client that answered twice, of which the job's notes tell."""
        self._transfers = itertools.count(1)
        self._change = asyncio.Event()
        self.sent_bytes: Counter[str] = Counter()
        """Of requests, by step; what is sent again counts again."""
        self.received_bytes: Counter[str] = Counter()
        """Of replies that were counted, by step."""

    def open(self, info: ClientInfo, serial: str, hello: pb.Hello) -> Session:
        """Begin a session.

        Raises:
            WireError: The client states more, or longer names, than any client has.
            VersionMismatchError: The client speaks another protocol version.
            AlreadyConnectedError: Another daemon is connected under this identity.
            RevokedError: The certificate was revoked between the call and its hello.
        """
        if serial in self._cut:
            raise RevokedError(self._cut[serial])
        if hello.protocol_version != PROTOCOL_VERSION:
            raise VersionMismatchError(
                f"client {info.name} ({hello.software_version[:40]}) speaks protocol {hello.protocol_version}, "
                f"this coordinator speaks {PROTOCOL_VERSION}; install matching releases of kernfed"
            )
        _check_bounds(info.name, hello)
        held = self._sessions.get(info.name)
        if held is not None and held.instance_id != hello.instance_id and self._alive(held):
            since = held.info.last_seen_at
            raise AlreadyConnectedError(
                f"client {info.name} is already connected from {held.info.peer}"
                f"{f' since {since:%Y-%m-%d %H:%M:%S} UTC' if since else ''}; stop that daemon, "
                "or enrol this one under its own name"
            )
        if held is not None:
            held.end("REPLACED", "a newer stream of the same daemon took over")
        session = Session(
            info=replace(
                info,
                connected=True,
                datasets=tuple(d.name for d in hello.datasets),
                steps=tuple(sorted(hello.steps)),
                software_version=hello.software_version[:MAX_NAME],
                last_seen_at=datetime.now(UTC),
            ),
            instance_id=hello.instance_id,
            serial=serial,
            later_fields=frozenset(hello.later_fields),
            known_tasks=_known_tasks(hello),
        )
        self._sessions[info.name] = session
        self._revoked.pop(info.name, None)
        self._seen[info.name] = session.info
        self._changed()
        return session

    def announce(self, revoked: pb.RevocationList) -> None:
        """Tell each client, now and after each welcome, which operators' signatures count no more."""
        self._revoked_operators = pb.ConnectResponse(revoked_operators=revoked)
        for session in self._sessions.values():
            session.send(self._revoked_operators)

    def start(self, session: Session) -> None:
        """After the welcome: tell the client what it must know, and hand it the open calls that it has not answered."""
        if self._revoked_operators is not None:
            session.send(self._revoked_operators)
        for call in self._calls.values():
            call.send_to(session)

    def closed(self, session: Session) -> None:
        """A stream ended, for whatever reason."""
        session.ended.set()
        if self._sessions.get(session.name) is session:
            del self._sessions[session.name]
            self._left[session.name] = time.monotonic()
            self._seen[session.name] = replace(session.info, connected=False, trouble="", last_seen_at=session.heard_at)
            self._changed()

    def heard(self, session: Session) -> None:
        """Any frame came in: the client is alive."""
        session.last_heard = time.monotonic()

    def report_device(self, session: Session, device: str, note: str) -> None:
        """The client says what it computes on, which it learns once; what it says over and over is not heard."""
        if session.device_reports >= MAX_DEVICE_REPORTS:
            return
        session.device_reports += 1
        if note:
            log.info("device of client", device=device[:MAX_DEVICE], note=note)
        session.info = replace(session.info, device=device[:MAX_DEVICE])
        self._seen[session.name] = session.info
        self._changed()

    def report_trouble(self, session: Session, trouble: str) -> None:
        """Each heartbeat says what keeps the client from work; operators read so, and nobody is woken for it."""
        if (told := trouble[:MAX_TROUBLE]) != session.info.trouble:
            session.info = replace(session.info, trouble=told)
            self._seen[session.name] = session.info

    def _alive(self, session: Session) -> bool:
        silent = time.monotonic() - session.last_heard
        return not session.ended.is_set() and silent < self.limits.heartbeat_timeout_s

    def get(self, name: str) -> Session | None:
        """The session of a client, if it has one."""
        return self._sessions.get(name)

    def present(self) -> frozenset[str]:
        """Names of the clients that have a session."""
        return frozenset(self._sessions)

    def away(self, clients: Iterable[str]) -> dict[str, float]:
        """Those of the clients that have no session, each with the time since when (`time.monotonic`).

        Of those that were not there yet it is a time to come: after a start of the coordinator all are on their way.
        """
        coming = self._began + ON_THEIR_WAY_S
        return {name: self._left.get(name, coming) for name in clients if name not in self._sessions}

    def revoke(self, name: str, why: str = "") -> None:
        """A client has no certificate any more: it is out of every step, those under way and those to come."""
        self._revoked[name] = why
        for call in list(self._calls.values()):
            call.on_revoked(name)

    def clients(self) -> Mapping[str, ClientInfo]:
        """Every client that is connected or was, since the coordinator started, and when it was last heard."""
        return {name: self._as_heard(name) for name in sorted(self._seen)}

    def _as_heard(self, name: str) -> ClientInfo:
        session = self._sessions.get(name)
        return self._seen[name] if session is None else replace(self._seen[name], last_seen_at=session.heard_at)

    def revoked(self) -> Mapping[str, str]:
        """The clients whose certificates were revoked, and who did not connect with a new one, each with the reason."""
        return dict(self._revoked)

    async def wait_change(self, timeout_s: float) -> None:
        """Wait until a client comes, goes or reports something, at most `timeout_s` seconds."""
        change = self._change
        try:
            async with asyncio.timeout(timeout_s):
                await change.wait()
        except TimeoutError:
            return

    def _changed(self) -> None:
        self._change.set()
        self._change = asyncio.Event()
        for call in self._calls.values():
            call.wake()

    def next_transfer(self) -> int:
        """A number for the fragments of the next body; wraps after 2³² bodies."""
        return (next(self._transfers) - 1) % (2**32 - 1) + 1

    def add_call(self, call: OpenCall) -> None:
        """Send a call to its clients that are connected, and to the others when they come."""
        self._calls[call.task_id] = call
        for name in call.clients:
            session = self._sessions.get(name)
            if session is not None:
                call.send_to(session)
            elif name in self._revoked:
                call.on_revoked(name)

    def remove_call(self, call: OpenCall) -> None:
        """A call is over: clients that have not answered stop working on it."""
        self._calls.pop(call.task_id, None)
        self._closed[call.task_id] = _ClosedCall(call.job_id, call.round_num, call.step, call.all_counted, call.observe)
        if len(self._closed) > KEPT_CALLS:
            self._closed.popitem(last=False)
        for name in call.unanswered:
            session = self._sessions.get(name)
            if session is not None:
                session.known_tasks.pop(call.task_id, None)
                session.outgoing.drop(call.transfer_to(name))
                session.send(
                    pb.ConnectResponse(
                        cancel=task_pb2.Cancel(job_id=call.job_id, task_id=call.task_id, why="the step is closed")
                    )
                )

    def call(self, task_id: str) -> OpenCall | None:
        """The open call of a task."""
        return self._calls.get(task_id)

    def standings(self, job_ids: Collection[str]) -> dict[str, Standing]:
        """Where the open step of each of some jobs stands, by job id."""
        return {call.job_id: call.standing() for call in self._calls.values() if call.job_id in job_ids}

    def counted(self, task_id: str, client: str) -> bytes | None:
        """Digest of a client's reply to a task that was counted, lately; None: none was."""
        call = self._calls.get(task_id) or self._closed.get(task_id)
        return call.counted(client) if call else None

    def why_unwanted(self, task_id: str) -> str:
        """Words for the client whose reply to a task does not count: which step closed, and what is open now."""
        closed = self._closed.get(task_id)
        if closed is None:
            return "this reply is not wanted (any more)"
        now = next((c for c in self._calls.values() if c.job_id == closed.job_id), None)
        opened = "no step of the job is open" if now is None else f"round {now.round_num}, {now.step}, is open"
        return f"this reply came too late: round {closed.round_num}, {closed.step}, is closed; {opened}"

    def report_second_reply(self, task_id: str, client: str) -> None:
        """A client answered a task that it had answered, and differently: the job's operator reads so, once."""
        call = self._calls.get(task_id) or self._closed.get(task_id)
        if call is not None and (call.job_id, client) not in self._told_twice:
            self._told_twice.add((call.job_id, client))
            log.warning("a second, different reply to a task was refused", task_id=task_id, client=client)
            text = (
                "a second, different reply to a task that it had answered was refused; the first one counts. Of more "
                "such replies nothing is said"
            )
            call.observe(JobEvent(EventKind.NOTE, call.round_num, call.step, client, f"{client}, {call.step}: {text}"))

    def what_is_known(self, client: str, task_id: str) -> str:
        """State of a client whose answer to a task is missing, as words that follow a sentence; may be empty."""
        session = self._sessions.get(client)
        if session is None:
            return "; not connected"
        return "; still at work on it" if task_id in session.busy else ""

    def holds(self, job_id: str, client: str, reason: str) -> float:
        """A client holds its answers to a job back for a reason; returns since when (`time.monotonic`)."""
        return self._held.setdefault(job_id, {}).setdefault((client, reason), time.monotonic())

    def holds_no_more(self, job_id: str, client: str) -> None:
        """A client answers: where it holds back again later, it is waited for as at first."""
        if job_id in self._held:
            self._held[job_id] = {held: since for held, since in self._held[job_id].items() if held[0] != client}

    def decided(self, session: Session, job_ids: Iterable[str]) -> None:
        """The site of a client has decided on jobs: those that waited for it are asked again at once."""
        for job_id in itertools.islice(job_ids, MAX_DECIDED_JOBS):
            for call in list(self._calls.values()):
                if call.job_id == job_id and call.decided(session.name):
                    call.send_to(session)

    def signed(self, job_id: str) -> ToldSubmission | None:
        """What an operator signed of a job that was under way already; None: nothing."""
        return self._signed.get(job_id)

    def sign(self, job: JobInfo, submission: task_pb2.Submission) -> None:
        """A job under way was signed: the clients that asked for a signature are asked again."""
        told = self._signed[job.job_id] = ToldSubmission.of(job, submission)
        held = self._held.pop(job.job_id, {})
        self._held[job.job_id] = {who: since for who, since in held.items() if who[1] != UNSIGNED}
        for call in self._calls.values():
            if call.job_id == job.job_id:
                for name in call.sign(told):
                    if (session := self._sessions.get(name)) is not None:
                        call.send_to(session)

    def end_job(self, job_id: str, why: str) -> None:
        """Tell every connected client that a job is over, so that it drops the job's state."""
        self._signed.pop(job_id, None)
        self._held.pop(job_id, None)
        for task_id in [t for t, call in self._closed.items() if call.job_id == job_id]:
            del self._closed[task_id]
        self._told_twice = {told for told in self._told_twice if told[0] != job_id}
        for session in self._sessions.values():
            session.end_job(job_id, why)

    def cut(self, serials: frozenset[str], reason: str, message: str) -> None:
        """End the sessions of certificates that were revoked, and those that have called and said no hello yet."""
        self._cut |= dict.fromkeys(serials, message)
        for session in list(self._sessions.values()):
            if session.serial in serials:
                log.warning("session cut", client=session.name, reason=reason)
                session.end(reason, message)

    def drain(self, message: str) -> None:
        """End all sessions: the coordinator stops."""
        self.draining = True
        for session in list(self._sessions.values()):
            session.end("UNAVAILABLE", message)


def _known_tasks(hello: pb.Hello) -> dict[str, bytes]:
    """Tasks that need not be sent again, with their digests; of more than any client has, the rest is sent again."""
    digests = itertools.chain(hello.known_requests_sha256, itertools.repeat(b""))
    known = itertools.islice(zip(hello.known_task_ids, digests, strict=False), MAX_NAMES)
    return {task_id: digest for task_id, digest in known if len(task_id) <= MAX_ID and len(digest) <= MAX_DIGEST}


def _check_bounds(client: str, hello: pb.Hello) -> None:
    """Hellos stay in memory and in the store for good, and each is shown to operators."""
    stated = {
        "data sets": [d.name for d in hello.datasets],
        "steps": hello.steps,
        "fields": hello.later_fields,
        "instance": [hello.instance_id],
    }
    for what, names in stated.items():
        if len(names) > MAX_NAMES or any(len(name) > MAX_NAME for name in names):
            raise WireError(
                f"client {client}: its {what} are more than {MAX_NAMES}, or longer than {MAX_NAME} characters"
            )
