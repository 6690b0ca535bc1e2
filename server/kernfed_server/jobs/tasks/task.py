"""One job's task: its workflow from a checkpoint to an outcome, then its artifacts and its final state."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import structlog

from kernfed import files
from kernfed.artifact_names import CHECKPOINT
from kernfed.errors import (
    DivergedError,
    JobCancelledError,
    JobError,
    KernfedError,
    QuorumNotMetError,
    UnavailableError,
)
from kernfed.federation.cohort import Cohort
from kernfed.federation.events import EventKind, JobEvent, JobState
from kernfed.federation.exchange import Exchange
from kernfed.jobs.info import JobInfo, JobUpdate, NumberedEvent, split_platform
from kernfed.jobs.job_file import JobFile
from kernfed.methods.base import Begins
from kernfed.methods.finding import BegunFinding
from kernfed.methods.registry import method_of
from kernfed.status import INTERNAL_TEXT
from kernfed.v1 import task_pb2
from kernfed_server.jobs.diverged import DivergedRunError
from kernfed_server.jobs.journal import Checkpoint, Observer, Unobserved
from kernfed_server.jobs.outcomes import Tally, count, count_answer, participation
from kernfed_server.jobs.run import Model, Run
from kernfed_server.keeping.artifacts import KEPT_KINDS, render_report, without_report, write_folder
from kernfed_server.keeping.disk import until_kept
from kernfed_server.keeping.history import History
from kernfed_server.keeping.store import Store

log = structlog.get_logger(__name__)

_PAGE = 5000
DIFFERENT = (
    "the clients compute on different platforms, which job.json names; on others the last bits of the result may differ"
)


@dataclass(eq=False)
class ActiveJob:
    """A job that is not over."""

    info: JobInfo
    file: JobFile
    history: History
    observer: Observer = field(default_factory=Unobserved)
    task: asyncio.Task[None] | None = None
    cancelled_by: str = ""
    gave_up: str = ""
    """Why it fails before it has started."""
    begun: bool = False
    """Its task has come to life; one cancelled before would vanish without a word."""
    finishing: bool = False
    """Its workflow is over; artifacts are written."""
    waiting_since: float | None = None
    """When it began to wait for clients to connect."""
    next_wait_told: float = 0.0
    """When its history is told again for which jobs it waits, on the monotonic clock."""
    wait_told_after_s: float = 30.0
    """How long after the last time; doubles each time."""
    answers: dict[str, dict[str, int]] = field(default_factory=dict)
    """Client to step to number of answers."""
    tallies: dict[str, Tally] = field(default_factory=dict)
    """Client to what it did since the last checkpoint."""
    stops: bool = False
    """The coordinator stops: the round that is open is the last one of this life."""
    parked: asyncio.Event = field(default_factory=asyncio.Event)
    """It has stopped behind its last round."""
    run: Run | None = None
    """Record of its workflow; None before it has begun."""
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def holds_clients(self) -> bool:
        """Whether its clients work for it."""
        return self.task is not None and not self.finishing and not self.gave_up

    @property
    def busy(self) -> bool:
        """Whether it works on a round or its artifacts, and is not just waiting."""
        waits = self.parked.is_set() or self.done.is_set() or bool(self.info.waiting_for)
        return self.task is not None and not waits

    @property
    def journal(self) -> EventSink:
        """Sink of its events."""
        return EventSink(self)


@dataclass(frozen=True, slots=True)
class EventSink:
    """Keeps a job's present state in step with its events."""

    active: ActiveJob

    def event(self, event: JobEvent) -> None:
        """Note an event. Never blocks."""
        active = self.active
        count(active.tallies, event)
        count_answer(active.answers, event)
        if event.kind is EventKind.ROUND_CLOSED:
            active.info = replace(active.info, round_num=event.round_num)
        elif event.kind is EventKind.CLIENT_JOINED:
            active.info = replace(active.info, clients=tuple(sorted({*active.info.clients, event.client})))
        elif event.kind is EventKind.WAITING:
            active.info = replace(active.info, waiting_for=event.message)
        elif event.kind is EventKind.FINDING and event.message == BegunFinding.name and event.finding:
            begun = BegunFinding.from_json(event.finding)
            active.info = replace(active.info, settings=begun.put_into(active.info.settings))
        active.history.note(event)
        active.observer.event(active.info, event)


