"""Which refusals get a line of the audit log: a coordinator that asks for what is forbidden for ever fills no disk.

The first refusal of a job, step and reason in an hour has a line. Those like it are counted, and the count is a line
when the hour is over or the daemon stops. An hour has at most `MOST_LINES` first lines of jobs that are proven to be an
operator's, and as many of others, so that made-up jobs hide none; what is refused beyond them is counted in one line. A
file beside the log holds the hour, so that a restart begins no new one.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog

from kernfed import files

log = structlog.get_logger(__name__)

FILE = "audit.refusals"
"""Its name, beside the log."""
MOST_LINES = 60
"""First lines of an hour, of proven jobs and of others."""

_ALIKE = ("job", "step", "submission", "reason", "message")
"""By which a refusal is like another."""
_BEYOND = "refusals beyond the lines that an hour has for them, of any job and step"


@dataclass
class _Counted:
    """Refusals like one that has a line."""

    line: dict[str, Any]
    times: int = 0
    """Those that have none."""


@dataclass
class _Hour:
    """What was refused in an hour."""

    of: str = ""
    """Its beginning, ISO 8601 up to the hour."""
    counted: list[_Counted] = field(default_factory=list)
    beyond: int = 0
    """Refusals that are like none which has a line."""

    @property
    def kept_as(self) -> tuple[str, int, int]:
        """Changes where it is to be written to the disk: with each line, and as the count of the others doubles."""
        return self.of, len(self.counted), (self.beyond + sum(c.times for c in self.counted)).bit_length()

    @classmethod
    def read(cls, path: Path) -> _Hour:
        """That of an earlier life; an empty one where the file is missing, or was damaged."""
        try:
            found = json.loads(path.read_text())
            counted = [_Counted(dict(entry["line"]), int(entry["times"])) for entry in found["counted"]]
            return cls(str(found["of"]), counted[: 2 * MOST_LINES], int(found["beyond"]))
        except (OSError, ValueError, TypeError, KeyError):
            return cls()

    def lines(self) -> list[dict[str, Any]]:
        """A line for each count, which are then 0."""
        told = [{**c.line, "times": c.times} for c in self.counted if c.times]
        if self.beyond:
            nobody = dict.fromkeys(("job", "task", "step", "operator", "method"), "")
            told.append({**nobody, "submission": None, "reason": "", "message": _BEYOND, "times": self.beyond})
        for c in self.counted:
            c.times = 0
        self.beyond = 0
        return told


class Refusals:
    """Decides which refusals are told now, and which are counted. For one thread at a time."""

    def __init__(self, log_path: Path) -> None:
        self._path = log_path.with_name(FILE)
        self._hour = self._next = _Hour.read(self._path)

    def due(self, line: Mapping[str, Any], now: datetime) -> list[dict[str, Any]]:
        """What is to be written for a refusal: counts of the hour before, and its own line unless it is counted.

        Args:
            line: Of the refusal.
            now: Its time.

        Returns:
            Lines; once they are written, `written` is to be called. Before, the refusal has not happened.
        """
        lines: list[dict[str, Any]] = []
        hour = self._next = copy.deepcopy(self._hour)
        if (of := now.strftime("%Y-%m-%dT%H")) != hour.of:
            lines, hour = hour.lines(), _Hour(of)
            self._next = hour
        alike = next((c for c in hour.counted if all(c.line.get(key) == line[key] for key in _ALIKE)), None)
        if alike is not None:
            alike.times += 1
        elif sum((c.line["submission"] is None) == (line["submission"] is None) for c in hour.counted) < MOST_LINES:
            hour.counted.append(_Counted(dict(line)))
            lines.append(dict(line))
        else:
            hour.beyond += 1
        return lines

    def rest(self) -> list[dict[str, Any]]:
        """Lines of the counts so far, for the end of the log's life; the hour goes on. See `due`."""
        self._next = copy.deepcopy(self._hour)
        return self._next.lines()

    def written(self) -> None:
        """What `due` or `rest` gave is in the log: keep the hour."""
        before, self._hour = self._hour, self._next
        if before.kept_as == self._hour.kept_as:
            return
        try:
            files.replace(self._path, json.dumps(asdict(self._hour)).encode(), durable=False, mode=0o600)
        except OSError as err:
            log.warning("counts of refusals are not kept; a restart loses them", file=str(self._path), error=str(err))
