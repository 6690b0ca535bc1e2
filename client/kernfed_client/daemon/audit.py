"""The audit log: one JSON line for every reply that leaves the site, each line chained to the one before by its hash.

What the policy refused has a line too, of kind "refused", though nothing left; `kernfed_client.daemon.refusals` counts
those that come over and over, and a line with `times` stands for as many of them. What people decided has one of kind
"decided".

A line is written before its reply is sent. A changed or removed line breaks the chain from there on, unless
the whole rest is written anew; keep a copy of the last line's hash elsewhere to rule that out too.
`kernfed_client.daemon.audit_chain` keeps the chain and its files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import structlog

from kernfed.errors import UnavailableError
from kernfed.federation.messages.base import Kind, Message, fields_of
from kernfed_client.daemon.audit_chain import DEFAULT_FILE_BYTES, Chain, digest
from kernfed_client.daemon.refusals import Refusals

log = structlog.get_logger(__name__)

AUDIT_FILE = "audit.jsonl"
"""Its name in the state folder."""

MAX_DIGEST_BYTES = 1 << 20
"""Replies up to this size are hashed; of larger ones shapes and size are noted, for hashing them would cost a round
as much as computing it."""

REFUSED = "refused"
"""The `kind` of a line about a task that the policy refused."""
DECIDED = "decided"
"""The `kind` of a line about what somebody at the site decided on a job."""
MAX_MESSAGE = 500
"""Characters of the reason for a refusal in a line."""
MAX_FACTS, MAX_ITEMS, MAX_TEXT = 32, 8, 40
"""Fields of a request in a line, items of a list of it, and characters of a text."""


class AuditLog:
    """An append-only file. Safe for use by several threads of one process."""

    def __init__(
        self,
        path: Path,
        *,
        file_bytes: int = DEFAULT_FILE_BYTES,
        monthly: bool = True,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """See `kernfed_client.daemon.audit_chain.Chain`."""
        self._now = now
        self._chain = Chain(path, file_bytes=file_bytes, monthly=monthly, now=now)
        self._refusals = Refusals(path)
        self._refusing = threading.Lock()
        self._half_written: list[dict[str, Any]] = []

    def record(
        self,
        *,
        job_id: str,
        task_id: str,
        step: str,
        operator: str,
        submission: str | None,
        revocations: datetime | None,
        kinds: Iterable[Kind],
        remark: str = "",
        request: Message,
        request_sha256: bytes,
        reply: Message,
        header: bytes,
        body: Iterable[memoryview | bytes],
        num_bytes: int,
        num_numbers: int,
    ) -> None:
        """Append a line about a reply that is about to leave.

        Args:
            job_id: The job it answers.
            task_id: The task it answers.
            step: The step's wire name.
            operator: Whose job it is.
            submission: Digest of what the operator signed; None: it is not proven whose job it is.
            revocations: When the list of revoked operators was signed that the operator was judged by; None: no list
                that still counts was here.
            kinds: Kinds of information in it.
            remark: What there is to say beside its kinds, e.g. that it is masked; empty: nothing.
            request: What is answered; its scalars are noted, and digests of its arrays.
            request_sha256: Digest of the whole request, as the coordinator stated it with the task.
            reply: The message; only the shapes of its arrays are noted.
            header: Its encoded header.
            body: Its encoded body in pieces; read only where it is small enough to be hashed.
            num_bytes: Size of header and body.
            num_numbers: Numbers in its arrays, those of nested parts included.

        Raises:
            OSError: The line could not be written; the log is as before, and the reply must not leave.
        """
        line: dict[str, Any] = {
            "when": self._now().isoformat(timespec="milliseconds"),
            "job": job_id,
            "task": task_id,
            "step": step,
            "operator": operator,
            "submission": submission,
            "revocations": None if revocations is None else revocations.isoformat(timespec="seconds"),
            "kinds": list(kinds),
            **({"remark": remark} if remark else {}),
            "request": facts_of(request),
            "request_sha256": request_sha256.hex(),
            "reply": type(reply).__name__,
            "shapes": shapes_of(reply),
            "bytes": num_bytes,
            "numbers": num_numbers,
            "sha256": digest(header, *body) if num_bytes <= MAX_DIGEST_BYTES else None,
        }
        self._chain.add(line)

    def refused(
        self,
        *,
        job_id: str,
        task_id: str,
        step: str,
        operator: str,
        submission: str | None,
        method: str,
        request_sha256: bytes,
        reason: str,
        message: str,
    ) -> None:
        """Append a line about a task that the policy refuses, or count it; nothing of its request, and nothing left.

        Args:
            job_id: The job that the task belongs to.
            task_id: The task.
            step: The step's wire name.
            operator: Whose job it is.
            submission: Digest of what the operator signed; None: it is not proven whose job it is.
            method: The job's method.
            request_sha256: Digest of the request, as the coordinator stated it.
            reason: Code of the refusal.
            message: What is forbidden, for a person.

        Raises:
            OSError: The line could not be written; the log is as before.
        """
        line = {
            "job": job_id,
            "task": task_id,
            "step": step,
            "operator": operator,
            "submission": submission,
            "method": method,
            "request_sha256": request_sha256.hex(),
            "reason": reason,
            "message": message[:MAX_MESSAGE],
        }
        with self._refusing:
            self._add_refusals(self._refusals.due(line, self._now()))

    def decided(
        self,
        *,
        job_id: str,
        operator: str,
        submission: str | None,
        method: str,
        plan: str,
        word: str,
        why: str,
        user: str,
        decided_at: str,
    ) -> None:
        """Append a line about what somebody at the site decided on a job, before anything follows from it.

        Args:
            job_id: The job.
            operator: Whose job it is.
            submission: Digest of what the operator signed; None: it is not proven whose job it is.
            method: The job's method.
            plan: Digest of what decides what leaves.
            word: `approve`, `refuse`, `pause` or `resume`.
            why: The reason that was given.
            user: Who decided, by the account of this machine.
            decided_at: When, ISO 8601.

        Raises:
            OSError: The line could not be written; the log is as before.
        """
        self._chain.add(
            {
                "when": self._now().isoformat(timespec="milliseconds"),
                "kind": DECIDED,
                "job": job_id,
                "operator": operator,
                "submission": submission,
                "method": method,
                "plan": plan,
                "decision": word,
                "why": why[:MAX_MESSAGE],
                "user": user,
                "decided_at": decided_at,
            }
        )

    def _add_refusals(self, lines: Iterable[dict[str, Any]]) -> None:
        for line in lines:
            if line not in self._half_written:  # before the disk was full, in the midst of these lines
                self._chain.add({"when": self._now().isoformat(timespec="milliseconds"), "kind": REFUSED, **line})
                self._half_written.append(line)
        self._half_written.clear()
        self._refusals.written()

    def close(self) -> None:
        """Close the file; the log takes no more lines, and a step that ends later cannot send its reply."""
        with self._refusing:
            try:
                self._add_refusals(self._refusals.rest())
            except (OSError, UnavailableError) as err:
                log.warning("counts of refusals are not in the audit log", error=str(err))
        self._chain.close()


def facts_of(request: Message) -> dict[str, Any]:
    """What decides on the meaning of an answer: a request's scalars and short texts, and digests of its arrays.

    Fields of nested parts have names with dots. Texts are cut at `MAX_TEXT`, lists at `MAX_ITEMS`, and at most
    `MAX_FACTS` fields are told, so a peer cannot make a line long; `"..."` counts those that are left out.
    """
    facts: dict[str, Any] = {}
    left_out = 0
    for name, value in _facts(request, ""):
        if len(facts) < MAX_FACTS:
            facts[name] = value
        else:
            left_out += 1
    return facts | ({"...": left_out} if left_out else {})


def _facts(message: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for field in fields_of(type(message)):
        name, value = f"{prefix}{field.name}", getattr(message, field.name)
        if isinstance(value, np.ndarray):
            small = value.nbytes <= MAX_DIGEST_BYTES
            sha256 = digest(np.ascontiguousarray(value).tobytes()) if small else None
            yield name, {"shape": list(value.shape), "sha256": sha256}
        elif isinstance(value, tuple):
            plain = [] if field.nested else [_short(item) for item in value[:MAX_ITEMS]]
            yield name, plain if len(plain) == len(value) else {"items": len(value), "first": plain}
        elif field.nested:
            yield from _facts(value, f"{name}.")
        else:
            yield name, _short(value)


def _short(value: Any) -> Any:
    return value[:MAX_TEXT] if isinstance(value, str) else value


def shapes_of(message: Message) -> dict[str, list[int]]:
    """Shapes of the arrays in a message, by field; arrays of nested parts are left out."""
    cls: Any = type(message)
    return {
        field.name: list(getattr(message, field.name).shape) for field in fields_of(cls) if field.type is np.ndarray
    }