@dataclass(frozen=True, slots=True)
class StoreJournal:
    """`kernfed_server.jobs.run.Journal` of a job in the coordinator's store."""

    active: ActiveJob
    store: Store

    def event(self, event: JobEvent) -> None:
        """See `Journal.event`."""
        self.active.journal.event(event)

    async def checkpoint(self, checkpoint: Checkpoint) -> None:
        """See `Journal.checkpoint`; waits for a disk that is full, and is the end of a job whose coordinator stops."""
        active, began = self.active, time.monotonic()
        tallies = dict(active.tallies) if checkpoint.closes else {}
        await until_kept(
            lambda: self.store.save_checkpoint(active.info, checkpoint, active.answers, tallies),
            f"the checkpoint of round {checkpoint.round_num}",
            active.journal,
            limit_s=active.file.cohort.wait_s,
            round_num=checkpoint.round_num,
        )
        active.observer.checkpointed(time.monotonic() - began)
        if checkpoint.closes:
            active.tallies.clear()
        if active.stops:
            note = f"the coordinator stops; the job goes on behind round {checkpoint.round_num} when it is back"
            self.event(JobEvent(EventKind.NOTE, checkpoint.round_num, message=note))
            active.parked.set()
            log.info("job parked", round_num=checkpoint.round_num)
            await asyncio.Event().wait()  # until the coordinator, which waits for `parked`, cancels the task


@dataclass(frozen=True, slots=True)
class Outcome:
    """End of a job."""

    state: JobState
    message: str
    model: Model | None = None
    reason: str = ""


async def submission_of(active: ActiveJob, store: Store) -> task_pb2.Submission | None:
    """What the operator signed; waits for a store that cannot be read. None too where the job is cancelled then."""
    limit_s = active.file.cohort.wait_s
    read = functools.partial(store.submission, active.info.job_id)
    try:
        return await until_kept(read, "the job's submission", active.journal, limit_s=limit_s, done="read")
    except asyncio.CancelledError:
        if not _is_cancelled(active):
            raise
        return None  # `run_job` ends it


async def run_job(
    active: ActiveJob,
    store: Store,
    exchange: Exchange,
    execute: Callable[[JobFile, Cohort, Run], Awaitable[Model | None]],
    candidates: Callable[[], Iterable[str]] = tuple,
) -> Outcome:
    """Run a job's workflow to its end; whatever happens to it becomes the outcome.

    Args:
        active: The job.
        store: Where it is kept.
        exchange: Reaches its clients.
        execute: Runs a workflow.
        candidates: Names of the clients that may join it now.

    Raises:
        asyncio.CancelledError: The coordinator stops; the job goes on in its next life.
    """
    if active.cancelled_by:
        return _cancelled(active)
    if active.gave_up:
        return _failed(QuorumNotMetError(active.gave_up))
    try:
        model = await _execute(active, store, exchange, execute, candidates)
    except asyncio.CancelledError:
        if not _is_cancelled(active):
            raise
        return _cancelled(active)
    except JobCancelledError as err:
        return Outcome(JobState.CANCELLED, str(err))
    except KernfedError as err:
        log.warning("job failed", reason=err.reason, error=str(err))
        if isinstance(err, DivergedError):  # what is kept may have run away
            return _failed(err, err.model if isinstance(err, DivergedRunError) else None)
        return _failed(err, _kept(active))
    except Exception:
        log.exception("job failed unexpectedly")
        return Outcome(JobState.FAILED, INTERNAL_TEXT, _kept(active), KernfedError.reason)
    rounds = f" after round {active.info.round_num}" if active.info.round_num else ""
    return Outcome(JobState.SUCCEEDED, f"succeeded{rounds}", model)


def _is_cancelled(active: ActiveJob) -> bool:
    """Whether an operator cancelled the job, whose task then goes on; else the coordinator stops, and it is over."""
    task = asyncio.current_task()
    if not active.cancelled_by or task is None:
        return False
    task.uncancel()
    return True


