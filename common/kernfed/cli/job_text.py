"""Jobs and their events in words, and as JSON values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from kernfed.federation.events import EventKind, JobEvent, JobState, RoundMetrics, Scores
from kernfed.jobs.info import JobInfo, JobUpdate, NumberedEvent
from kernfed.methods.shares import percent
from kernfed.metric_names import METRICS, ROW_SHARE, telling_first
from kernfed.wording import clean, duration, number


def scores_text(scores: Scores, limit: int = 2) -> str:
    """The most telling metrics, e.g. `auc 0.8912, accuracy 0.83`."""
    names = [name for name in METRICS if name in scores] or sorted(scores)
    return ", ".join(f"{clean(name)} {number(scores[name])}" for name in names[:limit])


def metrics_text(metrics: RoundMetrics, num_clients: int = 0) -> str:
    """A round's metrics in a line, e.g. `global auc 0.89 (3 of 4 clients) | local auc 0.86 | certificate 1e-05`.

    Of how many clients a model's metrics are is said where they are fewer than `num_clients`.
    """
    parts = [
        f"{clean(model)} {scores_text(scores)}{_of_clients(metrics, model, num_clients)}"
        for model, scores in metrics.pooled.items()
        if scores
    ]
    told = {name: value for name, value in metrics.training.items() if (name, value) != (ROW_SHARE, 1.0)}
    if told:
        parts.append(", ".join(f"{clean(name)} {number(value)}" for name, value in sorted(told.items())))
    return " | ".join(parts)


def _of_clients(metrics: RoundMetrics, model: str, num_clients: int) -> str:
    num = sum(model in models for models in metrics.clients.values())
    return f" ({num} of {num_clients} clients)" if 0 < num < num_clients else ""


class Absences:
    """Which clients miss one step after another: the first is worth a line, and no other until the client is back."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def tells(self, event: JobEvent) -> bool:
        """Whether an event is worth a line: any, but of a client that missed a step of this round or the one before."""
        if event.kind is not EventKind.CLIENT_MISSING:
            return True
        before = self._last.get(event.client)
        self._last[event.client] = event.round_num
        return before is None or event.round_num > before + 1


def event_line(numbered: NumberedEvent, num_rounds: int = 0, num_clients: int = 0) -> str | None:
    """An event and its time of day for a reader of plain text; see `event_text`."""
    text = event_text(numbered.event, num_rounds, num_clients)
    return None if text is None else f"{clock(numbered.time)}  {text}"


def event_text(event: JobEvent, num_rounds: int = 0, num_clients: int = 0) -> str | None:
    """An event in words; None where it is not worth a line.

    Args:
        event: The event.
        num_rounds: Of the job; 0: not known.
        num_clients: That take part in the job; metrics of fewer say of how many they are. 0: not known.
    """
    client, step, message = clean(event.client), clean(event.step), clean(event.text)
    match event.kind:
        case EventKind.STATE | EventKind.CLIENT_JOINED:
            return message
        case EventKind.NOTE:
            return f"note: {message}"
        case EventKind.CLIENT_FAILED:
            return f"{client} failed {step}: {message}"
        case EventKind.CLIENT_MISSING:
            return f"{client} missed {step}: {message or 'no answer by the deadline'}"
        case EventKind.WAITING:
            return message or "no longer waiting"
        case EventKind.ROUND_CLOSED:
            total = f"/{num_rounds}" if num_rounds else ""
            told = metrics_text(event.metrics or RoundMetrics(), num_clients)
            return f"round {event.round_num}{total}  {told}".rstrip()
        case _:
            return None


def clock(when: datetime) -> str:
    """Local time of day."""
    return f"{when.astimezone():%H:%M:%S}"


def update_json(update: JobUpdate) -> dict[str, Any]:
    """A message to a watcher, as JSON values (times as datetime)."""
    out: dict[str, Any] = {}
    if update.event is not None:
        event = update.event.event
        out["event"] = {
            "sequence": update.event.sequence,
            "time": update.event.time,
            "kind": event.kind.value,
            "round": event.round_num,
            "step": event.step,
            "client": event.client,
            "message": event.message,
            "reason": event.reason,
        }
        if event.metrics is not None:
            out["event"]["metrics"] = asdict(event.metrics)
    if update.job is not None:
        out["job"] = asdict(update.job)
    return out


