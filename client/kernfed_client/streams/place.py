"""Places in the files of a folder that grows: how far a file was read, and which file it is, whatever its name is now.

A file is known again by its inode, and by a digest of its first bytes and of those before the place. So a file that was
renamed is found under its new name, and one that was copied and cut off is found in its copy.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from kernfed_client.streams.streams import Position

_MARKED = 1024
"""Bytes of the beginning, and before the place, that a digest covers."""
_ROTATED = re.compile(r"[.\-_][0-9][0-9T:_.\-]*")
"""What rotation adds to a name: a number or a date."""
Inode = tuple[int, int]
"""Device, and number on it."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A file that was read to its end under another name than its own."""

    inode: Inode
    size: int
    mark: str

    def is_in(self, path: Path) -> bool:
        """Whether a file is this one."""
        return inode_of(path) == self.inode and _begins_with(path, self.size, self.mark)


@dataclass(frozen=True, slots=True)
class Place:
    """How far a folder was read."""

    file: str = ""
    """Name that the file had when it was begun; empty: no file yet."""
    offset: int = 0
    """Bytes of a text file, rows of a Parquet file."""
    line: int = 0
    """Lines before the offset; -1: not known, for an earlier release kept the place."""
    header: int = 0
    """Offset of the line that names the columns."""
    inode: Inode | None = None
    """None: not known, as `line`."""
    size: int = 0
    """Bytes behind which `mark` was made."""
    mark: str = ""
    """See `mark_of`."""
    finished: tuple[Finished, ...] = ()
    """The last files that were renamed."""

    @staticmethod
    def of(position: Position) -> Place:
        """Read from a position; one of an earlier release has file and offset alone."""
        inode: Any = position.get("inode")
        return Place(
            str(position.get("file", "")),
            int(position.get("offset", 0)),
            int(position.get("line", -1 if position.get("offset") else 0)),
            int(position.get("header", 0)),
            None if inode is None else (int(inode[0]), int(inode[1])),
            int(position.get("size", 0)),
            str(position.get("mark", "")),
            tuple(Finished((int(f[0]), int(f[1])), int(f[2]), str(f[3])) for f in position.get("finished", ())),
        )

    def position(self) -> Mapping[str, Any]:
        """As JSON values."""
        if not self.file:
            return {}
        found: dict[str, Any] = {"file": self.file, "offset": self.offset, "line": self.line, "header": self.header}
        if self.inode is not None:
            found |= {"inode": list(self.inode), "size": self.size, "mark": self.mark}
        if self.finished:
            found["finished"] = [[*f.inode, f.size, f.mark] for f in self.finished]
        return found

    def is_in(self, path: Path, *, same_inode: bool) -> bool:
        """Whether a file is the one of this place, and holds all that was read.

        Args:
            path: The file.
            same_inode: Whether its inode must be the same; else its bytes decide, if any row was read.
        """
        if inode_of(path) != self.inode if same_inode else self.line <= 1:
            return False
        return _begins_with(path, self.size, self.mark)


def open_file(path: Path) -> BinaryIO:
    """A file of a stream, open to read; never waits, as for whoever would write to a pipe.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def mark_of(path: Path, size: int) -> str:
    """Digest of the first bytes of a file and of those before `size`.

    Raises:
        OSError: It cannot be read.
    """
    with open_file(path) as file:
        return mark_in(file, size)


def mark_in(file: BinaryIO, size: int) -> str:
    """As `mark_of`, of a file that is open; it is read on from where it was."""
    part = min(size, _MARKED)
    head, before = os.pread(file.fileno(), part, 0), os.pread(file.fileno(), part, size - part)
    return hashlib.sha256(head + before).hexdigest()[:32]


def _begins_with(path: Path, size: int, mark: str) -> bool:
    try:
        return path.is_file() and path.stat().st_size >= size and (not size or mark_of(path, size) == mark)
    except OSError:
        return False


def inode_of(path: Path) -> Inode | None:
    """None: there is no such file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def moved(folder: Path, place: Place) -> Path | None:
    """The file of a place under the name that it has now: renamed, or else copied before it was cut off."""
    others = [path for path in _files(folder) if path.name != place.file]
    for path in others:
        if place.is_in(path, same_inode=True):
            return path
    done = {f.inode for f in place.finished}
    copies = [p for p in others if inode_of(p) not in done and place.is_in(p, same_inode=False)]
    return max(copies, key=_age, default=None)


def rotated_after(folder: Path, place: Place, finished: Path) -> Path | None:
    """The oldest file that had the place's name after the one that is finished, and was renamed since; None: none."""
    since = _age(finished)
    done = {f.inode for f in place.finished}
    stem, suffix = Path(place.file).stem, Path(place.file).suffix
    found = []
    for path in _files(folder):
        name = path.name
        added = name.removeprefix(place.file)
        if added == name:
            added = name.removeprefix(stem).removesuffix(suffix) if name.startswith(stem) else ""
        if _ROTATED.fullmatch(added) and path != finished and _age(path) > since and inode_of(path) not in done:
            found.append(path)
    return min(found, key=_age, default=None)


def _files(folder: Path) -> Iterator[Path]:
    try:
        yield from sorted(p for p in folder.iterdir() if not p.name.startswith("."))
    except OSError:
        return


def _age(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
