"""The chain of the audit log: each line holds the digest of the one before, also across files.

The log is `audit.jsonl` in the state folder. When it grows large, or a month ends, it is renamed to
`audit-NUMBER.jsonl`, NUMBER being that of its first line, and goes on in a new file. The first line of a file, and a
line before which others are gone, tells its own `line` number, so that lines that are missing can be counted.

A second file beside it, `audit.end`, holds how many lines were written and the digest of the last one. A log that was
emptied, cut or removed does not fit it. Both survive a crash of the process. A loss of power can take lines of the last
seconds; `audit.end` therefore also holds the last line that was known to be on the disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import structlog

from kernfed.errors import DataError, UnavailableError
from kernfed.journal import append, boot_id

log = structlog.get_logger(__name__)

END_FILE: Final = "audit.end"
START: Final = "0" * 64
"""What the first line of a log names as the line before."""
DEFAULT_FILE_BYTES: Final = 64 << 20

_TAIL: Final = 1 << 16
_END_BYTES: Final = 512
_SYNC_EVERY_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class End:
    """Where a log ended when `audit.end` was written."""

    lines: int = 0
    """Lines in all files."""
    sha256: str = START
    """Digest of the last of them."""
    boot: str = ""
    """The run of the machine in which it was written."""
    safe_lines: int = 0
    """Lines that a loss of power cannot have taken."""
    safe_sha256: str = START

    @classmethod
    def read(cls, log_path: Path) -> End | None:
        """The end of a log; None where there is none yet, or it was torn by a loss of power."""
        try:
            found = json.loads(log_path.with_name(END_FILE).read_text())
            return cls(**found) if isinstance(found["lines"], int) and isinstance(found["sha256"], str) else None
        except (OSError, ValueError, TypeError, KeyError):
            return None


class Chain:
    """Adds lines. Safe for use by several threads of one process."""

    def __init__(
        self,
        path: Path,
        *,
        file_bytes: int = DEFAULT_FILE_BYTES,
        monthly: bool = True,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Open or begin a log, readable by its owner alone.

        Args:
            path: Its current file.
            file_bytes: A file of this size gets no more lines.
            monthly: Whether a file holds lines of one month (UTC) alone.
            now: Clock.

        Raises:
            OSError: The file cannot be opened for appending.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._file_bytes, self._monthly, self._now = path, file_bytes, monthly, now
        self._lock = threading.Lock()
        self._end_handle = os.open(path.with_name(END_FILE), os.O_RDWR | os.O_CREAT, 0o600)
        self._synced_at = time.monotonic()
        self._boot = boot_id()
        last = self._open()
        self._end = _found_end(path)
        self._gap = last != self._end.sha256
        """Whether the next line does not follow from the last one of its file."""
        if self._gap and self._begun:
            log.error("the audit log lacks lines that were written: it was cut or replaced", file=str(path))

    def _open(self) -> str:
        """Open the current file; returns the digest of its last line."""
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        last = last_line(self._file)
        if last and not last.endswith(b"\n"):  # the machine stopped in mid-write
            os.write(self._file, b"\n")
        self._torn = bool(last) and read_line(last) is None
        self._whole = _last_whole(self._path) if self._torn else ""
        self._begun = bool(last)
        self._size = os.fstat(self._file).st_size
        self._first = _number_of(self._path)
        self._month = str(_first_of(self._path).get("when", ""))[:7]
        return _digest_of(last)

    def add(self, line: dict[str, Any]) -> None:
        """Append a line; `previous` is added to it, and `line`, `after_torn_line`, `last_whole_line` where needed.

        Raises:
            OSError: The line could not be written; the log is as before.
            UnavailableError: The log is closed.
        """
        with self._lock:
            if self._file < 0:
                raise UnavailableError("this client stops; what it was asked is computed by its next life")
            self._look()
            month = self._now().strftime("%Y-%m")
            if self._begun and (self._size >= self._file_bytes or (self._monthly and "" < self._month < month)):
                self._rotate()
            if self._torn:
                line["after_torn_line"] = True
            if self._torn and self._whole:
                line["last_whole_line"] = self._whole
            if self._gap:
                line["line"] = self._end.lines + 1
            line["previous"] = self._end.sha256
            text = json.dumps(line, separators=(",", ":")).encode()
            append(self._file, text + b"\n")  # half a line would break the chain
            if not self._begun:
                self._begun, self._first, self._month = True, self._end.lines + 1, month
            self._size += len(text) + 1
            self._torn = self._gap = False
            self._end = replace(self._end, lines=self._end.lines + 1, sha256=digest(text), boot=self._boot)
            if time.monotonic() - self._synced_at > _SYNC_EVERY_S:
                self._sync()
            self._write_end()

    def _look(self) -> None:
        """Go on in a new file where another program renamed, removed or emptied this one."""
        mine = os.fstat(self._file)
        try:
            there = self._path.stat()
        except FileNotFoundError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
            log.info("the audit log was renamed or removed; it goes on in a new file", file=str(self._path))
            self._go_on()
        elif mine.st_size < self._size:
            log.error(
                "the audit log was cut in place, as logrotate's copytruncate does, which can lose lines: leave its "
                "rotation to the daemon (audit_file_bytes, audit_monthly), or rename the file",
                file=str(self._path),
            )
            self._size, self._begun, self._gap = mine.st_size, mine.st_size > 0, True

    def _rotate(self) -> None:
        self._sync()
        name = f"{self._path.stem}-{self._first:09d}"
        there = len(list(self._path.parent.glob(f"{name}*")))  # of a log whose end was removed
        self._path.rename(self._path.with_name(f"{name}{f'.{there}' * bool(there)}{self._path.suffix}"))
        self._go_on()

    def _go_on(self) -> None:
        before, torn, whole = self._file, self._torn, self._whole
        self._open()  # where it fails, the next line tries again
        os.close(before)
        self._torn, self._whole = self._torn or torn, self._whole or whole
        self._gap = True

    def _sync(self) -> None:
        os.fdatasync(self._file)
        self._end = replace(self._end, safe_lines=self._end.lines, safe_sha256=self._end.sha256)
        self._synced_at = time.monotonic()

    def _write_end(self) -> None:
        try:
            os.pwrite(self._end_handle, json.dumps(asdict(self._end)).ljust(_END_BYTES).encode(), 0)
        except OSError as err:  # the line is written; an end that is behind it does no harm
            log.warning("the end of the audit log could not be noted", error=str(err))

    def close(self) -> None:
        """Close the files; the log takes no more lines, and a step that ends later cannot send its reply."""
        with self._lock:
            if self._file >= 0:
                self._sync()
                self._write_end()
                os.close(self._file)
                os.close(self._end_handle)
            self._file = -1  # not the number of a file that is opened after this one


def find_files(path: Path, archives: Sequence[Path] = ()) -> list[Path]:
    """The files of a log that are there, in the order of their lines.

    They are the current one, and backwards each that ends with the line which the next one names; where that one is
    gone or cut, the last that begins before it.

    Args:
        path: The current file.
        archives: Other folders with files of the log.
    """
    folders = (path.parent, *archives)
    others = [p for folder in folders for p in sorted(folder.glob(f"{path.stem}*{path.suffix}*")) if p != path]
    ends = {file: _end_of(file) for file in others if file.is_file() and file.stat().st_size}
    end = End.read(path) or End()
    files = [path] if path.is_file() and path.stat().st_size else []
    number, named = (_number_of(path), {_named_by(path)}) if files else (end.lines + 1, {end.sha256, end.safe_sha256})
    while named != {START}:
        before = [file for file in ends if _number_of(file) < number]
        if not before:
            break
        file = max(before, key=lambda file: (ends[file] in named, _number_of(file)))
        files.insert(0, file)
        number, named = _number_of(file), {_named_by(file)}
    return files


def num_missing(path: Path, files: Sequence[Path]) -> int:
    """Lines of a log that were written, as `audit.end` and the lines themselves say, and are not in its files."""
    end = End.read(path) or End()
    written = max([end.lines, *(_last_number(file) for file in files[-1:])])
    return max(written - sum(_count(file) for file in files), 0)


def verify(path: Path, archives: Sequence[Path] = ()) -> int:
    """Check the chain of a log, over all its files, and that it goes as far as it was written.

    Args:
        path: Its current file.
        archives: Other folders with files of the log.

    Returns:
        The number of lines.

    Raises:
        DataError: Names the first line that does not follow from the one before, or the lines that are missing.
    """
    end = End.read(path)
    count, torn, previous, whole = 0, False, START, START
    reached = end is None or _owed(end)[0] == 0
    for file in find_files(path, archives):
        with file.open("rb") as lines:
            for at, raw in enumerate(lines, start=1):
                count += 1
                text = raw.rstrip(b"\n")
                line = read_line(text)
                if line is not None:
                    number = line.get("line", count)
                    if isinstance(number, int) and number > count:
                        raise DataError(_missing(count, number - 1, f"before line {at} of {file}"))
                    if line.get("previous") != previous or bool(line.get("after_torn_line")) != torn:
                        raise DataError(f"{file}: line {at} does not follow from the one before; the log was changed")
                    if line.get("last_whole_line", whole) != whole:
                        raise DataError(f"{file}: a line before the torn one above line {at} was changed")
                torn = line is None  # several may follow one another: each life of a machine can stop in mid-write
                previous = digest(text)
                whole = previous if line is not None else whole
                reached = reached or (end is not None and previous == _owed(end)[1])
    if not reached and end is not None:
        raise DataError(_missing(min(count + 1, end.lines), _owed(end)[0], f"at the end of {path}"))
    return count


def _missing(first: int, last: int, where: str) -> str:
    return (
        f"lines {first} to {last} of the log are missing {where}: they were cut off, or lie in a file that was moved "
        "away or removed; where such files are kept in another folder, name it with --archive"
    )


def _owed(end: End) -> tuple[int, str]:
    """Lines that must be there, and the digest of the last: after a loss of power those that were safe."""
    return (end.lines, end.sha256) if end.boot == boot_id() else (end.safe_lines, end.safe_sha256)


def _found_end(path: Path) -> End:
    """Where a log ends, at its opening: at its last line, unless lines are gone that must be there."""
    said = End.read(path)
    files = find_files(path)
    last = _end_of(files[-1]) if files else START
    if said is None or said.sha256 != last:
        owed, sha256 = (0, START) if said is None else _owed(said)
        if said is not None and owed and not any(sha256 in _digests(file) for file in reversed(files)):
            return said
        # A killed process may have written lines behind what it noted.
        said = End(_last_number(files[-1]) if files else 0, last)
    return End(said.lines, last, boot_id(), said.lines, last)


def last_line(handle: int) -> bytes:
    """The last line of an open file, with its end where it has one."""
    size = os.fstat(handle).st_size
    tail = os.pread(handle, _TAIL, max(size - _TAIL, 0))
    return tail[tail.rstrip(b"\n").rfind(b"\n") + 1 :]


def _end_of(path: Path) -> str:
    with path.open("rb") as file:
        return _digest_of(last_line(file.fileno()))


def _digest_of(last: bytes) -> str:
    return digest(last.rstrip(b"\n")) if last else START


def _last_whole(path: Path) -> str:
    """The digest of a file's last line that can be read; empty where there is none."""
    with path.open("rb") as file:
        texts = (raw.rstrip(b"\n") for raw in file)
        return next((digest(text) for text in reversed([*texts]) if read_line(text) is not None), "")


def _first_of(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return read_line(file.readline(_TAIL)) or {}


def _named_by(path: Path) -> str:
    return str(_first_of(path).get("previous", START))


def _number_of(path: Path) -> int:
    number = _first_of(path).get("line", 1)
    return number if isinstance(number, int) and number > 0 else 1


def _count(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def _last_number(path: Path) -> int:
    """The number of a file's last line."""
    number = _number_of(path) - 1
    with path.open("rb") as file:
        for raw in file:
            number += 1
            if b'"line":' in raw:
                said = (read_line(raw) or {}).get("line")
                number = said if isinstance(said, int) else number
    return number


def _digests(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        for raw in file:
            yield digest(raw.rstrip(b"\n"))


def digest(*parts: bytes | memoryview) -> str:
    """SHA-256 of parts, one behind the other."""
    made = hashlib.sha256()
    for part in parts:
        made.update(part)
    return made.hexdigest()


def read_line(text: bytes) -> dict[str, Any] | None:
    """The facts of a line; None where it is not whole."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None
