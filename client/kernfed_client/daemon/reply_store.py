"""Computed replies on disk, so that a daemon that is killed need not compute them again.

Small replies are appended to one journal, large ones streamed to a file each. Nothing is fsynced: what was written
outlives the process without it, and that is what this is for. After a loss of power a reply may be gone or damaged;
damage is found (checksum; for large ones, which a checksum would cost as much as the wire, the boot in which they were
written), and the reply is computed again, to the same bits. A disk that fills up costs this safety net only.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import struct
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import structlog
from google.protobuf.message import DecodeError

from kernfed import files
from kernfed.files import Part
from kernfed.journal import Framing, Journal, boot_id
from kernfed.v1 import task_pb2
from kernfed.wire.outgoing import payload_to_proto
from kernfed.wire.payload import INLINE_BYTES, Payload, aligned

log = structlog.get_logger(__name__)

MAX_STORED_BYTES = 4 << 30
"""Bytes of replies on disk; one more than these is sent all the same, and computed again after a kill."""
MAX_JOURNAL_BYTES = 8 << 20
"""Bytes of small replies on disk, as above."""
IDLE_JOURNAL_BYTES = 1 << 20
"""A journal without undelivered replies is emptied from this size on, and when a job ends."""

_FRAMING = Framing(b"kfr1", "II")
"""Of a record: the job id, and the reply."""
_TRAILER = struct.Struct("<Q")
"""Behind the body of a reply in a file of its own: the sum of its 64-bit words. Arrays begin at multiples of 64 bytes,
so the sums of the pieces are that of the whole."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Restored:
    """A reply that an earlier life of the daemon computed."""

    job_id: str
    task_id: str
    payload: Payload
    compute_s: float
    request_sha256: bytes
    """Of the request that it answers."""


