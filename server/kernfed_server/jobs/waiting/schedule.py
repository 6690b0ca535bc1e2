"""Which queued jobs may start: clients in, decisions out. No clock and no IO, so every case is a plain test.

Jobs whose cohorts do not overlap run side by side. Of those that do, the one submitted first goes first: a job that
waits for a busy client keeps its other clients reserved. A job that waits for a client that is not there reserves
nobody, for it may wait for days.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kernfed.federation.quorum import Quorum
from kernfed.jobs.info import ClientInfo
from kernfed.wording import listed

_MAX_LISTED = 5


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """The facts of a job that has not started which the queue needs."""

    job_id: str
    clients: tuple[str, ...] | None
    """Named in the job file; None: whoever offers the data set."""
    dataset: str | None
    """None: the job touches no data, so any client will do."""
    quorum: Quorum
    needs_all: bool = True
    """Whether all named clients must be there; else the quorum suffices once `quorum.deadline_s` is over."""
    waited_s: float = 0.0
    """Seconds for which it has waited for clients to connect."""


@dataclass(frozen=True, slots=True)
class Start:
    """The job starts now, on these clients (sorted)."""

    clients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """The job waits."""

    why: str
    """Starts with `waiting: `."""
    for_connections: bool
    """Whether for clients to connect; else for clients to be free."""


def plan(
    queued: Sequence[QueuedJob],
    clients: Mapping[str, ClientInfo],
    running: Mapping[str, Collection[str]],
    *,
    jobs_per_client: int = 1,
    settled: bool = True,
    endless: Collection[str] = (),
    held: Mapping[str, str] | None = None,
) -> dict[str, Start | Wait]:
    """Decide for every queued job.

    Args:
        queued: In the order of submission.
        clients: Clients by name.
        running: Cohorts of the running jobs, by job id.
        jobs_per_client: Jobs that a client works for at a time.
        settled: Whether clients had the time to connect since the coordinator started; until then a job without named
            clients waits, so that a restart does not shrink its cohort.
        endless: Running jobs that do not end by themselves.
        held: What running jobs wait for, e.g. `waiting for approval at b until 12:00`, by job id.
    """
    present = {name: client for name, client in clients.items() if client.connected}
    holders = _holders(running)
    decisions: dict[str, Start | Wait] = {}
    for job in queued:
        cohort = _cohort(job, present, settled)
        if isinstance(cohort, Wait):
            decisions[job.job_id] = cohort
            continue
        busy = {c: holders[c] for c in cohort if len(holders.get(c, ())) >= jobs_per_client}
        decisions[job.job_id] = Wait(_busy_text(busy, endless, held or {}), False) if busy else Start(cohort)
        for client in cohort:
            holders.setdefault(client, []).append(job.job_id)
    return decisions


def may_join(
    dataset: str,
    clients: Mapping[str, ClientInfo],
    running: Mapping[str, Collection[str]],
    wanted: Collection[str],
    *,
    jobs_per_client: int = 1,
) -> list[str]:
    """Names of the clients that may join a job that runs.

    Args:
        dataset: Which they must offer.
        clients: As in `plan`.
        running: As in `plan`.
        wanted: Clients that jobs in the queue name; they are left to these.
        jobs_per_client: As in `plan`.
    """
    holders = _holders(running)
    return [
        name
        for name, seen in clients.items()
        if seen.connected
        and dataset in seen.datasets
        and name not in wanted
        and len(holders.get(name, ())) < jobs_per_client
    ]


def _holders(running: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """Client to the jobs that it works for."""
    holders: dict[str, list[str]] = {}
    for job_id, members in running.items():
        for client in members:
            holders.setdefault(client, []).append(job_id)
    return holders


def _cohort(job: QueuedJob, present: Mapping[str, ClientInfo], settled: bool) -> tuple[str, ...] | Wait:
    if job.clients is None:
        return _whoever_offers(job, present, settled)
    named = tuple(sorted(job.clients))
    missing = [c for c in named if c not in present]
    have = len(named) - len(missing)
    enough = have >= job.quorum.needed(len(named)) and job.waited_s >= job.quorum.deadline_s
    if not missing or (enough and not job.needs_all):
        return named
    return Wait(f"waiting: {have} of {len(named)} clients connected (missing: {_listed(missing)})", True)


def _whoever_offers(job: QueuedJob, present: Mapping[str, ClientInfo], settled: bool) -> tuple[str, ...] | Wait:
    offering = tuple(sorted(c for c, info in present.items() if job.dataset is None or job.dataset in info.datasets))
    if not settled:
        return Wait("waiting: the coordinator has just started, and clients are connecting", True)
    if len(offering) >= max(job.quorum.min_clients, 1):
        return offering
    offer = "" if job.dataset is None else f" that offer the data set {job.dataset!r}"
    text = f"waiting: {len(offering)} of at least {job.quorum.min_clients} clients{offer} connected"
    others = sorted({d for info in present.values() for d in info.datasets} - {job.dataset})
    if job.dataset is not None and not offering and others:
        text += f" (connected clients offer: {_listed(others)})"
    return Wait(text, True)


def _busy_text(busy: Mapping[str, Sequence[str]], endless: Collection[str], held: Mapping[str, str]) -> str:
    jobs = list(dict.fromkeys(job_id for job_ids in busy.values() for job_id in job_ids))
    verb = "works" if len(busy) == 1 else "work"
    text = f"waiting: {_listed(sorted(busy))} {verb} for {_listed(jobs)}"
    waits = [job_id for job_id in jobs if job_id in held]
    text += "".join(f"; {job_id} itself is {held[job_id]}" for job_id in waits[:_MAX_LISTED])
    if without_end := [job_id for job_id in jobs if job_id in endless]:
        text += f"; {_listed(without_end)} {'runs' if len(without_end) == 1 else 'run'} without end"
    if waits or without_end:
        text += ": cancel what is no longer needed, or raise jobs_per_client in the coordinator file"
    return text


def _listed(names: Sequence[str]) -> str:
    return listed(names, _MAX_LISTED, " and {left} more")
