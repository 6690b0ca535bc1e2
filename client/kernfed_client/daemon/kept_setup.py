"""A job's setup requests on disk (schema, scales, feature map), so that a daemon that was restarted rebuilds its data.

Each is a file `00.task`, `01.task` …: the number is its place in the order in which the job asked them. A step that is
asked again keeps its place, for the steps behind it were done on top of it.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

from google.protobuf.message import DecodeError

from kernfed import files
from kernfed.errors import JobStateMissingError
from kernfed.v1 import task_pb2

_SUFFIX = ".task"


class KeptSetup:
    """The setup of one job."""

    def __init__(self, folder: Path) -> None:
        """Name the folder, which is made with the first request; `before` reads what an earlier life left in it."""
        self._folder = folder
        self._places: dict[str, int] = {}
        """Step to place."""

    def before(self, step: str) -> list[task_pb2.Task]:
        """Kept requests in their order: those ahead of a step that is kept itself, else all.

        Raises:
            JobStateMissingError: One cannot be read; all are gone now.
        """
        kept = []
        try:
            for path in sorted(self._folder.glob(f"*{_SUFFIX}"), key=lambda path: int(path.stem)):
                task = task_pb2.Task.FromString(path.read_bytes())
                self._places[task.step] = int(path.stem)
                kept.append(task)
        except (OSError, DecodeError, ValueError) as err:  # a broken disk, or another release wrote it
            raise self.unreadable() from err
        return list(itertools.takewhile(lambda task: task.step != step, kept))

    def keep(self, task: task_pb2.Task) -> None:
        """Keep a request, in place of an earlier one of its step.

        Raises:
            OSError: The disk is full, or gone.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        place = self._places.setdefault(task.step, max(self._places.values(), default=-1) + 1)
        # Not durable: a coordinator whose client misses its setup asks it again.
        files.replace(self._folder / f"{place:02d}{_SUFFIX}", task.SerializeToString(), durable=False)

    def unreadable(self) -> JobStateMissingError:
        """Remove what cannot be used; returns the error that tells the coordinator so."""
        self.remove()
        return JobStateMissingError("what was kept of this job cannot be read; it is prepared again")

    def remove(self) -> None:
        """Remove all, with what methods keep in folders below."""
        self._places.clear()
        shutil.rmtree(self._folder, ignore_errors=True)
