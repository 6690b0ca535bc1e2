"""The operators' view of jobs, clients and artifacts: the same facts in the coordinator, on the wire and in the CLI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from kernfed.federation.events import JobEvent, JobState

DEVICE_ON = " on "
"""Stands between a client's device and its platform in the text that it tells of itself."""


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job, at one moment. Times are aware, UTC."""

    job_id: str
    name: str
    method: str
    state: JobState
    submitted_by: str
    submitted_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    round_num: int = 0
    """Last round closed."""
    num_rounds: int = 0
    """Rounds that the method may take; 0 where it has none."""
    clients: tuple[str, ...] = ()
    """Its cohort, sorted; empty until known."""
    error_reason: str = ""
    error_message: str = ""
    waiting_for: str = ""
    job_toml: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The file with all defaults, by the release and the rules that the job began with, as JSON values; in lists
    `method.rounds` alone; empty from a coordinator of before."""
    submission_sha256: str = ""
    """Digest of what its operator signed, hexadecimal; empty: it is not signed."""

    def in_list(self) -> JobInfo:
        """The job without its file; of its settings the rounds that a method with several models in turn gives each."""
        rounds = self.settings.get("method", {}).get("rounds")
        return replace(self, job_toml="", settings={} if rounds is None else {"method": {"rounds": rounds}})


@dataclass(frozen=True, slots=True)
class NumberedEvent:
    """An event in its place in the job's history."""

    sequence: int
    """From 1, without gaps; 0: an event of passing interest, which is told once and not kept."""
    time: datetime
    event: JobEvent


@dataclass(frozen=True, slots=True)
class JobUpdate:
    """A message to a watcher: an event, the job as it is now, or both."""

    event: NumberedEvent | None = None
    job: JobInfo | None = None


@dataclass(frozen=True, slots=True)
class JobPage:
    """Jobs, newest first."""

    jobs: tuple[JobInfo, ...]
    next_page_token: str = ""
    """Empty on the last page."""


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """A client of the federation, connected or not."""

    name: str
    connected: bool = False
    datasets: tuple[str, ...] = ()
    """Data sets on offer."""
    steps: tuple[str, ...] = ()
    """Steps that it runs."""
    device: str = ""
    software_version: str = ""
    certificate_expires_at: datetime | None = None
    peer: str = ""
    """Address from which it connects."""
    last_seen_at: datetime | None = None
    job_ids: tuple[str, ...] = ()
    """Jobs that it works for now."""
    revoked: bool = False
    """Whether its certificates were revoked, and it holds no other."""
    revoked_why: str = ""
    """The reason that the operator gave who did so; empty: none given, or not revoked."""
    trouble: str = ""
    """What keeps it from work, as it says itself while it is connected, and what to do; empty: nothing."""


@dataclass(frozen=True, slots=True)
class ArtifactInfo:
    """A file that a job left."""

    name: str
    size: int
    """Bytes."""
    sha256: str
    """64 hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class PageLink:
    """A link to the coordinator's page that signs an operator in."""

    url: str
    """Good for one sign-in."""
    expires_at: datetime
    """It is refused from then on; aware, UTC."""


def split_platform(reported: str) -> tuple[str, str]:
    """What a client reported, as device and platform; a client of an earlier release reports no platform."""
    device, _, found = reported.partition(DEVICE_ON)
    return device, found
