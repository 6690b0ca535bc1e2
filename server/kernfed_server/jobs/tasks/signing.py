"""A signature for a job that came without one: from a release that made none, it goes on and need not begin anew."""

from __future__ import annotations

from dataclasses import replace

import structlog

from kernfed.errors import JobError
from kernfed.federation.events import EventKind, JobEvent
from kernfed.jobs.info import JobInfo
from kernfed.pki.submission import sha256_of
from kernfed.v1 import task_pb2
from kernfed_server.federation.client_book import Sessions
from kernfed_server.jobs.tasks.task import ActiveJob
from kernfed_server.keeping.store import Store

log = structlog.get_logger(__name__)


async def sign_late(
    active: ActiveJob, submission: task_pb2.Submission, operator: str, store: Store, sessions: Sessions
) -> JobInfo:
    """Put an operator's signature under a job, and ask the clients again that wait for one.

    Args:
        active: The job.
        submission: Its text under the operator's signature, which was checked, and names the job.
        operator: Who signed.
        store: Where the job is kept.
        sessions: The clients'.

    Raises:
        JobError: It is signed, another operator submitted it, or it ended meanwhile.
    """
    info = active.info
    already = f"job {info.job_id} is signed already, by {info.submitted_by}; there is nothing to do"
    if info.submission_sha256:
        raise JobError(already)
    if info.submitted_by != operator:
        raise JobError(f"job {info.job_id} is of operator {info.submitted_by}, who alone can sign it")
    sha256 = sha256_of(submission).hex()
    if not await store.sign(replace(info, submission_sha256=sha256), submission):
        raise JobError(already)
    if active.finishing:
        raise JobError(f"job {info.job_id} ended while it was signed; submit it again with `kernfed job submit`")
    active.info = replace(active.info, submission_sha256=sha256)
    active.history.note(JobEvent(EventKind.NOTE, info.round_num, message=f"signed by {operator}"))
    sessions.sign(active.info, submission)
    log.info("job signed", job_id=info.job_id, operator=operator)
    return active.info
