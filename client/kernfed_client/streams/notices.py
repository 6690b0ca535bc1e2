"""What the streams of this process met, for `kernfed-client health` and the log: by folder, with places in files.

Rows are read by the thread that computes, taken by others, and told of by the event loop, so this is safe for threads.
It holds names of files and numbers of lines, but no values. Nothing of it crosses the wire.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from kernfed_client.streams.faults import MEANING, RowFault


@dataclass
class _OfFolder:
    counts: Counter[RowFault] = field(default_factory=Counter)
    first: dict[RowFault, str] = field(default_factory=dict)
    num_read: int = 0
    waits: str = ""


class Notices:
    """Of all streams of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folders: dict[Path, _OfFolder] = {}

    def left_out(self, folder: Path, fault: RowFault, where: str) -> bool:
        """Count a row; whether it is the first of its kind."""
        with self._lock:
            of = self._folders.setdefault(folder, _OfFolder())
            of.counts[fault] += 1
            first = fault not in of.first
            of.first.setdefault(fault, where)
            return first

    def read(self, folder: Path, num_rows: int) -> None:
        """Count rows that were read and are rows."""
        with self._lock:
            self._folders.setdefault(folder, _OfFolder()).num_read += num_rows

    def counts(self, folder: Path) -> tuple[int, dict[RowFault, int]]:
        """Rows that were read since the daemon started, and rows that were left out by kind."""
        with self._lock:
            of = self._folders.get(folder, _OfFolder())
            return of.num_read, dict(of.counts)

    def wait(self, folder: Path, why: str) -> None:
        """State that rows of a stream wait, and for what; empty: they go on."""
        with self._lock:
            self._folders.setdefault(folder, _OfFolder()).waits = why

    def waits(self, folder: Path) -> str:
        """Why rows of a stream wait; empty: they do not."""
        with self._lock:
            of = self._folders.get(folder)
            return "" if of is None else of.waits

    def waiting(self, folders: Iterable[tuple[str, Path]]) -> str:
        """Which streams wait for the disk, and what to do; empty: none. Args as of `text`."""
        waits = ((dataset, self.waits(folder)) for dataset, folder in folders)
        return "; ".join(f"the stream of {dataset} waits for disk: {why}" for dataset, why in waits if why)

    def text(self, folders: Iterable[tuple[str, Path]]) -> str:
        """What was left out since the daemon started, by data set, in one line; empty: nothing.

        Args:
            folders: Data sets, with the folders of their streams.
        """
        lines = []
        with self._lock:
            for dataset, folder in folders:
                of = self._folders.get(folder)
                if of is not None and of.counts:
                    kinds = (f"{n} {MEANING[k]} (first: {of.first[k]})" for k, n in sorted(of.counts.items()))
                    lines.append(f"stream of {dataset}: rows left out since the start: {'; '.join(kinds)}")
        return "; ".join(lines)


NOTICES = Notices()
"""Of this process: a daemon has one event loop, and threads that know nothing of each other."""
