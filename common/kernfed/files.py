"""Files that are there whole or not at all, and the wait for a disk that is full.

A file is written beside its place under a name that `is_part` knows, and moved there once it is whole: `replace` does
it for bytes, `Part` for what is written piece by piece. A crash leaves the file of before. `durable=True` also waits
for the disk, so that the new file outlasts a loss of power; docs/architecture.md tells which files do, and why the
others need not.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import shutil
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, Self, TypeVar

from kernfed.errors import DiskFullError

T = TypeVar("T")

NEW: Final = ".new"
"""Ends the name of a folder that is being made; it stands behind the name that the folder will have."""
LEFT_AFTER_S: Final = 3600.0
"""A part that is older is not being written any more."""
FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 5.0

_PART: Final = ".part"
_PARTS: Final = (_PART, ".tmp")
"""The second is of earlier releases."""
_CANNOT_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP})
"""Said by file systems that sync no folders."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_FULL_TEXTS: Final = (
    "database or disk is full",  # SQLite
    "No space left on device",  # PostgreSQL, safetensors, and whatever a subprocess says
    "Disk quota exceeded",
)


class Part:
    """A file beside its place, which it takes by `keep`; where its block ends before that, it is removed."""

    def __init__(self, target: Path, *, mode: int | None = None, buffering: int = -1) -> None:
        """Begin a file.

        Args:
            target: Its place; what is there stays until `keep`.
            mode: Its permissions; unset: as the umask has them.
            buffering: As of `open`.
        """
        self.target = target
        self._path = target.with_name(f".{target.name}.{os.urandom(4).hex()}{_PART}")
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode)
        except OSError as err:
            err.filename = str(target)  # which is what somebody looks for, and the same at the next attempt
            raise
        self.file: BinaryIO = os.fdopen(handle, "wb", buffering)
        self.digest = hashlib.sha256()
        """SHA-256 of what `add` wrote."""
        if mode is not None:
            os.fchmod(handle, mode)  # what the umask took away

    def add(self, piece: bytes | memoryview) -> None:
        """Write a piece, and count it for the digest. Blocks."""
        self.digest.update(piece)
        self.file.write(piece)

    def keep(self, *, durable: bool) -> None:
        """Move the file to `target`, which may have been changed meanwhile.

        Args:
            durable: Whether to wait until file and name are on the disk.

        Raises:
            OSError: The disk is full, or gone; what was at `target` is still there.
        """
        self.file.flush()
        if durable:
            os.fsync(self.file.fileno())
        self.file.close()
        os.replace(self._path, self.target)
        if durable:
            sync_folder(self.target.parent)

    def close(self) -> None:
        """Remove the file, unless it was kept."""
        with contextlib.suppress(OSError):  # what is buffered and finds no space goes anyway
            self.file.close()
        with contextlib.suppress(OSError):  # it has its name by now, or its folder is gone
            self._path.unlink()

    def __enter__(self) -> Self:
        """Begin the block at whose end it is closed."""
        return self

    def __exit__(self, _kind: object, err: BaseException | None, _trace: object) -> None:
        """See `close`; a full disk is told with the file that it did not take."""
        if isinstance(err, OSError) and err.errno in _FULL and err.filename is None:
            err.filename = str(self.target)
        self.close()


def replace(path: Path, data: bytes, *, durable: bool, mode: int | None = None) -> None:
    """Write a file in place of the one there: whole, or not at all.

    Args:
        path: The file; its folder exists.
        data: Its content.
        durable: Whether it must outlast a loss of power.
        mode: Its permissions; unset: as the umask has them.

    Raises:
        OSError: The disk is full, or gone; the file of before is still there.
    """
    with Part(path, mode=mode) as part:
        part.file.write(data)
        part.keep(durable=durable)


