"""The audit log: one JSON line for every reply that leaves the site, each line chained to the one before by its hash.

What the policy refused has a line too, of kind "refused", though nothing left.

A line is written before its reply is sent. A changed or removed line breaks the chain from there on, unless
the whole rest is written anew; keep a copy of the last line's hash elsewhere to rule that out too.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from kernfed.errors import DataError, UnavailableError
from kernfed.federation.messages.base import Kind, Message, fields_of
from kernfed.journal import append

AUDIT_FILE = "audit.jsonl"
"""Its name in the state folder."""

MAX_DIGEST_BYTES = 1 << 20
"""Replies up to this size are hashed; of larger ones shapes and size are noted, for hashing them would cost a round
as much as computing it."""

REFUSED = "refused"
"""The `kind` of a line about a task that the policy refused."""
MAX_MESSAGE = 500
"""Characters of the reason for a refusal in a line."""
MAX_FACTS, MAX_ITEMS, MAX_TEXT = 32, 8, 40
"""Fields of a request in a line, items of a list of it, and characters of a text."""

_START = "0" * 64
_TAIL = 1 << 16


class AuditLog:
    """An append-only file. Safe for use by several threads of one process."""

    def __init__(self, path: Path) -> None:
        """Open or begin a log, readable by its owner alone.

        Raises:
            OSError: The file cannot be opened for appending.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        last = _last_line(self._file)
        if last and not last.endswith(b"\n"):  # the machine stopped in mid-write
            os.write(self._file, b"\n")
        self._torn = bool(last) and read_line(last) is None
        self._previous = _digest(last.rstrip(b"\n")) if last else _START

    def record(
        self,
        *,
        job_id: str,
        task_id: str,
        step: str,
        operator: str,
        kinds: Iterable[Kind],
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
            kinds: Kinds of information in it.
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
            "when": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "job": job_id,
            "task": task_id,
            "step": step,
            "operator": operator,
            "kinds": list(kinds),
            "request": facts_of(request),
            "request_sha256": request_sha256.hex(),
            "reply": type(reply).__name__,
            "shapes": shapes_of(reply),
            "bytes": num_bytes,
            "numbers": num_numbers,
            "sha256": _digest(header, *body) if num_bytes <= MAX_DIGEST_BYTES else None,
        }
        self._append(line)

    def refused(
        self,
        *,
        job_id: str,
        task_id: str,
        step: str,
        operator: str,
        method: str,
        request_sha256: bytes,
        reason: str,
        message: str,
    ) -> None:
        """Append a line about a task that the policy refuses; nothing of its request, and nothing left.

        Args:
            job_id: The job that the task belongs to.
            task_id: The task.
            step: The step's wire name.
            operator: Whose job it is.
            method: The job's method.
            request_sha256: Digest of the request, as the coordinator stated it.
            reason: Code of the refusal.
            message: What is forbidden, for a person.

        Raises:
            OSError: The line could not be written; the log is as before.
        """
        self._append(
            {
                "when": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "kind": REFUSED,
                "job": job_id,
                "task": task_id,
                "step": step,
                "operator": operator,
                "method": method,
                "request_sha256": request_sha256.hex(),
                "reason": reason,
                "message": message[:MAX_MESSAGE],
            }
        )

    def _append(self, line: dict[str, Any]) -> None:
        with self._lock:
            if self._file < 0:
                raise UnavailableError("this client stops; what it was asked is computed by its next life")
            if self._torn:
                line["after_torn_line"] = True
            line["previous"] = self._previous
            text = json.dumps(line, separators=(",", ":")).encode()
            append(self._file, text + b"\n")  # half a line would break the chain
            self._torn = False
            self._previous = _digest(text)

    def close(self) -> None:
        """Close the file; the log takes no more lines, and a step that ends later cannot send its reply."""
        with self._lock:
            os.close(self._file)
            self._file = -1  # not the number of a file that is opened after this one


def verify(path: Path) -> int:
    """Check the chain of a log.

    Returns:
        The number of lines.

    Raises:
        DataError: Names the first line that does not follow from the one before.
    """
    previous = _START
    torn_at = 0
    count = 0
    with path.open("rb") as file:
        for count, raw in enumerate(file, start=1):
            text = raw.rstrip(b"\n")
            line = read_line(text)
            if line is None:
                torn_at = torn_at or count
            else:
                torn_before = count > 1 and torn_at == count - 1
                if line.get("previous") != previous or bool(line.get("after_torn_line")) != torn_before:
                    raise DataError(f"{path}: line {count} does not follow from the one before; the log was changed")
                torn_at = 0
            previous = _digest(text)
    if torn_at and torn_at != count:
        raise DataError(f"{path}: line {torn_at} is damaged")
    return count


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
            digest = _digest(np.ascontiguousarray(value).tobytes()) if small else None
            yield name, {"shape": list(value.shape), "sha256": digest}
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


def _digest(*parts: bytes | memoryview) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def read_line(text: bytes) -> dict[str, Any] | None:
    """The facts of a line; None where it is not whole."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None


def _last_line(file: int) -> bytes:
    size = os.fstat(file).st_size
    tail = os.pread(file, _TAIL, max(size - _TAIL, 0))
    return tail[tail.rstrip(b"\n").rfind(b"\n") + 1 :]
