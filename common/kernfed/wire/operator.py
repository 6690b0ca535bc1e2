"""Jobs, events, clients and artifacts: protobuf to dataclasses and back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from kernfed.errors import WireError
from kernfed.federation.events import EventKind, JobEvent, JobState, RoundMetrics, Scores, split_reason
from kernfed.jobs.info import ArtifactInfo, ClientInfo, JobInfo, JobUpdate, NumberedEvent
from kernfed.v1 import operator_service_pb2 as pb

_STATES: Final = {
    JobState.QUEUED: pb.JOB_STATE_QUEUED,
    JobState.RUNNING: pb.JOB_STATE_RUNNING,
    JobState.SUCCEEDED: pb.JOB_STATE_SUCCEEDED,
    JobState.FAILED: pb.JOB_STATE_FAILED,
    JobState.CANCELLED: pb.JOB_STATE_CANCELLED,
}
_MOST_WHY: Final = 200
"""Characters of the reason for a revocation, which an operator may give at any length."""
_STATE_NAMES: Final = {number: state for state, number in _STATES.items()}


def job_to_proto(job: JobInfo) -> pb.Job:
    """Encode a job."""
    return pb.Job(
        job_id=job.job_id,
        name=job.name,
        method=job.method,
        state=_STATES[job.state],
        submitted_by=job.submitted_by,
        submitted_at=_timestamp(job.submitted_at),
        started_at=_timestamp(job.started_at),
        finished_at=_timestamp(job.finished_at),
        round=job.round_num,
        num_rounds=job.num_rounds,
        clients=job.clients,
        error_reason=job.error_reason,
        error_message=job.error_message,
        waiting_for=job.waiting_for,
        job_toml=job.job_toml,
        submission_sha256=job.submission_sha256,
        settings_json=json.dumps(job.settings, ensure_ascii=False) if job.settings else "",
    )


def job_from_proto(msg: pb.Job) -> JobInfo:
    """Decode a job.

    Raises:
        WireError: Its state is none that this release knows, it has no time of submission, or its settings are no JSON.
    """
    state = _STATE_NAMES.get(msg.state)
    submitted_at = _datetime(msg, "submitted_at")
    if state is None or submitted_at is None:
        raise WireError(f"job {msg.job_id[:128]!r} has state {msg.state}; install the coordinator's release of kernfed")
    return JobInfo(
        job_id=msg.job_id,
        name=msg.name,
        method=msg.method,
        state=state,
        submitted_by=msg.submitted_by,
        submitted_at=submitted_at,
        started_at=_datetime(msg, "started_at"),
        finished_at=_datetime(msg, "finished_at"),
        round_num=msg.round,
        num_rounds=msg.num_rounds,
        clients=tuple(msg.clients),
        error_reason=msg.error_reason,
        error_message=msg.error_message,
        waiting_for=msg.waiting_for,
        job_toml=msg.job_toml,
        submission_sha256=msg.submission_sha256,
        settings=_settings(msg),
    )


def _settings(msg: pb.Job) -> dict[str, Any]:
    try:
        found = json.loads(msg.settings_json) if msg.settings_json else {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise WireError(f"job {msg.job_id[:128]!r}: its settings are not a JSON object")
    return found


def event_to_proto(numbered: NumberedEvent) -> pb.Event:
    """Encode an event."""
    event = numbered.event
    return pb.Event(
        sequence=numbered.sequence,
        time=_timestamp(numbered.time),
        kind=event.kind.value,
        round=event.round_num,
        step=event.step,
        client=event.client,
        message=event.text,
        reason=event.reason,
        metrics=() if event.metrics is None else list(_metrics_to_proto(event.metrics)),
    )


def event_from_proto(msg: pb.Event) -> NumberedEvent:
    """Decode an event; one of a kind that a newer release made up becomes a note.

    Raises:
        WireError: It has no time.
    """
    time = _datetime(msg, "time")
    if time is None:
        raise WireError(f"event {msg.sequence} has no time")
    try:
        kind = EventKind(msg.kind)
    except ValueError:
        kind = EventKind.NOTE
    reason, message = msg.reason, msg.message
    if reason:
        message = message.removeprefix(f"{reason}: ")
    elif kind is EventKind.CLIENT_FAILED:  # a coordinator of before says it in the text alone
        reason, message = split_reason(message)
    metrics = _metrics_from_proto(msg) if kind is EventKind.ROUND_CLOSED else None
    event = JobEvent(kind, msg.round, msg.step, msg.client, message, reason, metrics)
    return NumberedEvent(msg.sequence, time, event)


def update_to_proto(update: JobUpdate) -> pb.WatchJobResponse:
    """Encode what a watcher is told."""
    return pb.WatchJobResponse(
        event=None if update.event is None else event_to_proto(update.event),
        job=None if update.job is None else job_to_proto(update.job),
    )


def update_from_proto(msg: pb.WatchJobResponse) -> JobUpdate:
    """Decode what a watcher is told.

    Raises:
        WireError: A part is not one that this release knows.
    """
    return JobUpdate(
        event_from_proto(msg.event) if msg.HasField("event") else None,
        job_from_proto(msg.job) if msg.HasField("job") else None,
    )


def client_to_proto(client: ClientInfo) -> pb.Client:
    """Encode a client."""
    return pb.Client(
        name=client.name,
        connected=client.connected,
        last_seen_at=_timestamp(client.last_seen_at),
        datasets=client.datasets,
        device=client.device,
        software_version=client.software_version,
        certificate_expires_at=_timestamp(client.certificate_expires_at),
        job_ids=client.job_ids,
        peer=client.peer,
        revoked=client.revoked,
        revoked_why=client.revoked_why[:_MOST_WHY],
        trouble=client.trouble[:_MOST_WHY],
    )


def client_from_proto(msg: pb.Client) -> ClientInfo:
    """Decode a client."""
    return ClientInfo(
        name=msg.name,
        connected=msg.connected,
        datasets=tuple(msg.datasets),
        device=msg.device,
        software_version=msg.software_version,
        certificate_expires_at=_datetime(msg, "certificate_expires_at"),
        peer=msg.peer,
        last_seen_at=_datetime(msg, "last_seen_at"),
        job_ids=tuple(msg.job_ids),
        revoked=msg.revoked,
        revoked_why=msg.revoked_why,
        trouble=msg.trouble,
    )


def artifact_to_proto(artifact: ArtifactInfo) -> pb.Artifact:
    """Encode an artifact."""
    return pb.Artifact(name=artifact.name, size=artifact.size, sha256=artifact.sha256)


def artifact_from_proto(msg: pb.Artifact) -> ArtifactInfo:
    """Decode an artifact."""
    return ArtifactInfo(msg.name, msg.size, msg.sha256)


def _metrics_to_proto(metrics: RoundMetrics) -> Iterator[pb.Metric]:
    for model, scores in metrics.pooled.items():
        yield from _scores_to_proto("", model, scores)
    for client, models in metrics.clients.items():
        for model, scores in models.items():
            yield from _scores_to_proto(client, model, scores)
    yield from _scores_to_proto("", "", metrics.training)


def _scores_to_proto(client: str, model: str, scores: Scores) -> Iterator[pb.Metric]:
    for name, value in scores.items():
        yield pb.Metric(client=client, model=model, name=name, value=value)


def _metrics_from_proto(msg: pb.Event) -> RoundMetrics:
    pooled: dict[str, dict[str, float]] = {}
    clients: dict[str, dict[str, dict[str, float]]] = {}
    training: dict[str, float] = {}
    for metric in msg.metrics:
        if metric.client:
            scores = clients.setdefault(metric.client, {}).setdefault(metric.model, {})
        elif metric.model:
            scores = pooled.setdefault(metric.model, {})
        else:
            scores = training
        scores[metric.name] = metric.value
    frozen: Mapping[str, Mapping[str, Scores]] = clients
    return RoundMetrics(pooled, frozen, training)


def _timestamp(when: datetime | None) -> Timestamp | None:
    if when is None:
        return None
    stamp = Timestamp()
    stamp.FromDatetime(when)
    return stamp


def _datetime(msg: pb.Job | pb.Event | pb.Client, field: str) -> datetime | None:
    if not msg.HasField(field):  # type: ignore[arg-type]  # the stubs want a literal
        return None
    stamp: Timestamp = getattr(msg, field)
    try:
        return stamp.ToDatetime(UTC)
    except ValueError as err:
        raise WireError(f"{field} is out of range") from err
