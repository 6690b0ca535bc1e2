"""Jobs from submission to artifacts: queues them, runs those whose clients are free, resumes them after a restart."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import structlog

from kernfed.errors import BusyError, ConfigError, JobError, UnavailableError, UnknownJobError
from kernfed.federation.cohort import Cohort
from kernfed.federation.events import EventKind, JobEvent, JobState
from kernfed.federation.exchange import Exchange
from kernfed.jobs.info import ArtifactInfo, ClientInfo, JobInfo, JobPage
from kernfed.jobs.job_file import JobFile, parse_job
from kernfed.jobs.plugins_used import parse_usable
from kernfed.methods.registry import method_of
from kernfed.pki.submission import sha256_of, signed_job_id
from kernfed.v1 import task_pb2
from kernfed.wording import listed
from kernfed_server.federation.client_book import ClientBook, Sessions
from kernfed_server.jobs.journal import Observer, Unobserved
from kernfed_server.jobs.run import Model, Run
from kernfed_server.jobs.tasks.signing import sign_late
from kernfed_server.jobs.tasks.task import ActiveJob, finish_job, run_job, submission_of
from kernfed_server.jobs.tasks.watching import watch_ended, watch_live
from kernfed_server.jobs.waiting.queue import JobQueue
from kernfed_server.keeping.artifacts import ArtifactShelf
from kernfed_server.keeping.batches import Batch
from kernfed_server.keeping.former_states import refuse_made_up
from kernfed_server.keeping.history import KEPT_UPDATES, MAX_SEQUENCE, History
from kernfed_server.keeping.store import Store, StoredJob
from kernfed_server.keeping.uploads import Uploads

log = structlog.get_logger(__name__)

MAX_FILE_BYTES = 1 << 20
MAX_LIVE_JOBS = 10_000
_DRAIN_LOOK_S = 0.02


Execute = Callable[[JobFile, Cohort, Run], Awaitable[Model | None]]
"""Runs the workflow of a job; see `kernfed_server.jobs.execute.execute`."""


MakeExchange = Callable[[JobInfo, task_pb2.Submission | None], Exchange]
"""How a job's requests reach its clients, with what its operator signed, or None."""


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Limits and waits of the run manager.

    Attributes:
        jobs_per_client: Jobs that a client works for at a time.
        settle_s: After a start, jobs without named clients wait this long for clients to come back.
        report_timeout_s: For writing `report.html`.
        cancel_timeout_s: How long `cancel` waits for a job to end.
        kept_updates: Updates that are kept for the watchers of a job.
        foreign_states: Whether jobs may begin from what no job of this coordinator left.
    """

    jobs_per_client: int = 1
    settle_s: float = 10.0
    report_timeout_s: float = 120.0
    cancel_timeout_s: float = 30.0
    kept_updates: int = KEPT_UPDATES
    foreign_states: bool = False


class RunManager:
    """All jobs of the coordinator. `run` must be going for anything to happen."""

    def __init__(
        self,
        store: Store,
        sessions: Sessions,
        make_exchange: MakeExchange,
        folder: Path,
        *,
        execute: Execute,
        known_clients: Callable[[], set[str] | None] = lambda: None,
        limits: RunLimits | None = None,
        observer: Observer | None = None,
    ) -> None:
        """Make the manager.

        Args:
            store: Where jobs are kept.
            sessions: The clients' sessions.
            make_exchange: How a job's requests, and what its operator signed, reach its clients.
            folder: The coordinator's data folder; artifacts go to `jobs/<job>/artifacts` in it.
            execute: Runs a workflow.
            known_clients: Names of all enrolled clients, or None where they are not known here. May block.
            limits: Limits and waits.
            observer: Is told what jobs do.
        """
        self._store = store
        self._sessions = sessions
        self._make_exchange = make_exchange
        self._folder = folder
        self.uploads = Uploads(folder / "uploads")
        """Files that jobs name by their SHA-256."""
        self._execute = execute
        self._book = ClientBook(store, sessions, known_clients)
        self._limits, self._observer = limits or RunLimits(), observer or Unobserved()
        self.queue = JobQueue(sessions, jobs_per_client=self._limits.jobs_per_client)
        self._active = self.queue.active
        self._group: asyncio.TaskGroup | None = None
        self._draining = False
        self._wake = asyncio.Event()
        self._reports = asyncio.Semaphore(1)
        self._shelf = ArtifactShelf()
        self._started_at = time.monotonic()
        self.ready = asyncio.Event()
        """Set once the jobs of the last life go on."""

    async def run(self) -> None:
        """Resume what was under way, then run jobs until cancelled. On cancellation jobs stop where they are."""
        self._started_at = time.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                await self._book.load()
                for stored in await self._store.unfinished_jobs():
                    await self._take_up(stored)
                group.create_task(self._book.follow(self._wake.set))
                self.ready.set()
                while True:
                    self._wake.clear()
                    self._schedule()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(1.0):  # waits run out by the clock
                            await self._wake.wait()
        finally:
            self._group = None
            self.drain()

    async def finish_rounds(self, grace_s: float) -> None:
        """The coordinator is about to stop: take and start no more jobs, and let each that runs close its round.

        A job stops behind the checkpoint of its round, or ends. Those that wait for clients or for the disk are not
        waited for; they, and rounds that take longer than `grace_s` seconds, go on from the checkpoint before.
        """
        self._draining = True
        for active in self._active.values():
            active.stops = True
        end = time.monotonic() + grace_s
        # Looked at, not waited for: a job stops being busy by parking, ending, or waiting for clients or the disk.
        while (left := [j for j, active in self._active.items() if active.busy]) and time.monotonic() < end:  # noqa: ASYNC110
            await asyncio.sleep(_DRAIN_LOOK_S)
        if left:
            log.warning("rounds cut short, to be done again", jobs=left)

    def drain(self) -> None:
        """The coordinator stops: take no more jobs, and let the watchers go."""
        self._draining = True
        for active in self._active.values():
            active.history.end(UnavailableError("the coordinator is shutting down; the job goes on when it is back"))

    async def submit(
        self, job_toml: str, request_id: str, operator: str, submission: task_pb2.Submission | None = None
    ) -> JobInfo:
        """Check a job file and queue it.

        Args:
            job_toml: Text of the file.
            request_id: The same operator gets the same job for the same id; empty: always a new one.
            operator: Who submits, from the certificate.
            submission: `job_toml` under the operator's signature, which was checked; None: it is not signed. One that
                comes again is the same job.

        Raises:
            ConfigError: The file is wrong; or the request id was used for another file.
            UnknownClientError: It names a client that is not enrolled.
            BusyError: Too many jobs are queued.
        """
        if len(job_toml.encode()) > MAX_FILE_BYTES:
            raise ConfigError(f"job file: more than {MAX_FILE_BYTES} bytes; a job file holds settings, not data")
        if len(request_id) > 128:
            raise ConfigError("request id: more than 128 characters")
        file = await asyncio.to_thread(parse_usable, job_toml, "at the coordinator, job file")
        await self._book.refuse_strangers(file.cohort.clients or ())
        await asyncio.to_thread(self.uploads.check, file)
        if not self._limits.foreign_states:
            await asyncio.to_thread(refuse_made_up, file, self.uploads.read, self._folder / "jobs")
        if self._draining:
            raise UnavailableError("the coordinator is shutting down; submit again when it is back")
        if len(self._active) >= MAX_LIVE_JOBS:
            raise BusyError(f"{MAX_LIVE_JOBS} jobs are queued or running; submit again when some are over")
        sha256 = secrets.token_bytes(32) if submission is None else sha256_of(submission)
        new = JobInfo(
            job_id=signed_job_id(file.name, sha256),
            name=file.name,
            method=file.method.name,
            state=JobState.QUEUED,
            submitted_by=operator,
            submitted_at=datetime.now(UTC),
            num_rounds=method_of(file.method).rounds(file.method),
            clients=tuple(sorted(file.cohort.clients or ())),
            job_toml=job_toml,
            settings=file.plan(),
            submission_sha256="" if submission is None else sha256.hex(),
        )
        info, is_new = await self._store.submit(new, request_id, submission)
        if not is_new:
            if info.job_toml != job_toml:
                raise ConfigError(f"request id {request_id!r} was used for another job file; use a new one")
            return await self.get(info.job_id)
        history = History(self._store, info.job_id, kept_updates=self._limits.kept_updates)
        active = ActiveJob(info, file, history, self._observer)
        active.history.note(JobEvent(EventKind.STATE, message=f"queued by {operator}"))
        self._active[info.job_id] = active
        self._wake.set()
        log.info("job queued", job_id=info.job_id, method=info.method, operator=operator)
        return info

    async def sign(self, job_id: str, submission: task_pb2.Submission, operator: str) -> JobInfo:
        """See `kernfed_server.jobs.tasks.signing.sign_late`; a job that is over raises JobError too."""
        active = self._active.get((await self.get(job_id)).job_id)
        if active is None or active.finishing:
            raise JobError(f"job {job_id} is over; submit it again with `kernfed job submit`, which signs it")
        return await sign_late(active, submission, operator, self._store, self._sessions)

    async def cancel(self, job_id: str, operator: str) -> JobInfo:
        """Stop a job, and wait until it has stopped; of a cancelled job, say so again.

        A job's name stands for the one job of that name that is not over, and otherwise for the newest.

        Raises:
            UnknownJobError: There is none, or several of that name are not over.
            JobError: It is over.
            BusyError: It does not stop in time; it will.
        """
        info = await self.get(job_id)
        if job_id != info.job_id and job_id == info.name:
            unfinished = [active.info for active in self._active.values() if active.info.name == job_id]
            if len(unfinished) > 1:
                ids = listed([job.job_id for job in unfinished])
                raise UnknownJobError(f"{len(unfinished)} jobs named {job_id!r} are not over; give one's id: {ids}")
            info = next(iter(unfinished), info)
        active = self._active.get(info.job_id)
        if active is None:
            info = await self.get(info.job_id)
            if info.state is not JobState.CANCELLED:
                raise JobError(f"job {info.job_id} is over ({info.state}); there is nothing to cancel")
            return info
        if not active.finishing and not active.cancelled_by:
            if active.task is None:
                self._start_task(active)
            elif active.begun:
                active.task.cancel()
            active.cancelled_by = operator
            try:
                await self._store.note_action(operator, "cancel", info.job_id)
            except UnavailableError as err:  # a full disk keeps nobody from cancelling; the last event says who did
                log.error("action not noted", operator=operator, action="cancel", job_id=info.job_id, error=str(err))
        try:
            async with asyncio.timeout(self._limits.cancel_timeout_s):
                await active.done.wait()
        except TimeoutError:
            raise BusyError(f"job {info.job_id} is still stopping; `kernfed job show` tells when it has") from None
        return active.info

    async def get(self, job_id: str) -> JobInfo:
        """A job by its id or a unique beginning of it.

        Raises:
            UnknownJobError: There is none, or several.
        """
        if (active := self._active.get(job_id)) is not None:
            return active.info
        info = await self._store.find_job(job_id)
        return self._active[info.job_id].info if info.job_id in self._active else info

    async def list_jobs(self, page_size: int, page_token: str) -> JobPage:
        """Jobs, newest first, without their files.

        Raises:
            ConfigError: The page token is not one.
        """
        if page_token and not (page_token.isascii() and page_token.isdigit() and len(page_token) < 19):
            raise ConfigError(f"page token {page_token[:40]!r} is not one that the coordinator gave")
        page = await self._store.list_jobs(min(page_size or 100, 1000), before=int(page_token) if page_token else None)
        live = {job_id: active.info for job_id, active in self._active.items()}
        jobs = tuple(live.get(info.job_id, info).in_list() for info in page.jobs)
        return replace(page, jobs=jobs)

    async def watch(self, job_id: str, from_sequence: int = 1) -> AsyncGenerator[Batch, None]:
        """The job, its events from one on, the job, events to come, and at the end the job again; some at a time.

        A caller that only wants the events so far stops at the second update without an event. One that asks from a
        number that a live job has not reached, as before the coordinator was restored from a backup, gets what comes.

        Raises:
            UnknownJobError: There is none.
            UnavailableError: The coordinator stops.
        """
        info = await self.get(job_id)
        seen = min(max(from_sequence, 1), MAX_SEQUENCE) - 1
        active = self._active.get(info.job_id)
        if active is None:
            batches = watch_ended(await self.get(info.job_id), self._store, seen)
        else:
            batches = watch_live(active, self._store, seen)
        async with contextlib.aclosing(batches):
            async for batch in batches:
                yield batch

    async def artifacts(self, job_id: str) -> list[ArtifactInfo]:
        """Files that a job left, sorted by name."""
        info = await self.get(job_id)
        return await self._shelf.listing(self.artifact_folder(info.job_id))

    async def find_artifact(self, job_id: str, name: str) -> tuple[ArtifactInfo, Path]:
        """One of them, and where it lies.

        Raises:
            UnknownArtifactError: There is none of this name.
        """
        info = await self.get(job_id)
        return await self._shelf.find(self.artifact_folder(info.job_id), name)

    def artifact_folder(self, job_id: str) -> Path:
        """Folder of a job's artifacts; `job_id` is one that the coordinator made."""
        return self._folder / "jobs" / job_id / "artifacts"

    async def clients(self) -> list[ClientInfo]:
        """Clients that are connected, were seen, or are enrolled; sorted by name."""
        return await self._book.listing(self.queue.running())

    async def _take_up(self, stored: StoredJob) -> None:
        """Go on with a job of an earlier life."""
        info = stored.info
        history = History(self._store, info.job_id, stored.last_sequence, kept_updates=self._limits.kept_updates)
        try:
            file = parse_job(info.job_toml, f"file of job {info.job_id}", accepted=True)
        except ConfigError as err:  # another release wrote it
            log.error("job cannot go on", job_id=info.job_id, error=str(err))
            history.note(JobEvent(EventKind.STATE, info.round_num, message=str(err)))
            failed = replace(info, state=JobState.FAILED, finished_at=datetime.now(UTC), error_reason=err.reason)
            await self._store.update_job(replace(failed, error_message=str(err)))
            return
        info = info if info.settings else replace(info, settings=file.plan())  # a release before kept none
        active = self._active[info.job_id] = ActiveJob(info, file, history, self._observer)
        if info.state is JobState.RUNNING:
            active.history.note(JobEvent(EventKind.NOTE, info.round_num, message="the coordinator was restarted"))
            log.info("job resumed", job_id=info.job_id, round_num=info.round_num)
            self._start_task(active)

    def _schedule(self) -> None:
        if self._draining:
            return
        now = time.monotonic()
        settled = self._book.all_back() or now - self._started_at >= self._limits.settle_s
        for active in self.queue.ready(now, settled=settled):
            self._start_task(active)

    def _start_task(self, active: ActiveJob) -> None:
        if self._group is None:
            raise UnavailableError("the coordinator is starting or shutting down; try again in a moment")
        active.task = self._group.create_task(self._work(active), name=f"job {active.info.job_id}")

    async def _work(self, active: ActiveJob) -> None:
        with structlog.contextvars.bound_contextvars(job_id=active.info.job_id):
            active.begun = True
            try:
                exchange = self._make_exchange(active.info, await submission_of(active, self._store))
                candidates = functools.partial(self.queue.candidates, active)
                outcome = await run_job(active, self._store, exchange, self._execute, candidates)
                active.finishing = True
                self._sessions.end_job(active.info.job_id, outcome.state.value)
                self._wake.set()  # its clients are free
                folder = self.artifact_folder(active.info.job_id)
                await finish_job(
                    active,
                    outcome,
                    self._store,
                    folder,
                    cache=self._folder / "cache" / "matplotlib",
                    report_timeout_s=self._limits.report_timeout_s,
                    reports=self._reports,
                    devices_of=self._book.devices,
                )
                active.history.end()
                self._observer.over(active.info)
            except Exception as err:
                # The store or the disk failed: the job is taken up again when the coordinator starts anew.
                log.exception("job cannot be ended")
                active.history.end(err if isinstance(err, UnavailableError) else UnavailableError("internal error"))
            self._active.pop(active.info.job_id, None)
            active.done.set()
            self._wake.set()
