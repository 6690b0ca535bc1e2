"""Files in the coordinator's data folder that nothing refers to any more, and the history of old jobs: found, removed.

A coordinator may be at work on the same folder meanwhile: what it makes is written before it is noted, so what nothing
refers to is removed only once it is old enough that nobody can be about to note it.
"""

from __future__ import annotations

import shutil
import time
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from kernfed.errors import ConfigError
from kernfed.federation.events import EventKind, JobState
from kernfed.files import NEW
from kernfed_server.keeping import tables as t
from kernfed_server.keeping.checkpoints import is_checkpoint
from kernfed_server.keeping.schema import connected

NOTED_WITHIN_S: Final = 3600.0
"""A checkpoint or a folder of artifacts that is older is not about to be noted in the store."""
SUBMITTED_WITHIN_S: Final = 24 * 3600.0
"""An upload that is older waits for no job."""
_DAY_S: Final = 24 * 3600.0
_PASSING: Final = tuple(
    kind.value
    for kind in (
        EventKind.ROUND_OPENED,
        EventKind.STEP_ASKED,
        EventKind.CLIENT_ANSWERED,
        EventKind.CLIENT_FAILED,
        EventKind.CLIENT_MISSING,
        EventKind.WAITING,
        EventKind.ROUND_CLOSED,
    )
)
"""Kinds of events that count while a job runs; `job.json` and `metrics.jsonl` of its artifacts sum them up."""
_UNFINISHED: Final = (JobState.QUEUED.value, JobState.RUNNING.value)


@dataclass(frozen=True, slots=True)
class Garbage:
    """A file or folder that may go.

    Attributes:
        path: Where it lies.
        what: checkpoint, upload or artifacts.
        why: In words.
        num_bytes: Its size, of a folder with all that is in it.
    """

    path: Path
    what: str
    why: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class OldEvents:
    """Rows of a job's history that may go. What was said of it, its states and its last round stay.

    Attributes:
        job_id: The job, which is over.
        num_events: How many rows.
    """

    job_id: str
    num_events: int


@dataclass(frozen=True, slots=True)
class _Known:
    """Files that the store refers to."""

    finished_at: dict[str, float | None]
    """Job to the end of it, in seconds since 1970; None while it is not over."""
    checkpoints: set[str]
    uploads: set[str]


def find_garbage(url: str, folder: Path, *, older_than_days: float | None = None) -> list[Garbage]:
    """Find what may go; nothing is changed. Blocks.

    Args:
        url: The store's database, as for `kernfed_server.keeping.schema.make_engine`.
        folder: The coordinator's data folder.
        older_than_days: Artifacts of jobs that have been over for longer count too; None: no artifacts of known jobs.

    Raises:
        ConfigError: There is no store, or it is another release's.
        UnavailableError: The database cannot be read.
    """
    known = _known(url)
    now = time.time()
    found = [*_checkpoints(folder / "checkpoints", known, now), *_uploads(folder / "uploads", known, now)]
    return [*found, *_artifacts(folder / "jobs", known, now, older_than_days)]


def remove(garbage: Iterable[Garbage]) -> None:
    """Remove what was found. Blocks.

    Raises:
        ConfigError: Something may not be removed.
    """
    for item in garbage:
        try:
            if item.path.is_dir():
                shutil.rmtree(item.path)
            else:
                item.path.unlink(missing_ok=True)
        except OSError as err:
            raise ConfigError(
                f"{err.filename or item.path} cannot be removed: {err.strerror}; run this as the coordinator's user"
            ) from err


def find_old_events(url: str, *, older_than_days: float) -> list[OldEvents]:
    """Find what may go of the history of jobs that have been over for so many days; nothing is changed. Blocks.

    Raises:
        ConfigError: There is no store, or it is another release's.
        UnavailableError: The database cannot be read.
    """
    with connected(url) as db:
        query = (
            sa.select(t.events.c.job_id, sa.func.count())
            .where(_may_go(time.time() - older_than_days * _DAY_S))
            .group_by(t.events.c.job_id)
            .order_by(t.events.c.job_id)
        )
        return [OldEvents(job_id, number) for job_id, number in db.execute(query).all()]