async def finish_job(
    active: ActiveJob,
    outcome: Outcome,
    store: Store,
    folder: Path,
    *,
    cache: Path,
    report_timeout_s: float,
    reports: asyncio.Semaphore,
    devices_of: Callable[[Iterable[str]], Awaitable[Mapping[str, str]]],
) -> None:
    """Write the artifacts, then tell that the job is over.

    Args:
        active: The job.
        outcome: How it ended.
        store: Where its history is.
        folder: For the artifacts; appears whole.
        cache: For matplotlib's fonts.
        report_timeout_s: For `report.html`.
        reports: Limits how many reports are made at a time.
        devices_of: What clients compute on, as they reported.
    """
    info = replace(
        active.info,
        state=outcome.state,
        finished_at=datetime.now(UTC),
        error_reason=outcome.reason if outcome.state is JobState.FAILED else "",
        error_message=outcome.message if outcome.state is JobState.FAILED else "",
        waiting_for="",
    )
    made = folder.with_name(folder.name + files.NEW)

    said_platforms = False

    async def write() -> None:
        nonlocal said_platforms
        devices = await devices_of(info.clients)
        if _platforms_differ(devices) and not said_platforms:
            active.history.note(JobEvent(EventKind.NOTE, info.round_num, message=DIFFERENT))
            said_platforms = True
        events: list[NumberedEvent] = []
        while page := await store.events(info.job_id, events[-1].sequence + 1 if events else 1, _PAGE, KEPT_KINDS):
            events += page
        took_part = participation(await store.outcomes(info.job_id))
        await asyncio.to_thread(shutil.rmtree, made, ignore_errors=True)
        await asyncio.to_thread(
            write_folder, made, info, active.file, events, active.answers, outcome.model, took_part, devices
        )
        begins_another = method_of(active.file.method).begins is not Begins.NOTHING
        if begins_another or (outcome.model is None and outcome.state is not JobState.SUCCEEDED):
            try:
                await store.copy_checkpoint(info.job_id, made / CHECKPOINT)
            except JobError as err:
                active.history.note(JobEvent(EventKind.NOTE, info.round_num, message=f"no {CHECKPOINT} is left: {err}"))
        fault = ""
        if active.file.report:
            async with reports:
                fault = await render_report(made, cache, report_timeout_s)
        if files.says_full(fault):
            raise files.no_space()
        if fault:
            log.error("report not written", error=fault)
            active.history.note(JobEvent(EventKind.NOTE, info.round_num, message=without_report(fault, made)))
        await asyncio.to_thread(files.move_folder, made, folder, over=True)

    told, limit_s = active.journal, active.file.cohort.wait_s
    try:
        await until_kept(write, "the artifacts", told, limit_s=limit_s, round_num=info.round_num)
    except UnavailableError as err:
        outcome = _failed(err)
        info = replace(info, state=outcome.state, error_reason=outcome.reason, error_message=outcome.message)
    event = active.history.store(JobEvent(EventKind.STATE, info.round_num, message=outcome.message))
    await until_kept(lambda: store.update_job(info), "the job's end", told, limit_s=limit_s, round_num=info.round_num)
    active.info = info
    active.history.tell(JobUpdate(event, info))
    log.info("job over", state=info.state.value, round_num=info.round_num, reason=info.error_reason or None)
    with contextlib.suppress(UnavailableError):  # the next start of the coordinator removes it
        await store.drop_checkpoint(info.job_id)


def _platforms_differ(devices: Mapping[str, str]) -> bool:
    return len({platform for _, platform in map(split_platform, devices.values()) if platform}) > 1


async def _execute(
    active: ActiveJob,
    store: Store,
    exchange: Exchange,
    execute: Callable[[JobFile, Cohort, Run], Awaitable[Model | None]],
    candidates: Callable[[], Iterable[str]],
) -> Model | None:
    file = active.file
    limit_s = file.cohort.wait_s
    load = functools.partial(store.load_checkpoint, active.info.job_id)
    resumption = await until_kept(load, "the last checkpoint", active.journal, limit_s=limit_s, done="read")
    if resumption is not None:
        active.answers = {client: dict(steps) for client, steps in resumption.answers.items()}
        active.info = replace(active.info, round_num=resumption.checkpoint.round_num)
    if active.info.state is JobState.QUEUED:
        info = replace(active.info, state=JobState.RUNNING, started_at=datetime.now(UTC), waiting_for="")
        event = active.history.store(JobEvent(EventKind.STATE, message=f"running on {', '.join(info.clients)}"))
        active.info = info
        await until_kept(lambda: store.update_job(info), "the job's start", active.journal, limit_s=limit_s)
        active.history.tell(JobUpdate(event, info))
    journal = StoreJournal(active, store)
    section = file.cohort
    cohort = Cohort(
        exchange,
        active.info.clients,
        job_id=active.info.job_id,
        quorum=section.quorum,
        float_bits=file.float_bits,
        observe=journal.event,
        candidates=candidates,
    )
    active.run = Run(cohort, journal, resumption.checkpoint if resumption else None, file.evaluate_every)
    return await execute(file, cohort, active.run)


def _cancelled(active: ActiveJob) -> Outcome:
    return Outcome(JobState.CANCELLED, f"cancelled by {active.cancelled_by}", _kept(active))


def _kept(active: ActiveJob) -> Model | None:
    return active.run.kept if active.run is not None else None


def _failed(err: KernfedError, last_good: Model | None = None) -> Outcome:
    return Outcome(JobState.FAILED, str(err), last_good, err.reason)
