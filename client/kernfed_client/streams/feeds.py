"""Rows that are sent to the daemon, as JSON lines to a local socket or its standard input, written down before use.

Each line is one object: the columns of the job by name, the target where it is known, and the key where targets come
later. Lines go to files of bounded size in the client's state folder, which the job then reads like any folder that
grows; so a row that was taken is not lost when the daemon dies, and not read twice. A socket answers each line with
`{"row": n}` once it is written, or with `{"error": "..."}`; who gets no answer sends the line again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

import structlog

from kernfed.errors import ConfigError
from kernfed.jobs.client_file import ClientFile
from kernfed.journal import append
from kernfed.process_lock import LOCK_FILE, ProcessLock
from kernfed_client.streams.notices import NOTICES

log = structlog.get_logger(__name__)

SEGMENT_BYTES = 16 << 20
KEPT_SEGMENTS = 64
"""Files that are kept, about 1 GiB; a job that is further behind goes on with the oldest."""

MAX_LINE = 1 << 20

RETRY_S = 2.0
"""After so long a line that could not be written down is tried again."""


class Spool:
    """Files to which lines are added; safe for use by several threads."""

    def __init__(self, folder: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Go on behind the last whole line that is there.

        Raises:
            ConfigError: Another process takes rows for this folder.
        """
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        what = f"{folder} is where rows of a stream are taken"
        self._held = ProcessLock(folder / LOCK_FILE, what=what, remedy="is a second daemon running?")
        self.folder = folder
        self.closed = threading.Event()
        """Set when the daemon stops."""
        self._segment_bytes = segment_bytes
        self._lock = threading.Lock()
        try:
            names = sorted(p.name for p in folder.glob("*.jsonl"))
            self._number = int(names[-1].split(".")[0]) if names else 1
            self._file = self._open(self._number)
        except BaseException:
            self._held.release()
            raise
        self.num_rows = 0
        """Lines taken in this life of the daemon."""

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:012d}.jsonl"

    def _open(self, number: int) -> BinaryIO:
        path = self._path(number)
        if path.exists():
            content = path.read_bytes()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):  # the daemon died while it wrote; nobody was told that the line was taken
                with path.open("r+b") as file:
                    file.truncate(whole)
        return path.open("ab", buffering=0)

    def take(self, line: bytes) -> int:
        """Write a line down; returns its number in this life.

        Raises:
            ValueError: It is not one JSON object; the message tells what is wrong.
            OSError: The disk is full, or gone.
        """
        text = line.strip()
        try:
            record = json.loads(text)
        except RecursionError:
            raise ValueError("lists or objects inside of each other, too deep; send numbers and text") from None
        if not isinstance(record, dict):
            raise ValueError("not a JSON object; send one object with the columns by name on each line")
        if b"\n" in text or b"\r" in text:
            raise ValueError("a line break inside of a line")
        with self._lock:
            if self._file.tell() >= self._segment_bytes:
                following = self._open(self._number + 1)  # where it fails, the former one is still open
                self._file.close()
                self._number, self._file = self._number + 1, following
                for old in sorted(self.folder.glob("*.jsonl"))[:-KEPT_SEGMENTS]:
                    old.unlink(missing_ok=True)
            append(self._file.fileno(), text + b"\n")  # where it fails, the sender is told, and sends it again
            self.num_rows += 1
            return self.num_rows

    def close(self) -> None:
        """Close the file."""
        self.closed.set()
        NOTICES.wait(self.folder, "")
        with self._lock:
            self._file.close()
            self._held.release()


def spool_folder(state: Path, dataset: str) -> Path:
    """Folder to which rows that come by socket or standard input are written before they are used."""
    return state / "streams" / dataset


def live_folders(file: ClientFile) -> tuple[tuple[str, Path], ...]:
    """Data sets whose streams go on, each with the folder that is read."""
    streams = ((name, d.stream) for name, d in sorted(file.datasets.items()) if d.stream is not None)
    return tuple(
        (name, stream.path if stream.source == "follow" else spool_folder(file.state, name))
        for name, stream in streams
        if stream.source != "file"
    )


