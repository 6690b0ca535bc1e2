"""A job's setup requests on disk (schema, scales, feature map), so that a daemon that was restarted rebuilds its data.

Each is a file `00.task`, `01.task` …: the number is its place in the order in which the job asked them. A step that is
asked again keeps its place. The steps behind it were done on top of it and go, unless it leaves them as they are: then
the state that is rebuilt has them too.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
from collections.abc import Container
from pathlib import Path
from typing import Any

import structlog
from google.protobuf.message import DecodeError

from kernfed import files
from kernfed.errors import JobStateMissingError
from kernfed.federation.messages.base import Request
from kernfed.federation.setup import SetupChain
from kernfed.jobs.client_file import STREAM_STATES
from kernfed.v1 import task_pb2

log = structlog.get_logger(__name__)

SETUP = "setup"
"""Folder of the setup in a job's folder."""
LOOK_S = 3600.0
"""From one look for what was not used to the next. Looks are counted: no clock that is wrong makes a state old."""
FORGOTTEN_AFTER_LOOKS = 30 * 24
"""What is kept of a job for which nobody asked for so long goes."""
MOST_JOBS, MOST_BYTES = 256, 8 << 30
"""Jobs whose setups are kept, and the bytes of these; the longest unused go first."""
STATES_FORGOTTEN_AFTER_LOOKS = 180 * 24
MOST_STATES, MOST_STATES_BYTES = 256, 2 << 30
"""As for setups, of what jobs on streams leave for later jobs, which may begin after long."""
_UNUSED_FILE = "unused.json"
"""In the state folder: to each job's folder, the sum of the times of its files, and the looks since it changed."""
_SUFFIX = ".task"


