"""Events of a job, as a stream of facts: for `kernfed job watch`, the store, logs and `metrics.jsonl`."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Scores = Mapping[str, float]
"""Metric name to value, e.g. {"auc": 0.9}."""

_REASON: Final = re.compile(r"[A-Z][A-Z0-9_]*")


class JobState(enum.StrEnum):
    """A job's life."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def finished(self) -> bool:
        """Whether nothing more will happen."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


class EventKind(enum.StrEnum):
    """Kind of an event."""

    STATE = "state"
    """The job's state changed; `message` says why."""
    NOTE = "note"
    """Something the operator should know, e.g. an agreed lengthscale or a warning."""
    ROUND_OPENED = "round-opened"
    STEP_ASKED = "step-asked"
    CLIENT_ANSWERED = "client-answered"
    CLIENT_FAILED = "client-failed"
    """`reason` is the code of its error, `message` its words."""
    CLIENT_MISSING = "client-missing"
    """A straggler: not in by the deadline."""
    CLIENT_JOINED = "client-joined"
    """A client takes part from now on; `message` says so."""
    WAITING = "waiting"
    """Below quorum: `message` says "2 of 3"."""
    ROUND_CLOSED = "round-closed"
    """The round's metrics are attached."""
    FINDING = "finding"
    """A result of the method itself, e.g. who learns from whom; `message` is its name, its content is attached."""


@dataclass(frozen=True, slots=True)
class RoundMetrics:
    """Metrics at the end of a round."""

    pooled: Mapping[str, Scores] = field(default_factory=dict)
    """Model measured (`global`, `local`) to metrics over all clients' test rows."""
    clients: Mapping[str, Mapping[str, Scores]] = field(default_factory=dict)
    """Client to model measured to metrics on its own test rows."""
    training: Scores = field(default_factory=dict)
    """Of the solver, e.g. the certified relative distance."""

    def merged(self, other: RoundMetrics) -> RoundMetrics:
        """Metrics of the models in either, the other's where both have one."""
        clients = {
            client: {**self.clients.get(client, {}), **other.clients.get(client, {})}
            for client in sorted({*self.clients, *other.clients})
        }
        return RoundMetrics({**self.pooled, **other.pooled}, clients, {**self.training, **other.training})


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One fact about a job."""

    kind: EventKind
    round_num: int = 0
    step: str = ""
    client: str = ""
    message: str = ""
    reason: str = ""
    """Code of the error, where the event is one of `kernfed.errors`; else empty."""
    metrics: RoundMetrics | None = None
    finding: Mapping[str, Any] | None = None
    """JSON values; of several findings of one name the last counts."""

    @property
    def text(self) -> str:
        """For a person: `REASON: message`, or the message alone."""
        return f"{self.reason}: {self.message}" if self.reason else self.message


def split_reason(text: str) -> tuple[str, str]:
    """Reason code and message of a text `REASON: message`; the code is empty where the text starts with none."""
    reason, colon, message = text.partition(": ")
    return (reason, message) if colon and _REASON.fullmatch(reason) else ("", text)