@asynccontextmanager
async def open_feeds(file: ClientFile) -> AsyncIterator[None]:
    """Take rows for the data sets whose streams come by socket or standard input, for as long as the block lasts.

    Raises:
        ConfigError: Two data sets want the standard input, or a socket cannot be made.
    """
    listeners: list[_Listener] = []
    spools: list[Spool] = []
    streams = {name: d.stream for name, d in sorted(file.datasets.items()) if d.stream is not None}
    inputs = [name for name, stream in streams.items() if stream.source == "stdin"]
    if len(inputs) > 1:
        raise ConfigError(f"data sets {', '.join(inputs)} want their rows from standard input; let one have it")
    try:
        for name, stream in streams.items():
            if stream.source not in ("socket", "stdin"):
                continue
            spool = Spool(spool_folder(file.state, name))
            spools.append(spool)
            if stream.source == "stdin":
                source = sys.stdin.buffer
                threading.Thread(
                    target=read_lines, args=(source, spool, name), name="kernfed-stdin", daemon=True
                ).start()
            else:
                listener = _Listener(stream.path, spool, name)
                await listener.open()
                listeners.append(listener)
        yield
    finally:
        for listener in listeners:
            await listener.close()
        for spool in spools:
            spool.close()


def read_lines(source: BinaryIO, spool: Spool, dataset: str, retry_s: float = RETRY_S) -> None:
    """Take the lines of a file until it ends; a faulty one is left out, and said once in a while.

    A line that cannot be written down, for the disk is full or gone, is held and tried again: whoever writes to the
    pipe waits meanwhile, and `NOTICES` tells of it.
    """
    faults = 0
    while line := source.readline(MAX_LINE):
        if not line.strip():
            continue
        try:
            if not _take_in_time(line, spool, dataset, retry_s):
                return
        except ValueError as err:
            faults += 1
            if faults & (faults - 1) == 0:
                log.warning("lines of a stream are left out", dataset=dataset, num_lines=faults, error=str(err)[:200])
    log.info("standard input has ended", dataset=dataset, num_rows=spool.num_rows)


def _take_in_time(line: bytes, spool: Spool, dataset: str, retry_s: float) -> bool:
    """Write a line down as soon as the disk takes it; False: the daemon stops before."""
    waits = False
    while not spool.closed.is_set():
        try:
            spool.take(line)
        except OSError as err:
            if not waits:
                why = f"{err.strerror or err}; make space in {spool.folder}, and it goes on by itself"
                NOTICES.wait(spool.folder, why)
                log.error("standard input waits for disk", dataset=dataset, error=why)
            waits = True
            spool.closed.wait(retry_s)
        else:
            if waits:
                NOTICES.wait(spool.folder, "")
                log.info("standard input goes on: there is disk again", dataset=dataset)
            return True
    return False


class _Listener:
    """A local socket and its senders."""

    def __init__(self, path: Path, spool: Spool, dataset: str) -> None:
        self._path, self._spool, self._dataset = path, spool, dataset
        self._senders: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Make the socket, for this user alone."""
        path = self._path
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_socket():
            path.unlink()  # of an earlier life: who listens there holds the spool
        before = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._serve, path=str(path), limit=MAX_LINE)
        except OSError as err:
            raise ConfigError(
                f"socket {path} cannot be made ({err.strerror or err}); correct [datasets.{self._dataset}.stream] path"
            ) from err
        finally:
            os.umask(before)

    async def close(self) -> None:
        """Let the senders go and remove the socket."""
        if self._server is not None:
            self._server.close()
        senders = list(self._senders)
        for sender in senders:
            sender.close()
        for sender in senders:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(5):
                    await sender.wait_closed()
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._senders.add(writer)
        try:
            while line := await reader.readline():
                if line.strip():
                    writer.write(_taken(self._spool.take, line))
                    await writer.drain()
        except (ConnectionError, ValueError):
            log.warning("a sender of a stream broke off, or sent a line that is too long", dataset=self._dataset)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self._senders.discard(writer)


def _taken(take: Callable[[bytes], int], line: bytes) -> bytes:
    try:
        answer: dict[str, object] = {"row": take(line)}
    except ValueError as err:
        answer = {"error": str(err)[:200]}
    except OSError as err:
        answer = {"error": f"cannot be written down: {err.strerror}"}
    return json.dumps(answer).encode() + b"\n"
