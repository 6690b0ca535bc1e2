"""The jobs that are not over: which hold clients, which wait and for what, and which may start."""

from __future__ import annotations

from dataclasses import replace

from kernfed.federation.events import EventKind, JobEvent, JobState
from kernfed.jobs.job_file import JobFile
from kernfed.methods.registry import method_of
from kernfed_server.federation.client_book import Sessions
from kernfed_server.jobs.tasks.task import ActiveJob
from kernfed_server.jobs.waiting.schedule import QueuedJob, Start, Wait, may_join, plan


class JobQueue:
    """Jobs by id, and their claims on clients."""

    def __init__(self, sessions: Sessions, *, jobs_per_client: int) -> None:
        """Begin with no job.

        Args:
            sessions: The clients' sessions.
            jobs_per_client: Jobs that a client works for at a time.
        """
        self.active: dict[str, ActiveJob] = {}
        self._sessions = sessions
        self._jobs_per_client = jobs_per_client

    def ready(self, now: float, *, settled: bool) -> list[ActiveJob]:
        """Jobs whose task is to begin: their clients are free, or they waited for them in vain. Others are told why.

        Args:
            now: On the monotonic clock, in seconds.
            settled: Whether the clients of the coordinator's last life had time to come back.
        """
        queued = {i: a for i, a in self.active.items() if a.info.state is JobState.QUEUED and a.task is None}
        if not queued:
            return []
        decisions = plan(
            [_queued_job(active, now) for active in queued.values()],
            self._sessions.clients(),
            self.running(),
            jobs_per_client=self._jobs_per_client,
            settled=settled,
            endless={job_id for job_id, a in self.active.items() if a.holds_clients and is_endless(a.file)},
            held={i: a.info.waiting_for for i, a in self.active.items() if a.holds_clients and a.info.waiting_for},
        )
        found = []
        for job_id, decision in decisions.items():
            active = queued[job_id]
            if isinstance(decision, Start):
                active.info = replace(active.info, clients=decision.clients, waiting_for="")
            else:
                _wait(active, decision, now)
            if isinstance(decision, Start) or active.gave_up:
                found.append(active)
        return found

    def running(self) -> dict[str, tuple[str, ...]]:
        """Clients of each job that holds them."""
        return {job_id: a.info.clients for job_id, a in self.active.items() if a.holds_clients}

    def candidates(self, active: ActiveJob) -> list[str]:
        """Clients that may join a running job; none where it names its own."""
        if active.file.cohort.clients is not None or active.file.data is None:
            return []
        wanted = {
            c for a in self.active.values() if a.info.state is JobState.QUEUED for c in a.file.cohort.clients or ()
        }
        return may_join(
            active.file.cohort.dataset,
            self._sessions.clients(),
            self.running(),
            wanted,
            jobs_per_client=self._jobs_per_client,
        )


def _wait(active: ActiveJob, wait: Wait, now: float) -> None:
    if wait.for_connections:
        active.waiting_since = active.waiting_since or now
    else:
        active.waiting_since = None
    if wait.why != active.info.waiting_for:
        if active.next_wait_told <= now or wait.for_connections:
            active.journal.event(JobEvent(EventKind.WAITING, message=wait.why))
            active.wait_told_after_s *= 2
            active.next_wait_told = now + active.wait_told_after_s
        else:  # the jobs ahead change all the time, and so would the history of each job behind them
            active.info = replace(active.info, waiting_for=wait.why)
    limit = active.file.cohort.wait_s
    if active.waiting_since is not None and now - active.waiting_since > limit:
        active.gave_up = f"{wait.why.removeprefix('waiting: ')}; gave up after {limit:g} s (cohort.wait_s)"


def is_endless(job: JobFile) -> bool:
    """Whether a job runs until somebody cancels it."""
    method = method_of(job.method)
    return method.reads_stream and not method.rounds(job.method)


def _queued_job(active: ActiveJob, now: float) -> QueuedJob:
    cohort = active.file.cohort
    return QueuedJob(
        job_id=active.info.job_id,
        clients=None if cohort.clients is None else tuple(cohort.clients),
        dataset=cohort.dataset if active.file.data is not None else None,
        quorum=cohort.quorum,
        needs_all=cohort.preflight == "all",
        waited_s=now - active.waiting_since if active.waiting_since is not None else 0.0,
    )