class KeptSetup:
    """The setup of one job."""

    def __init__(self, folder: Path) -> None:
        """Name the folder, which is made with the first request; `before` reads what an earlier life left in it."""
        self._folder = folder
        self._chain = SetupChain()
        self._numbers: list[int] = []
        """Of the files of its links."""
        self._done = -1
        """Place of the last of the steps that are done: what is kept behind it is not done again yet."""

    def before(self, step: str, *, leaves_later: bool = False) -> list[task_pb2.Task]:
        """Kept requests in their order: those ahead of a step that is kept itself, else all; they count as done.

        Args:
            step: That is asked for.
            leaves_later: Whether those behind it are to be there too, see `Request.leaves_later`.

        Raises:
            JobStateMissingError: One cannot be read; all are gone now.
        """
        try:
            numbers = sorted(int(path.stem) for path in self._folder.glob(f"*{_SUFFIX}"))
            kept = [task_pb2.Task.FromString(self._path(number).read_bytes()) for number in numbers]
        except (OSError, DecodeError, ValueError) as err:  # a broken disk, or another release wrote it
            raise self.unreadable() from err
        self._chain, self._numbers = SetupChain([(task.step, task.request_sha256.hex()) for task in kept]), numbers
        ahead = kept if leaves_later else list(itertools.takewhile(lambda task: task.step != step, kept))
        self._done = len(ahead) - 1
        return ahead

    def place(self, step: str) -> int:
        """Place of a setup step; of another one, that of the last setup step that is done: it stands on that."""
        place = self._chain.place(step)
        return self._done if place is None else place

    def stands_on(self, request: type[Request[Any]], sha256: bytes) -> bool:
        """Whether what is done is what the answer to a request is to stand on.

        Args:
            request: Its type.
            sha256: Of the chain, see `SetupChain.under`; empty, from a release of before, passes.
        """
        under = SetupChain(self._chain.links[: self._done + 1]).under(request)
        return under is None or sha256 in (b"", under)

    def keep(self, task: task_pb2.Task, request: type[Request[Any]]) -> None:
        """Keep a request, in place of an earlier one of its step.

        Args:
            task: It was done.
            request: Its type: what is behind it is kept no more, unless it leaves that.

        Raises:
            OSError: The disk is full, or gone.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self._chain.put(request, task.request_sha256)
        size, place = len(self._chain.links), self.place(task.step)
        for void in self._numbers[size:]:
            self._path(void).unlink(missing_ok=True)
        self._numbers = [*self._numbers, max(self._numbers, default=-1) + 1][:size]
        # Not durable: a coordinator whose client misses its setup asks it again.
        files.replace(self._path(self._numbers[place]), task.SerializeToString(), durable=False)
        self._done = max(place, self._done) if request.leaves_later else place

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:02d}{_SUFFIX}"

    def unreadable(self) -> JobStateMissingError:
        """Remove what cannot be used; returns the error that tells the coordinator so."""
        self.remove()
        return JobStateMissingError("what was kept of this job cannot be read; it is prepared again")

    def remove(self) -> None:
        """Remove all, with what methods keep in folders below."""
        self._chain, self._numbers, self._done = SetupChain(), [], -1
        shutil.rmtree(self._folder, ignore_errors=True)


def remove_setup(job: Path) -> None:
    """Remove the setup in a job's folder, and the folder where the job left no model of this client's own."""
    KeptSetup(job / SETUP).remove()
    with contextlib.suppress(OSError):  # something else is in it, or it was never made
        job.rmdir()


def remove_old(jobs: Path, live: Container[Path]) -> None:
    """Look once more for setups and states that nobody used, and remove those of the limits' age.

    Args:
        jobs: Folder of the jobs' folders.
        live: Of the jobs that were asked for since the daemon started.
    """
    before, unused = _read_unused(jobs.parent / _UNUSED_FILE), {}
    for job in jobs.glob("*"):
        with contextlib.suppress(OSError):  # somebody removed it meanwhile
            changed = sum(
                p.stat().st_mtime_ns for p in (job, *job.glob(f"{SETUP}/*"), *job.glob(f"{STREAM_STATES}/**/*"))
            )
            changed_before, looks = before.get(job.name, (changed, -1))
            looks = looks + 1 if changed == changed_before and job not in live else 0
            unused[job.name] = changed, looks
            if looks >= FORGOTTEN_AFTER_LOOKS:
                remove_setup(job)
            if looks >= STATES_FORGOTTEN_AFTER_LOOKS and (job / STREAM_STATES).is_dir():
                _remove_states(job)
    with contextlib.suppress(OSError):  # a full disk: what is here counts as younger than it is
        files.replace(jobs.parent / _UNUSED_FILE, json.dumps(unused).encode(), durable=False)


def _read_unused(path: Path) -> dict[str, tuple[int, int]]:
    try:
        return {str(job): (int(changed), int(looks)) for job, (changed, looks) in json.loads(path.read_bytes()).items()}
    except (OSError, ValueError, TypeError, AttributeError):  # none yet, or damaged: all counts as new
        return {}


def remove_many(jobs: Path, live: Container[Path]) -> None:
    """Remove what is kept of jobs beyond `MOST_JOBS`, `MOST_BYTES` and the like: naming jobs without end fills no disk.

    Args:
        jobs: Folder of the jobs' folders.
        live: Of the jobs that were asked for lately.
    """
    for name, most, most_bytes, remove in (
        (SETUP, MOST_JOBS, MOST_BYTES, remove_setup),
        (STREAM_STATES, MOST_STATES, MOST_STATES_BYTES, _remove_states),
    ):
        found = sorted(((job in live, used, size, job) for job, used, size in _held(jobs, name)), reverse=True)
        held = 0
        for number, (alive, _, size, job) in enumerate(found, start=1):
            held += size
            if not alive and (number > most or held > most_bytes):
                remove(job)


def _held(jobs: Path, name: str) -> list[tuple[Path, float, int]]:
    """Jobs with a folder of a name, when it was used last, and its bytes."""
    found = []
    for folder in jobs.glob(f"*/{name}"):
        with contextlib.suppress(OSError):  # somebody removed it meanwhile
            facts = [path.stat() for path in folder.rglob("*")]
            used = max((fact.st_mtime for fact in facts), default=0.0)
            found.append((folder.parent, used, sum(fact.st_size for fact in facts)))
    return found


def _remove_states(job: Path) -> None:
    log.info("the state of a former job on streams is removed", folder=job.name)
    shutil.rmtree(job / STREAM_STATES, ignore_errors=True)
    with contextlib.suppress(OSError):  # its setup or a model is there
        job.rmdir()