def remove_old_events(url: str, *, older_than_days: float) -> None:
    """Remove what `find_old_events` finds, with the rounds' outcomes, which `job.json` sums up. Blocks.

    A coordinator may be at work on the database meanwhile; it writes to no job that is over.

    Raises:
        ConfigError: There is no store, or it is another release's.
        UnavailableError: The database cannot be written.
    """
    before = time.time() - older_than_days * _DAY_S
    with connected(url) as db:
        db.execute(t.events.delete().where(_may_go(before)))
        db.execute(t.outcomes.delete().where(t.outcomes.c.job_id.in_(_over(before))))
        db.commit()


def _over(before: float) -> sa.Select[tuple[str]]:
    """Ids of the jobs that were over by then, in seconds since 1970."""
    return sa.select(t.jobs.c.job_id).where(t.jobs.c.state.not_in(_UNFINISHED), t.jobs.c.finished_at < before)


def _may_go(before: float) -> sa.ColumnElement[bool]:
    last = sa.select(t.events.c.job_id, sa.func.max(t.events.c.sequence).label("sequence"))
    last = last.where(t.events.c.kind == EventKind.ROUND_CLOSED.value).group_by(t.events.c.job_id)
    last_round = last.subquery()
    is_last = sa.exists().where(last_round.c.job_id == t.events.c.job_id, last_round.c.sequence == t.events.c.sequence)
    return sa.and_(t.events.c.job_id.in_(_over(before)), t.events.c.kind.in_(_PASSING), ~is_last)


def _known(url: str) -> _Known:
    with connected(url) as db:
        # Checkpoints last: a job that ends meanwhile leaves its file to the next time.
        jobs = db.execute(sa.select(t.jobs.c.job_id, t.jobs.c.state, t.jobs.c.finished_at)).all()
        texts = db.execute(sa.select(t.jobs.c.job_toml).where(t.jobs.c.state.in_(_UNFINISHED))).scalars().all()
        checkpoints = set(db.execute(sa.select(t.checkpoints.c.file)).scalars())
    uploads = {digest for text in texts for digest in tomllib.loads(text).get("files", {}).values()}
    ends = {job.job_id: None if job.state in _UNFINISHED else job.finished_at for job in jobs}
    return _Known(ends, checkpoints, uploads)


def _checkpoints(folder: Path, known: _Known, now: float) -> Iterator[Garbage]:
    for path in _entries(folder):
        if is_checkpoint(path) and path.name not in known.checkpoints and _age_s(path, now) > NOTED_WITHIN_S:
            yield Garbage(path, "checkpoint", "no job goes on from it", _size(path))


def _uploads(folder: Path, known: _Known, now: float) -> Iterator[Garbage]:
    for path in _entries(folder):
        if path.name not in known.uploads and _age_s(path, now) > SUBMITTED_WITHIN_S:
            yield Garbage(path, "upload", "no unfinished job names it", _size(path))


def _artifacts(folder: Path, known: _Known, now: float, older_than_days: float | None) -> Iterator[Garbage]:
    for path in _entries(folder):
        if path.name not in known.finished_at:
            if _age_s(path, now) > NOTED_WITHIN_S:
                yield Garbage(path, "artifacts", "of no job in the store", _size(path))
            continue
        ended = known.finished_at[path.name]
        if ended is None:
            continue
        if older_than_days is not None and now - ended > older_than_days * _DAY_S:
            yield Garbage(path, "artifacts", f"the job ended {(now - ended) / _DAY_S:.0f} days ago", _size(path))
        elif (half := path / f"artifacts{NEW}").is_dir() and now - ended > NOTED_WITHIN_S:
            yield Garbage(half, "artifacts", "half written", _size(half))


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _age_s(path: Path, now: float) -> float:
    try:
        return now - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(p.lstat().st_size for p in files if p.is_file())