@contextlib.contextmanager
def output(path: Path) -> Iterator[BinaryIO]:
    """A file that a person named for a result: whole or not at all, behind a link too.

    What is there and is no file, such as a pipe or `/dev/null`, is written to and stays; moving a file to its place
    would remove it from the machine.

    Args:
        path: Its place.

    Raises:
        OSError: It cannot be written.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        with path.open("wb") as file:
            yield file
        return
    with Part(Path(os.path.realpath(path))) as part:
        yield part.file
        part.keep(durable=False)  # the same command makes it again


def is_part(path: Path) -> bool:
    """Whether a name is that of a file on its way, of this release or an earlier one."""
    return path.name.endswith(_PARTS)


def remove_parts(folder: Path, *, older_than_s: float = LEFT_AFTER_S) -> None:
    """Remove the parts that crashes left in a folder and below."""
    now = time.time()
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # somebody finished it, or it is not ours
            if is_part(path) and path.is_file() and now - path.stat().st_mtime >= older_than_s:
                path.unlink()


def move_folder(made: Path, folder: Path, *, over: bool) -> None:
    """Give a folder its final name, once all that is in it is on the disk.

    Args:
        made: The folder.
        folder: Its name from now on.
        over: Whether an older one there goes; else none is there, or an empty one.

    Raises:
        OSError: The disk is full, or gone, or a folder is in the way.
    """
    for path in [*(p for p in made.rglob("*") if not p.is_symlink()), made]:
        sync_folder(path) if path.is_dir() else _sync(path)
    if over and folder.exists():
        shutil.rmtree(folder)
    made.rename(folder)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder outlast a loss of power, where the file system can."""
    try:
        _sync(folder)
    except OSError as err:
        if err.errno not in _CANNOT_SYNC:
            raise


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def no_space() -> OSError:
    """The error of a write that ended short: the disk is full."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def is_full(err: BaseException) -> bool:
    """Whether an error says that a disk, here or at the database, has no space left."""
    if isinstance(err, OSError) and err.errno in _FULL:
        return True
    return isinstance(err, DiskFullError) or says_full(str(err))


def takes_nothing(err: BaseException) -> str | None:
    """What to do about a disk that takes nothing, be it full or read-only, in words; None: the error is another one."""
    if is_full(err):
        return "make space"
    return "mount it for writing" if isinstance(err, OSError) and err.errno == errno.EROFS else None


def of_sqlite(err: sqlite3.Error, name: str) -> OSError:
    """What SQLite says of a disk, as an error of the disk; `name` is of the file."""
    known = {sqlite3.SQLITE_FULL: errno.ENOSPC, sqlite3.SQLITE_READONLY: errno.EROFS}
    return OSError(known.get(err.sqlite_errorcode & 0xFF, errno.EIO), str(err), name)


def says_full(text: str) -> bool:
    """Whether a text, such as the last words of a subprocess, says that a disk has no space left."""
    return any(full in text for full in _FULL_TEXTS)


@dataclass(slots=True)
class DiskWait:
    """One wait for the disk: how long, what is said, and what happens in the end. Pauses grow up to a limit.

    Attributes:
        limit_s: How long to wait.
        cause: Words for a fault that may pass, such as a full disk; None: it is not waited for. It may raise.
        tell: Called with these words and the fault whenever the words change, and without them when the wait is over.
        give_up: What to raise after `limit_s`: (the words, the fault, seconds waited) -> error.
    """

    limit_s: float
    cause: Callable[[Exception], str | None]
    tell: Callable[[str, Exception | None], None]
    give_up: Callable[[str, Exception, float], Exception]
    _began: float = field(default_factory=time.monotonic)
    _pause_s: float = FIRST_PAUSE_S
    _said: str = ""

    def pause_s(self, err: Exception) -> float | None:
        """How long to pause after a fault; None: it does not pass."""
        cause = self.cause(err)
        if cause is None:
            return None
        waited = time.monotonic() - self._began
        if waited + self._pause_s > self.limit_s:
            raise self.give_up(cause, err, waited) from err
        if cause != self._said:
            self._said = cause
            self.tell(cause, err)
        pause, self._pause_s = self._pause_s, min(self._pause_s * 1.5, LONGEST_PAUSE_S)
        return pause

    def over(self) -> None:
        """It went."""
        if self._said:
            self.tell("", None)


def until_kept(attempt: Callable[[], T], wait: DiskWait) -> T:
    """Do what writes to the disk, and may be repeated; while the disk does not take it, wait and do it again."""
    while True:
        try:
            result = attempt()
        except Exception as err:
            pause = wait.pause_s(err)
            if pause is None:
                raise
        else:
            wait.over()
            return result
        time.sleep(pause)


async def until_kept_async(attempt: Callable[[], Awaitable[T]], wait: DiskWait) -> T:
    """As `until_kept`, on the event loop."""
    while True:
        try:
            result = await attempt()
        except Exception as err:
            pause = wait.pause_s(err)
            if pause is None:
                raise
        else:
            wait.over()
            return result
        await asyncio.sleep(pause)
