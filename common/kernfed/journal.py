"""Files that only grow: lines and records that are added whole or not at all, and read back up to the first damage."""

from __future__ import annotations

import functools
import os
import struct
import weakref
import zlib
from collections.abc import Iterable
from pathlib import Path

import structlog

from kernfed.files import no_space

log = structlog.get_logger(__name__)


def append(handle: int, data: bytes) -> None:
    """Write at the end of a file that is open for appending: whole, or not at all.

    Raises:
        OSError: The disk is full, or gone; the file is as before.
    """
    size = os.fstat(handle).st_size
    if os.write(handle, data) < len(data):  # what is half there must not precede others
        os.ftruncate(handle, size)
        raise no_space()


def boot_id() -> str:
    """Names this run of the machine; empty where the system does not say, so that runs are not told apart."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class Framing:
    """How records lie in a file: a mark, the length of each part, the CRC-32 of all parts, the parts."""

    def __init__(self, mark: bytes, lengths: str) -> None:
        """Choose a mark, and for each part of a record the `struct` letter of its length."""
        self._mark = mark
        self._head = struct.Struct(f"<{len(mark)}s{lengths}I")

    def pack(self, *parts: bytes) -> bytes:
        """A record."""
        return b"".join([self._head.pack(self._mark, *map(len, parts), checksum(parts)), *parts])

    def unpack(self, data: bytes, at: int = 0) -> tuple[list[bytes], int] | None:
        """Parts of the record at a position, and where it ends; None where there is no whole one."""
        end = self.end(data, at)
        if end is None or end > len(data):
            return None
        _, *lengths, expected = self._head.unpack_from(data, at)
        parts = []
        at += self._head.size
        for length in lengths:
            parts.append(data[at : at + length])
            at += length
        return (parts, end) if checksum(parts) == expected else None

    def end(self, data: bytes, at: int) -> int | None:
        """Where the record at a position says that it ends; None where none begins."""
        if len(data) - at < self._head.size:
            return len(data) + 1 if data[at:].startswith(self._mark[: len(data) - at]) else None
        mark, *lengths, _ = self._head.unpack_from(data, at)
        return at + self._head.size + sum(lengths) if mark == self._mark else None


class Journal:
    """A file that grows by records, for its owner alone; closed at the latest when nobody holds it any more.

    A record outlasts the process that wrote it. It is not synced: after a loss of power the last ones may be missing or
    damaged, and do not count.
    """

    def __init__(self, path: Path, framing: Framing) -> None:
        """Open or begin it. What is there must be read before records are added."""
        self._path, self._framing = path, framing
        self._handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        self._closing = weakref.finalize(self, os.close, self._handle)
        self.num_bytes = os.fstat(self._handle).st_size

    def read(self) -> list[list[bytes]]:
        """The parts of each record, in order; the first that is not whole is cut off, with all behind it."""
        data = self._path.read_bytes()
        records, at = [], 0
        while (found := self._framing.unpack(data, at)) is not None:
            parts, at = found
            records.append(parts)
        if at < len(data):
            end = self._framing.end(data, at)
            if end is not None and end >= len(data):
                log.warning(
                    "the last record of a journal was not written whole and does not count", file=str(self._path)
                )
            else:
                log.error(
                    "a journal is damaged; what is behind the damage does not count",
                    file=str(self._path),
                    first_byte=at,
                    num_bytes=len(data) - at,
                )
            self.truncate(at)
        return records

    def add(self, record: bytes) -> None:
        """Add a record, packed by the journal's framing.

        Raises:
            OSError: The disk is full, or gone; the journal is as before.
        """
        append(self._handle, record)
        self.num_bytes += len(record)

    def truncate(self, num_bytes: int = 0) -> None:
        """Drop what is behind so many bytes."""
        os.ftruncate(self._handle, num_bytes)
        self.num_bytes = num_bytes

    @property
    def closed(self) -> bool:
        """Whether it takes no more records."""
        return self._handle < 0

    def close(self) -> None:
        """Close the file; the journal takes no more records."""
        self._closing()
        self._handle = -1  # not the number of a file that is opened after this one


def checksum(parts: Iterable[bytes]) -> int:
    """CRC-32 of parts that follow each other."""
    return functools.reduce(lambda found, part: zlib.crc32(part, found), parts, 0)
