"""What operators signed of the jobs under way, as the coordinator passes it on, and the jobs that it proves."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import structlog

from kernfed.errors import ConfigError, SubmissionError
from kernfed.jobs.job_file import JobFile, parse_job
from kernfed.pki.authority import utc_now
from kernfed.pki.folder import parse_certificate
from kernfed.pki.identity import Identity
from kernfed.pki.submission import KEPT_BYTES, KEPT_JOBS, Signed, prove, sha256_of
from kernfed.v1 import task_pb2
from kernfed.wording import moment
from kernfed_client.daemon.intake import MAX_OPEN
from kernfed_client.daemon.operators.revoked import RevokedOperators

log = structlog.get_logger(__name__)

MAX_JOBS, MAX_BYTES = KEPT_JOBS + MAX_OPEN, KEPT_BYTES + (8 << 20)
"""Submissions that are kept, and bytes of them all; the longest unused go first. These are more than the coordinator
takes to be here, which tells those again that may be gone, so that no task that waits here loses its own."""


@dataclass(frozen=True, slots=True)
class SignedJob:
    """A job as its operator signed it."""

    signed: Signed
    file: JobFile | None
    """None: this release cannot read the file."""
    unread: str = ""
    """Why it cannot."""
    text: str = ""
    """The file."""


class Submissions:
    """Submissions by job. Told by the session's thread, judged by the worker's."""

    def __init__(
        self, identity: Identity, now: Callable[[], datetime] = utc_now, revoked_file: Path | None = None
    ) -> None:
        """Keep none yet.

        Args:
            identity: This client's, with the federation's CA.
            now: Clock.
            revoked_file: Where revoked operators are kept; None: nowhere.
        """
        self._ca = parse_certificate(identity.ca_pem, identity.folder)
        self.revoked = RevokedOperators(self._ca, revoked_file, now)
        self._federation = identity.federation
        self._now = now
        self._lock = threading.Lock()
        self._told: OrderedDict[str, task_pb2.JobSubmission] = OrderedDict()
        self._proven: dict[str, SignedJob] = {}

    @property
    def num_bytes(self) -> int:
        """Size of all that is kept."""
        return sum(told.ByteSize() for told in self._told.values())

    def told(self, submission: task_pb2.JobSubmission) -> None:
        """The coordinator passes on what an operator signed; it is judged when the job asks something."""
        with self._lock:
            before = self._told.pop(submission.job_id, None)
            if before != submission:
                self._proven.pop(submission.job_id, None)
            self._told[submission.job_id] = submission
            while len(self._told) > MAX_JOBS or self.num_bytes > MAX_BYTES:
                gone, _ = self._told.popitem(last=False)
                self._proven.pop(gone, None)

    def used(self, job_id: str) -> None:
        """A task of a job arrives: its submission is among the last to go."""
        with self._lock:
            if job_id in self._told:
                self._told.move_to_end(job_id)

    def forget(self, job_id: str) -> None:
        """A job is over."""
        with self._lock:
            self._told.pop(job_id, None)
            self._proven.pop(job_id, None)

    def known(self, job_id: str) -> SignedJob | None:
        """A job that `proven` has proven."""
        with self._lock:
            return self._proven.get(job_id)

    def proven(self, task: task_pb2.Task) -> SignedJob | None:
        """The job of a task as its operator signed it.

        Returns:
            None where nothing says that it is signed.

        Raises:
            SubmissionError: It is said to be signed, and something does not hold.
        """
        with self._lock:
            told, proven = self._told.get(task.job_id), self._proven.get(task.job_id)
        if told is None and not task.submission_sha256:
            return None
        if told is None:
            raise SubmissionError("the coordinator did not pass on what the job's operator signed; restart this client")
        if sha256_of(told.submission) != task.submission_sha256:
            raise SubmissionError("the task is not of the submission that the coordinator passed on for its job")
        if proven is None:
            proven = self._prove(told)
            with self._lock:
                self._proven[task.job_id] = proven
        if (since := self.revoked.since(proven.signed.serial)) is not None:
            raise SubmissionError(
                f"the certificate by which operator {proven.signed.operator} signed the job was revoked on "
                f"{moment(since)}; let an operator whose certificate counts submit the job again"
            )
        _check_told(task, proven)
        return proven

    def _prove(self, told: task_pb2.JobSubmission) -> SignedJob:
        signed = prove(told.submission, told.job_toml, self._ca, self._federation, self._now())
        try:
            file = parse_job(told.job_toml, "the signed job file", accepted=True)
            job = SignedJob(signed, file, text=told.job_toml)
        except ConfigError as err:
            job = SignedJob(signed, None, str(err), told.job_toml)
            log.warning("the signed job file cannot be read here", job_id=told.job_id, error=str(err))
        name, _, _ = told.job_id.rpartition("-")
        if told.job_id != signed.id_of(name if job.file is None else job.file.name):
            raise SubmissionError(
                f"what operator {signed.operator} signed is not job {told.job_id[:128]!r}: one submission cannot be "
                "run as another job; submit it again with `kernfed job submit`"
            )
        log.info("job is signed", job_id=told.job_id, operator=signed.operator, submission=signed.sha256.hex())
        return job


def _check_told(task: task_pb2.Task, job: SignedJob) -> None:
    """The coordinator says of a job what its operator signed."""
    if task.submitted_by != job.signed.operator:
        raise SubmissionError(
            f"the coordinator says that the job is of operator {task.submitted_by[:64]!r}, and {job.signed.operator} "
            "signed it"
        )
    if job.file is not None and task.method != job.file.method.name:
        raise SubmissionError(
            f"the coordinator says that the job runs method {task.method[:64]!r}, and its operator signed "
            f"{job.file.method.name!r}"
        )
