"""The coordinator's memory: jobs, their events and checkpoints, clients seen. SQLite in a file, or any database by URL.

`kernfed_server.keeping.database` runs the statements, and writes events behind them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from kernfed.errors import UnknownJobError
from kernfed.federation.events import EventKind, JobState
from kernfed.jobs.info import ClientInfo, JobInfo, JobPage, NumberedEvent
from kernfed.v1 import task_pb2
from kernfed_server.jobs.journal import Checkpoint
from kernfed_server.jobs.outcomes import ClientOutcome, RoundOutcomes, outcome_from, outcome_rows
from kernfed_server.keeping import tables as t
from kernfed_server.keeping.checkpoints import copy_checkpoint, read_checkpoint, remove_orphans, write_checkpoint
from kernfed_server.keeping.database import Database
from kernfed_server.keeping.ownership import Owner
from kernfed_server.keeping.schema import bring_up_to_date, make_engine
from kernfed_server.keeping.store_rows import (
    client_columns,
    client_from,
    event_from,
    job_columns,
    job_from,
)

_UNFINISHED = t.jobs.c.state.in_([JobState.QUEUED.value, JobState.RUNNING.value])


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job and where its history stands."""

    info: JobInfo
    last_sequence: int


Answers = Mapping[str, Mapping[str, int]]
"""Client to step to how often it answered."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """State from which a job goes on."""

    checkpoint: Checkpoint
    answers: Answers


class Store:
    """State that outlives the process. Make with `await Store.open(...)`; end with `close`."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self._db = Database(engine, folder)
        self._folder = folder / "checkpoints"

    @classmethod
    async def open(cls, url: str, folder: Path, owner: Owner) -> Store:
        """Open a store, making it if it is new.

        Args:
            url: SQLAlchemy URL, as for `kernfed_server.keeping.schema.make_engine`.
            folder: The coordinator's data folder; checkpoints go to `checkpoints` in it.
            owner: The federation whose books these must be.

        Raises:
            ConfigError: The URL cannot be used, a newer release of kernfed made the tables, another coordinator uses
                them, they are another federation's, or they are gone.
            UnavailableError: The database cannot be opened.
        """
        store = cls(make_engine(url), folder)
        try:
            await store._db.in_worker(lambda: owner.refuse_lost(store._db.engine, folder))
            await store._db.in_worker(lambda: store._create(owner))
        except BaseException:
            await store.close()
            raise
        return store

    async def close(self) -> None:
        """Write what is pending and close; once is enough, twice does no harm."""
        await self._db.close()

    async def hold(self, told: Callable[[str], Awaitable[None]]) -> None:
        """See `kernfed_server.keeping.database.Database.hold`."""
        await self._db.hold(told)

    def add_event(self, job_id: str, event: NumberedEvent) -> None:
        """See `kernfed_server.keeping.database.Database.add_event`."""
        self._db.add_event(job_id, event)

    async def submit(
        self, info: JobInfo, request_id: str, submission: task_pb2.Submission | None = None
    ) -> tuple[JobInfo, bool]:
        """Keep a new job, or find the one that the same operator submitted under this request id or signature before.

        Args:
            info: The job. The id of a signed one follows from its submission.
            request_id: Empty: none.
            submission: What its operator signed; None: it is not signed.

        Returns:
            The job, and whether it is new.
        """
        serialized = None if submission is None else submission.SerializeToString()

        def work(db: Connection) -> tuple[JobInfo, bool]:
            if request_id:
                query = (
                    sa.select(t.jobs)
                    .join(t.request_ids)
                    .where(t.request_ids.c.submitted_by == info.submitted_by, t.request_ids.c.request_id == request_id)
                )
                if known := db.execute(query).one_or_none():
                    return job_from(known), False
            if submission is not None:
                same = t.jobs.select().where(t.jobs.c.submission_sha256 == info.submission_sha256)
                if known := db.execute(same).one_or_none():
                    return job_from(known), False
            db.execute(t.jobs.insert().values(job_id=info.job_id, submission=serialized, **job_columns(info)))
            _note_action(db, info.submitted_by, "submit", info.job_id)
            if request_id:
                db.execute(
                    t.request_ids.insert().values(
                        submitted_by=info.submitted_by, request_id=request_id, job_id=info.job_id
                    )
                )
            return info, True

        return await self._db.transaction(work)

    async def update_job(self, info: JobInfo) -> None:
        """Write a job's present state."""
        await self._db.transaction(
            lambda db: db.execute(t.jobs.update().where(t.jobs.c.job_id == info.job_id).values(**job_columns(info)))
        )

    async def sign(self, info: JobInfo, submission: task_pb2.Submission) -> bool:
        """Keep what the operator of a job signed after it was submitted; False: another signature came before."""
        signed = {"submission": submission.SerializeToString(), "submission_sha256": info.submission_sha256}
        unsigned = (t.jobs.c.job_id == info.job_id, t.jobs.c.submission.is_(None))

        def work(db: Connection) -> bool:
            if not db.execute(t.jobs.update().where(*unsigned).values(**signed)).rowcount:
                return False
            _note_action(db, info.submitted_by, "sign", info.job_id)
            return True

        return await self._db.transaction(work)

    async def submission(self, job_id: str) -> task_pb2.Submission | None:
        """What a job's operator signed; None where the job is not signed."""
        query = sa.select(t.jobs.c.submission).where(t.jobs.c.job_id == job_id)
        stored = await self._db.reading(lambda db: db.execute(query).scalar_one_or_none())
        return None if stored is None else task_pb2.Submission.FromString(stored)

    async def find_job(self, job_id: str) -> JobInfo:
        """A job by its id, or by a beginning of the id that no other job shares; by a job's name, the newest of it.

        Raises:
            UnknownJobError: There is none, or several.
        """
        if not job_id:
            raise UnknownJobError("no job id given; `kernfed job list` shows them")
        pattern = t.jobs.c.job_id.startswith(job_id[:128], autoescape=True)
        last = [t.jobs.c.job_id != job_id, t.jobs.c.name != job_id, t.jobs.c.ordinal.desc()]
        query = sa.select(t.jobs).where(pattern).order_by(*last).limit(6)
        rows = await self._db.reading(lambda db: db.execute(query).all())
        exact = [row for row in rows if job_id in (row.job_id, row.name)]
        if len(exact[:1] or rows) != 1:
            if not rows:
                raise UnknownJobError(f"no job {job_id[:128]!r}; `kernfed job list` shows them")
            names = ", ".join(row.job_id for row in rows)
            raise UnknownJobError(f"{job_id!r} may be any of {names}; give more letters")
        return job_from((exact or rows)[0])

    async def list_jobs(self, page_size: int, before: int | None = None) -> JobPage:
        """Jobs, newest first, without their files.

        Args:
            page_size: At most this many.
            before: Where the page before ended.
        """
        query = sa.select(t.jobs).order_by(t.jobs.c.ordinal.desc()).limit(page_size + 1)
        if before is not None:
            query = query.where(t.jobs.c.ordinal < before)
        rows = await self._db.reading(lambda db: db.execute(query).all())
        more = str(rows[page_size - 1].ordinal) if len(rows) > page_size else ""
        return JobPage(tuple(job_from(row).in_list() for row in rows[:page_size]), more)

    async def unfinished_jobs(self) -> list[StoredJob]:
        """Jobs to go on with, oldest first."""

        def work(db: Connection) -> list[StoredJob]:
            last = sa.func.coalesce(sa.func.max(t.events.c.sequence), 0)
            found = db.execute(sa.select(t.jobs).where(_UNFINISHED).order_by(t.jobs.c.ordinal)).all()
            return [
                StoredJob(
                    job_from(row), db.execute(sa.select(last).where(t.events.c.job_id == row.job_id)).scalar_one()
                )
                for row in found
            ]

        return await self._db.transaction(work)

    async def events(
        self, job_id: str, first: int = 1, limit: int = 1000, kinds: Iterable[EventKind] = ()
    ) -> list[NumberedEvent]:
        """Events of a job from a sequence number on, in order, those that wait for the disk too; some kinds, or all."""
        query = t.events.select().where(t.events.c.job_id == job_id, t.events.c.sequence >= first)
        query = query.order_by(t.events.c.sequence).limit(limit)
        wanted = frozenset(kinds)
        if wanted:
            query = query.where(t.events.c.kind.in_([kind.value for kind in wanted]))

        def work(db: Connection) -> tuple[Sequence[sa.Row[Any]], list[NumberedEvent]]:
            # Both in the worker thread, which alone writes events: those that it is about to write are in neither.
            return db.execute(query).all(), self._db.waiting_events(job_id)

        rows, waiting = await self._db.reading(work)
        found = [event_from(row) for row in rows]
        if len(found) < limit:
            after = found[-1].sequence if found else first - 1
            found += [e for e in waiting if e.sequence > after and (not wanted or e.event.kind in wanted)]
        return found[:limit]

    async def last_events(
        self, job_id: str, limit: int, kinds: Iterable[EventKind], every: int = 1
    ) -> list[NumberedEvent]:
        """The last events of some kinds that are on the disk, in order: of rounds that `every` divides, where given."""
        query = t.events.select().where(
            t.events.c.job_id == job_id,
            t.events.c.kind.in_([kind.value for kind in kinds]),
            t.events.c.round_num % every == 0,
        )
        query = query.order_by(t.events.c.sequence.desc()).limit(limit)
        return [event_from(row) for row in reversed(await self._db.reading(lambda db: db.execute(query).all()))]

    async def save_checkpoint(
        self, info: JobInfo, checkpoint: Checkpoint, answers: Answers, outcomes: RoundOutcomes | None = None
    ) -> None:
        """Keep the state after a round in place of the one before.

        The file is on disk before the row names it, and the file before goes after that; so whenever the process
        dies, one whole checkpoint is there.

        Args:
            info: The job.
            checkpoint: Round and state.
            answers: Of all rounds so far.
            outcomes: What each client did in this round.

        Raises:
            DiskFullError: There is no space; the checkpoint before stays.
            UnavailableError: The database cannot be used; likewise.
        """
        counted = {client: dict(steps) for client, steps in answers.items()}

        def work() -> None:
            name, sha256 = write_checkpoint(self._folder, info.job_id, checkpoint) if checkpoint.state else ("", "")
            values = {"round_num": checkpoint.round_num, "file": name, "sha256": sha256, "answers": counted}
            same_job = t.checkpoints.c.job_id == info.job_id

            def note(db: Connection) -> str:
                before = db.execute(sa.select(t.checkpoints.c.file).where(same_job)).scalar_one_or_none()
                if before is None:
                    db.execute(t.checkpoints.insert().values(job_id=info.job_id, **values))
                else:
                    db.execute(t.checkpoints.update().where(same_job).values(**values))
                if outcomes:
                    same_round = (t.outcomes.c.job_id == info.job_id, t.outcomes.c.round_num == checkpoint.round_num)
                    db.execute(t.outcomes.delete().where(*same_round))
                    db.execute(t.outcomes.insert(), outcome_rows(info.job_id, checkpoint.round_num, outcomes))
                facts = {"round_num": checkpoint.round_num, "clients": list(info.clients)}
                db.execute(t.jobs.update().where(t.jobs.c.job_id == info.job_id).values(**facts))
                return before or ""

            before = self._db.begin(note)
            if before and before != name:
                (self._folder / before).unlink(missing_ok=True)

        await self._db.in_worker(work)

    async def outcomes(self, job_id: str) -> list[ClientOutcome]:
        """Each client's outcome in each closed round of a job, by round and client."""
        query = (
            sa.select(t.outcomes)
            .where(t.outcomes.c.job_id == job_id)
            .order_by(t.outcomes.c.round_num, t.outcomes.c.client)
        )
        return [outcome_from(row) for row in await self._db.reading(lambda db: db.execute(query).all())]

    async def note_action(self, operator: str, action: str, job_id: str) -> None:
        """Keep what an operator did, for `kernfed-coordinator actions`; submissions are noted by `submit`."""
        await self._db.transaction(lambda db: _note_action(db, operator, action, job_id))

    async def load_checkpoint(self, job_id: str) -> Resumption | None:
        """The last checkpoint of a job; that of round 0 holds what was agreed on before. None where there is none.

        Raises:
            JobError: Its file is gone or damaged.
        """

        def work() -> Resumption | None:
            row = self._checkpoint_row(job_id)
            if row is None:
                return None
            if not row.file:
                return Resumption(Checkpoint(row.round_num, {}), row.answers)
            return Resumption(read_checkpoint(self._folder / row.file, row.round_num, row.sha256), row.answers)

        return await self._db.in_worker(work)

    async def copy_checkpoint(self, job_id: str, to: Path) -> None:
        """Copy the file of a job's checkpoint, if a round was closed and has one.

        Raises:
            JobError: The file is gone or damaged; nothing is copied.
            DiskFullError: There is no space.
        """

        def work() -> None:
            row = self._checkpoint_row(job_id)
            if row is not None and row.file and row.round_num:
                copy_checkpoint(self._folder / row.file, to, row.round_num, row.sha256)

        await self._db.in_worker(work)

    def _checkpoint_row(self, job_id: str) -> sa.Row[Any] | None:
        query = sa.select(t.checkpoints).where(t.checkpoints.c.job_id == job_id)
        return self._db.begin(lambda db: db.execute(query).one_or_none(), reads=True)

    async def drop_checkpoint(self, job_id: str) -> None:
        """Forget the checkpoint of a job that is over."""

        def work() -> None:
            same_job = t.checkpoints.c.job_id == job_id

            def forget(db: Connection) -> str | None:
                name = db.execute(sa.select(t.checkpoints.c.file).where(same_job)).scalar()
                db.execute(t.checkpoints.delete().where(same_job))
                return name

            if name := self._db.begin(forget):
                (self._folder / name).unlink(missing_ok=True)

        await self._db.in_worker(work)

    async def save_clients(self, clients: Sequence[ClientInfo]) -> None:
        """Remember clients as they are now."""

        def work(db: Connection) -> None:
            for client in clients:
                values = client_columns(client)
                same = t.clients.c.name == client.name
                if db.execute(t.clients.update().where(same).values(**values)).rowcount == 0:
                    db.execute(t.clients.insert().values(name=client.name, **values))

        await self._db.transaction(work)

    async def clients(self) -> dict[str, ClientInfo]:
        """Clients seen so far by name, as when last noted; none of them connected."""
        rows = await self._db.reading(lambda db: db.execute(sa.select(t.clients).order_by(t.clients.c.name)).all())
        return {row.name: client_from(row) for row in rows}

    def _create(self, owner: Owner) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._db.take_lock()
        owner.refuse_others(self._db.engine)
        bring_up_to_date(self._db.engine)
        with self._db.engine.begin() as db:
            owner.sign(db)
            unfinished = sa.select(t.jobs.c.job_id).where(_UNFINISHED)
            db.execute(t.checkpoints.delete().where(t.checkpoints.c.job_id.not_in(unfinished)))
            keep = set(db.execute(sa.select(t.checkpoints.c.file)).scalars())
        remove_orphans(self._folder, keep)


def _note_action(db: Connection, operator: str, action: str, job_id: str) -> None:
    now = datetime.now(UTC).timestamp()
    db.execute(t.operator_actions.insert().values(time=now, operator=operator, action=action, job_id=job_id))
