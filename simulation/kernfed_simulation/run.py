"""One simulated job: run it, compare with the pooled reference, and leave the same files as a coordinator does."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from kernfed import files
from kernfed.artifact_names import CHECKPOINT
from kernfed.errors import DataError, KernfedError, NumericalError
from kernfed.federation.cohort import Cohort
from kernfed.federation.events import EventKind, JobEvent, JobState, RoundMetrics, Scores
from kernfed.federation.exchange import Exchange
from kernfed.federation.in_process import InProcessExchange
from kernfed.jobs.info import JobInfo, NumberedEvent
from kernfed.jobs.job_file import JobFile
from kernfed.methods.base import Begins
from kernfed.methods.registry import method_of
from kernfed.models.beside import ModelsBeside
from kernfed.models.global_model import GlobalModel
from kernfed_client.data.local_job import LocalJob
from kernfed_server.jobs.diverged import DivergedRunError
from kernfed_server.jobs.execute import execute
from kernfed_server.jobs.journal import Checkpoint, MemoryJournal
from kernfed_server.jobs.outcomes import count_answer
from kernfed_server.jobs.run import Model, Run
from kernfed_server.jobs.start.rules import resolved_settings
from kernfed_server.keeping.artifacts import KEPT_KINDS, write_folder
from kernfed_server.keeping.checkpoints import write_state
from kernfed_simulation.central import central_models
from kernfed_simulation.engine.pool import WorkerPool
from kernfed_simulation.engine.worker import Steps
from kernfed_simulation.federation import JOB_ID, OPERATOR, open_cohort


@dataclass(frozen=True, slots=True)
class Simulated:
    """Results of a simulated job."""

    info: JobInfo
    file: JobFile
    model: GlobalModel | None
    """Of a diverged run: the last good one."""
    events: tuple[NumberedEvent, ...]
    final: RoundMetrics
    """After the last round measured, with the pooled reference (`central`)."""
    error: KernfedError | None
    left: Model | None = None
    """Whatever the method leaves at the coordinator: `model`, or a model of another kind."""


@dataclass
class _Journal(MemoryJournal):
    """Keeps events with their times, counts answers, and tells a listener."""

    listen: Callable[[JobEvent], None] = lambda _: None
    numbered: list[NumberedEvent] = field(default_factory=list)
    answers: dict[str, dict[str, int]] = field(default_factory=dict)

    def event(self, event: JobEvent) -> None:
        """See `Journal.event`."""
        super().event(event)
        self.numbered.append(NumberedEvent(len(self.numbered) + 1, datetime.now(UTC), event))
        count_answer(self.answers, event)
        self.listen(event)


def simulate(
    job: JobFile,
    jobs: Mapping[str, LocalJob],
    *,
    text: str = "",
    files: Mapping[str, bytes] | None = None,
    out: Path | None = None,
    resumed: Checkpoint | None = None,
    listen: Callable[[JobEvent], None] = lambda _: None,
    workers: int = 0,
) -> Simulated:
    """Run a job on clients in this process.

    Args:
        job: What to run.
        jobs: The clients; see `kernfed_simulation.federation`.
        text: The job file's text, kept with the results.
        files: By SHA-256, those that the job names; see `kernfed.jobs.named_files.attach_files`.
        out: Folder for the results, made or replaced; unset: nothing is written.
        resumed: Where an earlier run had come to.
        listen: Told of every event.
        workers: Processes in which the clients compute, with the same bits; 0: in this one.

    Returns:
        What came of it; a run that failed tells its error there, after its files are written.

    Raises:
        ConfigError: Job and clients do not fit.
    """
    with contextlib.ExitStack() as stack:
        pool: WorkerPool | None = None

        def exchange(steps: Steps, own: Mapping[str, LocalJob]) -> Exchange:
            nonlocal pool
            if not workers:
                return InProcessExchange(steps, own)
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="kernfed-workers-")))
            pool = stack.enter_context(WorkerPool(steps, own, workers, folder))
            return pool

        journal = _Journal(listen=listen)
        cohort = open_cohort(job, jobs, journal.event, exchange)

        def set_up() -> None:
            if pool is not None:
                pool.set_up_here()

        return _simulated(job, jobs, cohort, journal, set_up, text, files, out, resumed)


def _simulated(
    job: JobFile,
    jobs: Mapping[str, LocalJob],
    cohort: Cohort,
    journal: _Journal,
    set_up: Callable[[], object],
    text: str,
    files: Mapping[str, bytes] | None,
    out: Path | None,
    resumed: Checkpoint | None,
) -> Simulated:
    """The rest of `simulate`; `set_up` prepares the clients' rows here for the pooled reference."""
    info = JobInfo(
        job_id=JOB_ID,
        name=job.name,
        method=job.method.name,
        state=JobState.RUNNING,
        submitted_by=OPERATOR,
        submitted_at=datetime.now(UTC),
        started_at=datetime.now(UTC),
        num_rounds=method_of(job.method).rounds(job.method),
        clients=cohort.clients,
        job_toml=text,
    )
    run = Run(cohort, journal, resumed, job.evaluate_every)
    error: KernfedError | None = None
    model: Model | None = None
    try:
        model = asyncio.run(execute(job, cohort, run, read_file=(files or {}).__getitem__))
    except DivergedRunError as err:
        error, model = err, err.model
    except KernfedError as err:
        error = err
    closed = [e.event for e in journal.numbered if e.event.kind is EventKind.ROUND_CLOSED]
    measured = [e.metrics for e in closed if e.metrics is not None and e.metrics.pooled]
    final = measured[-1] if measured else RoundMetrics()
    if job.data is not None and (error is None or model is not None):
        left = {name: jobs[name] for name in cohort.clients}
        try:
            measure = central_models().get(job.method.name)
            if measure is not None:
                set_up()
            if measure is not None and not any(client.num_test_rows for client in left.values()):
                measure = None  # there are no rows to measure a reference on
            settings = resolved_settings(job.method, run.resolved)
            final = final.merged(measure(left, settings)) if measure else final
        except (NumericalError, DataError) as err:
            run.note(f"no pooled reference: {err}")
    last = closed[-1].round_num if closed else 0
    if closed:
        event = JobEvent(EventKind.ROUND_CLOSED, last, metrics=replace(final, training=_training(closed[-1])))
        journal.numbered.append(NumberedEvent(len(journal.numbered) + 1, datetime.now(UTC), event))
    info = replace(
        info,
        state=JobState.FAILED if error else JobState.SUCCEEDED,
        finished_at=datetime.now(UTC),
        round_num=last,
        error_reason=error.reason if error else "",
        error_message=str(error) if error else "",
    )
    kept = tuple(e for e in journal.numbered if e.event.kind in KEPT_KINDS)
    if out is not None:
        _write(out, info, job, kept, journal, model)
    delivered = model.model if isinstance(model, ModelsBeside) else model
    known = delivered if isinstance(delivered, GlobalModel) else None
    return Simulated(info, job, known, kept, final, error, left=delivered)


def _training(event: JobEvent) -> Scores:
    return event.metrics.training if event.metrics else {}


def _write(
    out: Path,
    info: JobInfo,
    job: JobFile,
    events: tuple[NumberedEvent, ...],
    journal: _Journal,
    model: Model | None,
) -> None:
    made = out.with_name(out.name + files.NEW)
    if made.exists():
        shutil.rmtree(made)
    write_folder(made, info, job, events, journal.answers, model)
    if journal.last is not None and method_of(job.method).begins is not Begins.NOTHING:
        write_state(made / CHECKPOINT, journal.last.state)
    files.move_folder(made, out, over=True)
