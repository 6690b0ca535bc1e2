"""Rows of the store into dataclasses, and back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy.engine import Row

from kernfed.federation.events import EventKind, JobEvent, JobState, RoundMetrics
from kernfed.jobs.info import ClientInfo, JobInfo, NumberedEvent


def job_columns(info: JobInfo) -> dict[str, Any]:
    """Columns of a job, without its id."""
    return {
        "name": info.name,
        "method": info.method,
        "state": info.state.value,
        "submitted_by": info.submitted_by,
        "submitted_at": info.submitted_at.timestamp(),
        "started_at": _seconds(info.started_at),
        "finished_at": _seconds(info.finished_at),
        "round_num": info.round_num,
        "num_rounds": info.num_rounds,
        "clients": list(info.clients),
        "error_reason": info.error_reason,
        "error_message": info.error_message,
        "job_toml": info.job_toml,
        "settings": dict(info.settings) or None,
        "submission_sha256": info.submission_sha256,
    }


def job_from(row: Row[Any]) -> JobInfo:
    """A job from its row."""
    return JobInfo(
        job_id=row.job_id,
        name=row.name,
        method=row.method,
        state=JobState(row.state),
        submitted_by=row.submitted_by,
        submitted_at=datetime.fromtimestamp(row.submitted_at, UTC),
        started_at=_time(row.started_at),
        finished_at=_time(row.finished_at),
        round_num=row.round_num,
        num_rounds=row.num_rounds,
        clients=tuple(row.clients),
        error_reason=row.error_reason,
        error_message=row.error_message,
        job_toml=row.job_toml,
        settings=row.settings or {},
        submission_sha256=row.submission_sha256,
    )


def event_columns(job_id: str, numbered: NumberedEvent) -> dict[str, Any]:
    """Columns of an event."""
    event = numbered.event
    metrics = event.metrics
    return {
        "job_id": job_id,
        "sequence": numbered.sequence,
        "time": numbered.time.timestamp(),
        "kind": event.kind.value,
        "round_num": event.round_num,
        "step": event.step,
        "client": event.client,
        "message": event.message,
        "reason": event.reason,
        "metrics": None
        if metrics is None
        else {
            "pooled": {model: dict(scores) for model, scores in metrics.pooled.items()},
            "clients": {
                client: {model: dict(scores) for model, scores in models.items()}
                for client, models in metrics.clients.items()
            },
            "training": dict(metrics.training),
        },
        "finding": None if event.finding is None else dict(event.finding),
    }


def event_from(row: Row[Any]) -> NumberedEvent:
    """An event from its row."""
    metrics = None if row.metrics is None else RoundMetrics(**row.metrics)
    kind = EventKind(row.kind)
    event = JobEvent(kind, row.round_num, row.step, row.client, row.message, row.reason, metrics, row.finding)
    return NumberedEvent(row.sequence, datetime.fromtimestamp(row.time, UTC), event)


def client_columns(client: ClientInfo) -> dict[str, Any]:
    """Columns of a client, without its name."""
    return {
        "last_seen_at": _seconds(client.last_seen_at),
        "datasets": list(client.datasets),
        "steps": list(client.steps),
        "device": client.device,
        "software_version": client.software_version,
        "certificate_expires_at": _seconds(client.certificate_expires_at),
        "peer": client.peer,
    }


def client_from(row: Row[Any]) -> ClientInfo:
    """A client from its row; not connected."""
    return ClientInfo(
        name=row.name,
        datasets=tuple(row.datasets),
        steps=tuple(row.steps),
        device=row.device,
        software_version=row.software_version,
        certificate_expires_at=_time(row.certificate_expires_at),
        peer=row.peer,
        last_seen_at=_time(row.last_seen_at),
    )


def _seconds(when: datetime | None) -> float | None:
    return when.timestamp() if when else None


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