class ReplyStore:
    """A folder of replies. Safe for use by several threads of one process; never raises for a disk that fails."""

    def __init__(self, folder: Path, terms: str) -> None:
        """Open the folder and read what is in it.

        Args:
            folder: For this store alone.
            terms: Text under which replies may be sent (policy, data sets). What was stored under another is dropped.
        """
        self._folder = folder / hashlib.sha256(terms.encode()).hexdigest()[:16]
        for other in folder.iterdir() if folder.is_dir() else ():
            if other != self._folder:
                shutil.rmtree(other, ignore_errors=True)
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._boot = boot_id()
        self._lock = threading.Lock()
        self._files: dict[str, tuple[str, int]] = {}
        """Large replies on disk: task to job and bytes."""
        self._waiting: dict[str, str] = {}
        """Small replies of the journal that are not acknowledged: task to job."""
        self._journal = Journal(self._folder / "journal", _FRAMING)
        self._failing = False

    def restore(self) -> list[Restored]:
        """Replies of an earlier life, the large ones as memory maps. Call once, before anything is stored."""
        small = [found for record in self._journal.read() if (found := _small(record))]
        large = [found for path in sorted(self._folder.glob("*.reply")) if (found := self._read_file(path))]
        files.remove_parts(self._folder, older_than_s=0)
        self._files = {r.task_id: (r.job_id, r.payload.body_size) for r in large}
        return small + large

    def put(self, task: task_pb2.Task, payload: Payload, compute_s: float) -> None:
        """Store a reply; it is on disk when this returns, as far as a killed process is concerned."""
        try:
            if payload.body_size <= INLINE_BYTES:
                self._append(task, payload, compute_s)
            else:
                self._write_file(task, payload, compute_s)
        except OSError as err:
            if not self._failing:
                log.warning(
                    "replies cannot be stored; if this daemon is killed, they are computed again", error=str(err)
                )
            self._failing = True
        else:
            self._failing = False

    def is_file(self, task_id: str) -> bool:
        """Whether a reply is a file of its own, whose removal may take a while."""
        return task_id in self._files

    def forget(self, task_id: str) -> None:
        """A reply was acknowledged, or is not wanted any more; where the disk keeps it, a later life reads it."""
        with self._lock:
            self._waiting.pop(task_id, None)
            self._trim(IDLE_JOURNAL_BYTES)
            held = self._files.pop(task_id, None)
        if held is not None:
            with contextlib.suppress(OSError):  # a read-only file system
                self._path(task_id).unlink(missing_ok=True)

    def drop_job(self, job_id: str) -> None:
        """A job is over."""
        with self._lock:
            for task_id in [t for t, job in self._waiting.items() if job == job_id]:
                del self._waiting[task_id]
            self._trim(0)
            files = [t for t, (job, _) in self._files.items() if job == job_id]
        for task_id in files:
            self.forget(task_id)

    def close(self) -> None:
        """Close the journal; the store takes no more replies."""
        with self._lock:
            self._journal.close()

    def _trim(self, above: int) -> None:
        if not self._waiting and self._journal.num_bytes > above and not self._journal.closed:
            with contextlib.suppress(OSError):  # likewise
                self._journal.truncate()

    def _path(self, task_id: str) -> Path:
        # A task id comes from a peer, so it never becomes a path: its digest does.
        return self._folder / f"{hashlib.sha256(task_id.encode()).hexdigest()[:32]}.reply"

    def _append(self, task: task_pb2.Task, payload: Payload, compute_s: float) -> None:
        record = _record(task.job_id, _answer(task, payload_to_proto(payload, 0), compute_s))
        with self._lock:
            if self._journal.num_bytes + len(record) > MAX_JOURNAL_BYTES:
                return
            self._journal.add(record)
            self._waiting[task.task_id] = task.job_id

    def _write_file(self, task: task_pb2.Task, payload: Payload, compute_s: float) -> None:
        size, job_id, task_id = payload.body_size, task.job_id, task.task_id
        with self._lock:
            if sum(held for _, held in self._files.values()) + size > MAX_STORED_BYTES:
                return
            self._files[task_id] = (job_id, size)
        path = self._path(task_id)
        meta = _answer(task, task_pb2.Payload(header=payload.header, body_size=size), compute_s)
        record = _record(f"{self._boot}\0{job_id}", meta)
        try:
            with Part(path, buffering=0) as part:
                part.file.write(record + bytes(aligned(len(record)) - len(record)))
                total = 0
                for segment in payload.segments():
                    total += _sum(segment)
                    view = segment
                    while view:
                        view = view[part.file.write(view) :]
                part.file.write(_TRAILER.pack(total % 2**64))
                part.keep(durable=False)  # computed again; the boot in it tells that it may be damaged
        except OSError:
            with self._lock:
                self._files.pop(task_id, None)
            raise
        if task_id not in self._files:  # its job ended meanwhile
            path.unlink(missing_ok=True)

    def _read_file(self, path: Path) -> Restored | None:
        try:
            with path.open("rb") as file:
                found = _FRAMING.unpack(file.read(MAX_JOURNAL_BYTES))
            if found is not None:
                (about, content), end = found
                boot, _, job_id = about.decode().partition("\0")
                reply, start = task_pb2.TaskReply.FromString(content), aligned(end)
                size = reply.payload.body_size
                if (
                    boot == self._boot
                    and path == self._path(reply.task_id)
                    and path.stat().st_size == start + size + _TRAILER.size
                    and size > 0
                    and _is_whole(body := np.memmap(path, np.uint8, "r", start, (size,)), path, start + size)
                ):
                    return _restored(job_id, reply, body)
        except (OSError, ValueError, DecodeError) as err:
            log.warning("a stored reply cannot be read; it is computed again", error=str(err))
        path.unlink(missing_ok=True)
        return None


def _answer(task: task_pb2.Task, payload: task_pb2.Payload, compute_s: float) -> task_pb2.TaskReply:
    return task_pb2.TaskReply(
        task_id=task.task_id, payload=payload, compute_s=compute_s, request_sha256=task.request_sha256
    )


def _restored(job_id: str, reply: task_pb2.TaskReply, body: Bytes) -> Restored:
    payload = Payload(reply.payload.header, (body,))
    return Restored(job_id, reply.task_id, payload, reply.compute_s, reply.request_sha256)


def _sum(data: memoryview) -> int:
    """Sum of 64-bit words: five times as fast as a CRC, and enough to tell a body that a disk damaged."""
    whole = len(data) // 8 * 8
    words = np.frombuffer(data[:whole], dtype="<u8").sum(dtype=np.uint64)
    return int(words) + int.from_bytes(data[whole:], "little")


def _is_whole(body: Bytes, path: Path, end: int) -> bool:
    with path.open("rb") as file:
        file.seek(end)
        return file.read() == _TRAILER.pack(_sum(body.data) % 2**64)


def _record(job_id: str, reply: task_pb2.TaskReply) -> bytes:
    return _FRAMING.pack(job_id.encode(), reply.SerializeToString())


def _small(record: list[bytes]) -> Restored | None:
    """A reply of the journal; None where another release wrote it otherwise."""
    job_id, content = record
    try:
        reply = task_pb2.TaskReply.FromString(content)
        if len(reply.payload.inline_body) != reply.payload.body_size:
            return None
        body = np.frombuffer(reply.payload.inline_body, dtype=np.uint8)
        return _restored(job_id.decode(), reply, body)
    except (DecodeError, UnicodeDecodeError):
        return None
