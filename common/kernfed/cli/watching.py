"""`kernfed job watch`: a live display on a terminal, plain lines in a pipe, JSON lines for programs."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kernfed.cli.job_text import Absences, clock, event_line, rounds_text, scores_text, update_json
from kernfed.errors import WireError
from kernfed.federation.events import EventKind, JobState, RoundMetrics
from kernfed.jobs.info import JobInfo, JobUpdate, NumberedEvent
from kernfed.wire.operator_client import OperatorClient
from kernfed.wording import clean, listed

QUIET_ROUNDS_S = 1.0
"""Rounds without metrics get a line at most this often."""
_KEPT_LINES = 8
_STEPS_TOLD = 20
"""Steps before round 1 that get a line in plain text; a job may have many."""


@dataclass
class Progress:
    """Known facts of a watched job."""

    job: JobInfo | None = None
    step: str = ""
    answered: dict[str, None] = field(default_factory=dict)
    """Clients that answered the present step, in the order in which they did."""
    metrics: RoundMetrics = field(default_factory=RoundMetrics)
    """The last that were measured."""
    waiting: str = ""
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))
    """Notes and failures."""
    absences: Absences = field(default_factory=Absences)

    def take(self, update: JobUpdate) -> None:
        """Learn of an update."""
        if update.job is not None:
            self.job = update.job
            self.waiting = update.job.waiting_for
        if update.event is None:
            return
        event = update.event.event
        match event.kind:
            case EventKind.STEP_ASKED:
                self.step, self.answered = event.step, {}
            case EventKind.CLIENT_ANSWERED:
                self.answered[event.client] = None
            case EventKind.WAITING:
                self.waiting = event.message
            case EventKind.ROUND_CLOSED:
                self._close_round(update.event)
            case EventKind.NOTE | EventKind.CLIENT_JOINED | EventKind.CLIENT_FAILED | EventKind.CLIENT_MISSING:
                if self.absences.tells(event):
                    self.lines.append(event_line(update.event) or "")

    def _close_round(self, numbered: NumberedEvent) -> None:
        event = numbered.event
        if self.job is not None:
            self.job = replace(self.job, round_num=event.round_num)
        if event.metrics is not None and (event.metrics.pooled or event.metrics.training):
            pooled = event.metrics.pooled or self.metrics.pooled
            self.metrics = RoundMetrics(pooled, event.metrics.clients, event.metrics.training)


async def show_job(operator: OperatorClient, job_id: str, *, as_json: bool) -> JobInfo:
    """Show a job until it is over, in the way that fits stdout; returns it as it ended."""
    updates = operator.watch(job_id, on_gap=lambda why: typer.echo(f"line lost, trying again: {why}", err=True))
    if as_json:
        return await _json_lines(updates)
    if sys.stdout.isatty():
        return await _live(updates)
    return await plain_lines(updates)


async def plain_lines(updates: AsyncIterator[JobUpdate]) -> JobInfo:
    """One line per event of interest, as they come."""
    job: JobInfo | None = None
    printed, absences, steps_told = -QUIET_ROUNDS_S, Absences(), 0
    async for update in updates:
        if job is None and update.job is not None:
            typer.echo(f"job {update.job.job_id} ({update.job.method}), submitted by {clean(update.job.submitted_by)}")
            if now_told := _now(update.job):
                typer.echo(now_told)
            sys.stdout.flush()
        job = update.job or job
        if update.event is None:
            continue
        event = update.event.event
        if event.kind is EventKind.STEP_ASKED and not event.round_num and steps_told < _STEPS_TOLD:
            steps_told += 1
            told = f"before round 1: {clean(event.step)}, asked of {clean(event.message)}"
            typer.echo(f"{clock(update.event.time)}  {told}")
            sys.stdout.flush()
        if event.kind is EventKind.ROUND_CLOSED and not (event.metrics and event.metrics.pooled):
            now = time.monotonic()
            if now - printed < QUIET_ROUNDS_S and not (job and event.round_num == job.num_rounds):
                continue
            printed = now
        line = event_line(update.event, job.num_rounds if job else 0, len(job.clients) if job else 0)
        if line is not None and absences.tells(event):
            typer.echo(line)
            sys.stdout.flush()
    return _ended(job)


def _now(job: JobInfo) -> str:
    """What a job waits for or does when somebody begins to watch it; empty where its events say so."""
    if job.waiting_for:
        return f"{job.state.value}, {clean(job.waiting_for)}"
    if job.state is JobState.RUNNING and not job.round_num:
        clients = listed([clean(client) for client in job.clients], more=" and {left} more")
        return f"{job.state.value}, before round 1: {clients or 'the clients'} read and check their data, and agree"
    return job.state.value if job.state is JobState.QUEUED else ""


async def _json_lines(updates: AsyncIterator[JobUpdate]) -> JobInfo:
    job: JobInfo | None = None
    async for update in updates:
        job = update.job or job
        typer.echo(json.dumps(update_json(update), ensure_ascii=False, default=lambda when: when.isoformat()))
        sys.stdout.flush()
    return _ended(job)


async def _live(updates: AsyncIterator[JobUpdate]) -> JobInfo:
    progress = Progress()
    with Live(refresh_per_second=8, get_renderable=lambda: render(progress)):
        async for update in updates:
            progress.take(update)
    job = _ended(progress.job)
    typer.echo(f"{job.job_id}: {job.state}")
    return job


def render(progress: Progress) -> RenderableType:
    """The live display: headline, rounds, who answered, metrics, notes."""
    job = progress.job
    if job is None:
        return Text("connecting …", style="dim")
    styles = {JobState.SUCCEEDED: "green", JobState.FAILED: "red", JobState.CANCELLED: "yellow"}
    head = Text.assemble(
        (job.job_id, "bold"),
        f"  {job.method}  ",
        (job.state.value, styles.get(job.state, "cyan")),
        f"  {progress.step}",
    )
    parts: list[RenderableType] = [head]
    if job.num_rounds:
        bar = Table.grid(padding=(0, 1))
        bar.add_row("round", ProgressBar(total=job.num_rounds, completed=job.round_num, width=40), rounds_text(job))
        parts.append(bar)
    if job.state is JobState.RUNNING and job.clients:
        shown = job.clients[:20]
        marks = [(f"{'●' if c in progress.answered else '○'} {clean(c)}  ", "") for c in shown]
        more = f"… {len(job.clients) - len(shown)} more" if len(job.clients) > len(shown) else ""
        parts.append(Text.assemble(f"answered {len(progress.answered)}/{len(job.clients)}  ", *marks, more))
    if progress.waiting:
        parts.append(Text(clean(progress.waiting), style="yellow"))
    for model, scores in progress.metrics.pooled.items():
        parts.append(Text(f"{clean(model):>8}  {scores_text(scores, 4)}"))
    if progress.metrics.training:
        parts.append(Text(f"training  {scores_text(progress.metrics.training, 4)}"))
    parts += [Text(line, style="dim") for line in progress.lines]
    if job.state is JobState.FAILED:
        parts.append(Text(f"{job.error_reason}: {clean(job.error_message)}", style="red"))
    return Group(*parts)


def _ended(job: JobInfo | None) -> JobInfo:
    if job is None:
        raise WireError("the coordinator ended the watch without a word about the job")
    return job
