"""Marks of a stream's rows: the same row has the same mark, whatever job reads it, and whatever the file's name is.

A mark is a digest of the line as it stands in its file, all columns included, and of the line before. So a copy of a
file, a link to it and a rotated file have the marks of the file, and a row that is put between others changes one mark
beside its own. Where a line stood among the last ones already, as in tables of few values, more lines before it count.
"""

from __future__ import annotations

import hashlib
from collections import deque

from kernfed.arrays import Integers
from kernfed.jobs.client_file import PartitionFile, format_by_suffix

RECENT = 64
"""Lines that are looked at for one that comes again."""
_BEFORE = 32
"""Lines before it that then count."""


class RowMarks:
    """Marks the lines of one file, one after another from its first."""

    def __init__(self) -> None:
        self._recent: deque[bytes] = deque(maxlen=RECENT)

    def copy(self) -> RowMarks:
        """What goes on from the same line."""
        other = RowMarks()
        other._recent.extend(self._recent)
        return other

    def add(self, line: bytes) -> int:
        """The mark of the next line, 0 to 2^63 - 1."""
        own = _digest(line.strip())
        before = list(self._recent)[-_BEFORE if own in self._recent else -1 :]
        self._recent.append(own)
        return _number(_digest(own, *before))


def marks_of_file(file: PartitionFile, row_numbers: Integers) -> list[int]:
    """Marks of rows of a file that is read whole; of a file without lines they hold for this very content.

    Args:
        file: As the client file has it.
        row_numbers: Of the rows in the file, (n,), as of `PartitionData`.

    Raises:
        OSError: It cannot be read.
    """
    if (file.format or format_by_suffix(file.path)) == "csv":
        marks, of_lines = RowMarks(), [-1]
        with file.path.open("rb") as data:
            of_lines.extend(marks.add(line) if line.strip() else -1 for line in data)  # blank lines are no rows
        if len(of_lines) > row_numbers.max(initial=0):  # lines end as most do
            return [of_lines[number] for number in row_numbers.tolist()]
    with file.path.open("rb") as data:
        content = hashlib.file_digest(data, "sha256").digest()
    return [mark_at(content, number) for number in row_numbers.tolist()]


def mark_at(content: bytes, number: int) -> int:
    """The mark of a row of a file without lines, by what tells the file and the row's number in it."""
    return _number(_digest(content, number.to_bytes(8, "little")))


def _digest(*parts: bytes) -> bytes:
    return hashlib.blake2b(b"".join(parts), digest_size=8).digest()


def _number(digest: bytes) -> int:
    return int.from_bytes(digest, "little") >> 1
