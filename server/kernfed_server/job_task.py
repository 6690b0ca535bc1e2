"""One job's task: its workflow from a checkpoint to an outcome, then its artifacts and its final state."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import structlog

from kernfed.cohort import Cohort, Exchange, Quorum
from kernfed.errors import JobCancelledError, KernfedError, QuorumNotMetError
from kernfed.events import EventKind, JobEvent, JobState
from kernfed.job_file import JobFile
from kernfed.job_info import JobInfo, JobUpdate, NumberedEvent
from kernfed.status import INTERNAL_TEXT
from kernfed_server.artifacts import CHECKPOINT, KEPT_KINDS, Model, move_into_place, render_report, write_folder
from kernfed_server.diverged import DivergedRunError
from kernfed_server.history import History
from kernfed_server.run import Checkpoint, Run
from kernfed_server.store import Store

log = structlog.get_logger(__name__)

_PAGE = 5000


@dataclass(eq=False)
class ActiveJob:
    """A job that is not over."""

    info: JobInfo
    file: JobFile
    history: History
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
    answers: dict[str, dict[str, int]] = field(default_factory=dict)
    """Client to step to number of answers."""
    run: Run | None = None
    """What its workflow records; None before it has begun."""
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def holds_clients(self) -> bool:
        """Whether its clients work for it."""
        return self.task is not None and not self.finishing and not self.gave_up

    @property
    def journal(self) -> EventSink:
        """Where its events go."""
        return EventSink(self)


@dataclass(frozen=True, slots=True)
class EventSink:
    """Keeps a job's present state in step with its events."""

    active: ActiveJob

    def event(self, event: JobEvent) -> None:
        """Note an event. Never blocks."""
        active = self.active
        if event.kind is EventKind.CLIENT_ANSWERED:
            steps = active.answers.setdefault(event.client, {})
            steps[event.step] = steps.get(event.step, 0) + 1
        elif event.kind is EventKind.ROUND_CLOSED:
            active.info = replace(active.info, round_num=event.round_num)
        elif event.kind is EventKind.WAITING:
            active.info = replace(active.info, waiting_for=event.message)
        active.history.note(event)


@dataclass(frozen=True, slots=True)
class StoreJournal:
    """`kernfed_server.run.Journal` of a job in the coordinator's store."""

    active: ActiveJob
    store: Store

    def event(self, event: JobEvent) -> None:
        """See `Journal.event`."""
        self.active.journal.event(event)

    async def checkpoint(self, checkpoint: Checkpoint) -> None:
        """See `Journal.checkpoint`."""
        await self.store.save_checkpoint(self.active.info, checkpoint, self.active.answers)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended."""

    state: JobState
    message: str
    model: Model | None = None
    reason: str = ""


async def run_job(
    active: ActiveJob,
    store: Store,
    exchange: Exchange,
    execute: Callable[[JobFile, Cohort, Run], Awaitable[Model | None]],
) -> Outcome:
    """Run a job's workflow to its end; whatever happens to it becomes the outcome.

    Raises:
        asyncio.CancelledError: The coordinator stops; the job goes on in its next life.
    """
    if active.cancelled_by:
        return _cancelled(active)
    if active.gave_up:
        return _failed(QuorumNotMetError(active.gave_up))
    try:
        model = await _execute(active, store, exchange, execute)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if not active.cancelled_by or task is None:
            raise
        task.uncancel()
        return _cancelled(active)
    except JobCancelledError as err:
        return Outcome(JobState.CANCELLED, str(err))
    except KernfedError as err:
        log.warning("job failed", reason=err.reason, error=str(err))
        return _failed(err, err.model if isinstance(err, DivergedRunError) else None)
    except Exception:
        log.exception("job failed unexpectedly")
        return Outcome(JobState.FAILED, INTERNAL_TEXT, reason=KernfedError.reason)
    rounds = f" after round {active.info.round_num}" if active.info.round_num else ""
    return Outcome(JobState.SUCCEEDED, f"succeeded{rounds}", model)


async def finish_job(
    active: ActiveJob,
    outcome: Outcome,
    store: Store,
    folder: Path,
    *,
    cache: Path,
    report_timeout_s: float,
    reports: asyncio.Semaphore,
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
    """
    info = replace(
        active.info,
        state=outcome.state,
        finished_at=datetime.now(UTC),
        error_reason=outcome.reason if outcome.state is JobState.FAILED else "",
        error_message=outcome.message if outcome.state is JobState.FAILED else "",
        waiting_for="",
    )
    events: list[NumberedEvent] = []
    while page := await store.events(info.job_id, events[-1].sequence + 1 if events else 1, _PAGE, KEPT_KINDS):
        events += page
    made = folder.with_name(folder.name + ".new")
    await asyncio.to_thread(shutil.rmtree, made, ignore_errors=True)
    await asyncio.to_thread(write_folder, made, info, active.file, events, active.answers, outcome.model)
    if outcome.model is None and outcome.state is not JobState.SUCCEEDED:
        await store.drop_checkpoint(info.job_id, keep_as=made / CHECKPOINT)
    async with reports:
        fault = await render_report(made, cache, report_timeout_s)
    if fault:
        log.error("report not written", error=fault)
        active.history.note(JobEvent(EventKind.NOTE, info.round_num, message="report.html could not be written"))
    await asyncio.to_thread(move_into_place, made, folder)
    event = active.history.store(JobEvent(EventKind.STATE, info.round_num, message=outcome.message))
    await store.update_job(info)
    active.info = info
    active.history.tell(JobUpdate(event, info))
    log.info("job over", state=info.state.value, round_num=info.round_num, reason=info.error_reason or None)
    await store.drop_checkpoint(info.job_id)


async def _execute(
    active: ActiveJob,
    store: Store,
    exchange: Exchange,
    execute: Callable[[JobFile, Cohort, Run], Awaitable[Model | None]],
) -> Model | None:
    file = active.file
    resumption = await store.load_checkpoint(active.info.job_id)
    if resumption is not None:
        active.answers = {client: dict(steps) for client, steps in resumption.answers.items()}
        active.info = replace(active.info, round_num=resumption.checkpoint.round_num)
    if active.info.state is JobState.QUEUED:
        info = replace(active.info, state=JobState.RUNNING, started_at=datetime.now(UTC), waiting_for="")
        event = active.history.store(JobEvent(EventKind.STATE, message=f"running on {', '.join(info.clients)}"))
        active.info = info
        await store.update_job(info)
        active.history.tell(JobUpdate(event, info))
    journal = StoreJournal(active, store)
    section = file.cohort
    cohort = Cohort(
        exchange,
        active.info.clients,
        job_id=active.info.job_id,
        quorum=Quorum(section.min_clients, section.min_fraction, section.deadline_s, section.wait_s),
        float_bits=64 if file.precision == "float64" else 32,
        observe=journal.event,
    )
    active.run = Run(cohort, journal, resumption.checkpoint if resumption else None, file.evaluate_every)
    return await execute(file, cohort, active.run)


def _cancelled(active: ActiveJob) -> Outcome:
    model = active.run.kept if active.run is not None else None
    return Outcome(JobState.CANCELLED, f"cancelled by {active.cancelled_by}", model)


def _failed(err: KernfedError, last_good: Model | None = None) -> Outcome:
    return Outcome(JobState.FAILED, str(err), last_good, err.reason)