def rounds_text(job: JobInfo) -> str:
    """Rounds closed, of how many there may be; where several models are trained in turn, of how many models.

    A job that succeeded took as many as it needed: it may have left out a model, or have been done early.
    """
    if not job.num_rounds:
        return str(job.round_num)
    if job.state is JobState.SUCCEEDED and job.round_num < job.num_rounds:
        return f"{job.round_num} (at most {job.num_rounds})"
    each = job.settings.get("method", {}).get("rounds", job.num_rounds)
    turns = f" ({job.num_rounds // each} models in turn, up to {each} rounds each)" if each < job.num_rounds else ""
    return f"{job.round_num}/{job.num_rounds}{turns}"


def signed_text(job: JobInfo) -> str:
    """Whether clients can prove whose job it is."""
    if not job.submission_sha256:
        return "no; clients whose policy asks for a signature wait for `kernfed job sign`"
    return f"by operator/{clean(job.submitted_by)}, submission {clean(job.submission_sha256[:16])}"


def duration_text(job: JobInfo, now: datetime) -> str:
    """Time for which a job ran, or has run by now."""
    if job.started_at is None:
        return ""
    return duration(((job.finished_at or now) - job.started_at).total_seconds(), digits=2)


def rows_behind(events: Sequence[NumberedEvent]) -> dict[str, float]:
    """Share of the cohort's training rows behind the last round, and the least of any; empty where none tells it."""
    told = [e.event.metrics.training for e in events if e.event.metrics is not None]
    shares = [training[ROW_SHARE] for training in told if ROW_SHARE in training]
    return {"last": shares[-1], "least": min(shares)} if shares else {}


def rows_text(behind: Mapping[str, float]) -> str:
    """`rows_behind` as people read it."""
    if not behind:
        return ""
    return f"{percent(behind['last'])} behind the last round, {percent(behind['least'])} behind that with the fewest"


def job_facts(
    job: JobInfo, events: Sequence[NumberedEvent], behind: Mapping[str, float], now: datetime
) -> list[tuple[str, str]]:
    """What there is to say of a job in a line each: names and words.

    Args:
        job: The job.
        events: Of it; at least its last change of state.
        behind: As `rows_behind` tells; empty: not known.
        now: For how long it has run is told as of then.
    """
    facts = [
        ("state", job.state.value),
        ("waiting", clean(job.waiting_for)),
        ("cancelled", _cancelled_by(events) if job.state is JobState.CANCELLED else ""),
        ("error", clean(f"{job.error_reason}: {job.error_message}") if job.error_reason else ""),
        ("submitted", f"{job.submitted_at.astimezone():%Y-%m-%d %H:%M:%S} by {clean(job.submitted_by)}"),
        ("signed", signed_text(job)),
        ("took", duration_text(job, now)),
        ("rounds", rounds_text(job)),
        ("clients", clean(", ".join(job.clients)) or "not known before it starts"),
        ("rows", rows_text(behind)),
    ]
    return [(key, value) for key, value in facts if value]


def last_metrics(events: Sequence[NumberedEvent]) -> RoundMetrics:
    """The last metrics of clients among the events; without any where there are none."""
    measured = [e.event.metrics for e in events if e.event.metrics is not None and e.event.metrics.clients]
    return measured[-1] if measured else RoundMetrics()


def _cancelled_by(events: Sequence[NumberedEvent]) -> str:
    """By whom, in the words of the job's last change of state."""
    said = [e.event.message for e in events if e.event.kind is EventKind.STATE]
    return clean(said[-1].removeprefix("cancelled ")) if said else ""


def client_table(metrics: RoundMetrics) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: per client, each metric of each model; pooled in the last row."""
    models = sorted({m for models in metrics.clients.values() for m in models} | set(metrics.pooled))
    everything = [*metrics.pooled.values(), *(s for models in metrics.clients.values() for s in models.values())]
    names = telling_first({name for scores in everything for name in scores})
    keys = [(name, model) for name in names for model in models]
    columns = ["client", *(f"{clean(name)} {clean(model)}" for name, model in keys)]
    rows = [[clean(client), *_cells(metrics.clients[client], keys)] for client in sorted(metrics.clients)]
    if metrics.pooled:
        rows.append(["(all rows)", *_cells(metrics.pooled, keys)])
    return columns, rows


def _cells(models: Mapping[str, Scores], keys: Sequence[tuple[str, str]]) -> list[str]:
    return [number(models[model][name]) if model in models and name in models[model] else "" for name, model in keys]
