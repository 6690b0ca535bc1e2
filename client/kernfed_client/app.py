"""The client daemon, put together: identity, policy, audit log, steps, and the session that serves them."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import structlog

from kernfed import files
from kernfed.errors import ApprovalError, KernfedError, PolicyError, SubmissionError
from kernfed.federation.messages.base import Reply, Request
from kernfed.federation.messages.catalogue import Requests
from kernfed.jobs.client_file import PARTITIONS, ClientFile, DatasetSection
from kernfed.jobs.held_to import contradiction
from kernfed.pki.authority import utc_now
from kernfed.pki.identity import Identity
from kernfed.pki.renewal import keep_renewed
from kernfed.pki.tls_diagnosis import diagnose_failure
from kernfed.process_lock import LOCK_FILE, ProcessLock
from kernfed.service import stop_signal
from kernfed.v1 import task_pb2
from kernfed.wire.payload import Payload
from kernfed_client.approval.book import Book, Decision, Entry
from kernfed_client.approval.gate import Approvals
from kernfed_client.daemon.answering import Answering
from kernfed_client.daemon.audit import AUDIT_FILE, AuditLog
from kernfed_client.daemon.health import keep_health_written
from kernfed_client.daemon.kept_setup import LOOK_S
from kernfed_client.daemon.operators.revoked import REVOKED_FILE
from kernfed_client.daemon.operators.submissions import Submissions
from kernfed_client.daemon.policy import Policy
from kernfed_client.daemon.reply_store import ReplyStore
from kernfed_client.daemon.session import ClientSession, Offer
from kernfed_client.daemon.state_mark import TO_OPERATORS, StateMark
from kernfed_client.daemon.tasks import TaskRunner
from kernfed_client.daemon.worker import Worker
from kernfed_client.streams.feeds import live_folders, open_feeds
from kernfed_client.streams.notices import NOTICES
from kernfed_client.sums.once import Once
from kernfed_client.sums.peers import accepted
from kernfed_client.sums.site import SumSeats, SumSite

if TYPE_CHECKING:
    from kernfed_client.daemon.metrics import ClientMetrics

log = structlog.get_logger(__name__)

CONNECTS_FIRST_S = 3.0
"""For so long the maths waits to be loaded, unless a session is open by then: the two would slow each other down."""
DECISIONS_EVERY_S = 0.5
"""Between two looks for what people here decided."""


class ClientDaemon:
    """One institution's client."""

    def __init__(self, file: ClientFile) -> None:
        """Check identity and state folder, and prepare the session.

        Raises:
            IdentityError: The identity cannot be used; tells how to enrol.
            ConfigError: The client file asks for what is not there, or another client uses the state folder.
        """
        self._file = file
        identity = Identity.load(file.identity, check_dates=False)
        identity.check_end(utc_now())  # where this machine's clock is behind, the session says so, and waits for it
        identity.warn_if_expiring(utc_now())
        self.name = identity.name
        file.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        remedy = "stop that one, or give this one another folder with `state`"
        what = f"{file.state} is the state folder of a client that runs"
        self._held = ProcessLock(file.state / LOCK_FILE, what=what, remedy=remedy)
        try:
            self._prepare(file, identity)
        except BaseException:
            self._held.release()
            raise

    def _prepare(self, file: ClientFile, identity: Identity) -> None:
        self._policy = Policy(file.policy)
        self._mark = StateMark(file.identity, file.state)
        self._mark.begin()
        files.remove_parts(file.state)
        self._submissions = Submissions(identity, revoked_file=file.state / REVOKED_FILE)
        self._audit = AuditLog(file.state / AUDIT_FILE, file_bytes=file.audit_file_bytes, monthly=file.audit_monthly)
        # Replies of an earlier life may leave only under the policy, and of the data, that this file names.
        terms = file.model_dump_json(include={"policy", "datasets", "models"})
        self._deaf = False
        """Whether decisions on jobs cannot be written down."""
        self._approvals = Approvals(Book(file.state), file.policy.approve, self._decided)
        self._store = ReplyStore(file.state / "outbox", terms)
        self._folders = live_folders(file)
        self._metrics = _metrics(file, self._folders)
        self._sums = SumSite(
            lambda: Identity.load(file.identity), file.policy.secure_sum, accepted(file), Once(file.state)
        )
        self._worker = Worker()
        self._runner = TaskRunner(
            Requests.of_all_rooms(),
            lambda: _maths().STEPS,
            self._open_job,
            self._permit,
            self._record,
            self._refused,
            file.state,
            max_body_bytes=file.max_body_bytes,
            admit=self._admit,
        )
        self.session = ClientSession(
            lambda: Identity.load(file.identity),
            file.coordinator,
            Offer(version("kernfed"), tuple((name, _partitions(d)) for name, d in sorted(file.datasets.items()))),
            Answering(
                self._runner, self._worker, self._store, file.max_memory_bytes, self._submissions, self._approvals
            ),
            file.reconnect_max_s,
            lambda address, me, _err: diagnose_failure(address, me),
            self._trouble,
        )

    def _unknown_revocations(self) -> str:
        """Why it is not known who was revoked lately; empty: it is, or nobody can have said so yet."""
        return self._submissions.revoked.stale() if self.session.connected else ""

    def _waits(self) -> str:
        """What cannot go on, for this site: paths are named."""
        stale = self._unknown_revocations() if self._policy.needs_fresh_list else ""
        said = (NOTICES.waiting(self._folders), self._runner.waits, stale, self._mark.lost)
        return "; ".join(filter(None, said))

    def _trouble(self) -> str:
        """The same for operators, in words that tell nothing else of the site."""
        said = []
        if self._mark.lost:
            said.append(TO_OPERATORS)
        if self._policy.needs_fresh_list and self._unknown_revocations():
            said.append("refuses jobs: it is not known here who was revoked lately")
        if self._runner.waits or NOTICES.waiting(self._folders):
            said.append("waits for space on its disk")
        return "; ".join(said)

    def _open_job(self, job_id: str, folder: Path) -> Any:
        job = _maths().LocalJob(job_id, self.name, self._file, folder=folder)
        job.memory(SumSeats).sums = self._sums.of_job(job_id)
        return job

    def _permit(self, request: Request[Any], task: task_pb2.Task, num_rows: int | None) -> None:
        if request.kinds:
            self._mark.check()
        job = self._submissions.proven(task)
        stale = self._submissions.revoked.stale()
        if job is None:
            self._policy.check_signed(None)
        else:
            self._policy.check_signed(job.signed, job.unread, stale)
        if job is not None and job.file is not None:
            self._policy.check_job(job.file, job.signed.operator, self.name)
            if other := contradiction(job.file, request, task.round, former=bool(job.signed.job_id)):
                raise SubmissionError(f"{other}, which operator {job.signed.operator} signed; look at the coordinator")
        self._policy.check(request, task.submitted_by, task.method, num_rows, task.cohort_size)

    def _admit(self, task: task_pb2.Task, answered: bool) -> None:
        self._approvals.admit(task, self._submissions.known(task.job_id), answered=answered)

    def _decided(self, entry: Entry, said: Decision) -> None:
        self._audit.decided(
            job_id=entry.job,
            operator=entry.operator,
            submission=entry.submission or None,
            method=entry.method,
            plan=entry.plan,
            word=said.word.value,
            why=said.why,
            user=said.user,
            decided_at=said.when,
        )

    def _record(self, task: task_pb2.Task, request: Request[Any], reply: Reply, payload: Payload) -> None:
        self._audit.record(
            job_id=task.job_id,
            task_id=task.task_id,
            step=task.step,
            operator=task.submitted_by,
            submission=self._submission(task),
            revocations=self._submissions.revoked.judged_by,
            kinds=request.kinds,
            remark=request.remark,
            request=request,
            request_sha256=task.request_sha256,
            reply=reply,
            header=payload.header,
            body=payload.segments(),
            num_bytes=len(payload.header) + payload.body_size,
            num_numbers=sum(array.size for array in payload.arrays),
        )
        if self._metrics is not None:
            self._metrics.replied(task.step, len(payload.header) + payload.body_size)

    def _refused(self, task: task_pb2.Task, err: PolicyError) -> None:
        self._audit.refused(
            job_id=task.job_id,
            task_id=task.task_id,
            step=task.step,
            operator=task.submitted_by,
            submission=self._submission(task),
            method=task.method,
            request_sha256=task.request_sha256,
            reason=err.reason,
            message=str(err),
        )
        if self._metrics is not None and not isinstance(err, ApprovalError):  # what waits may still be answered
            self._metrics.refused(task.step, err.reason)

    def _submission(self, task: task_pb2.Task) -> str | None:
        """Digest of the submission that proves the task's operator and method; None: the coordinator says so."""
        job = self._submissions.known(task.job_id)
        return None if job is None or job.signed.sha256 != task.submission_sha256 else job.signed.sha256.hex()

    async def _hear_decisions(self) -> None:
        """Do what people here decided on jobs."""
        try:
            self.session.tasks.decided(await asyncio.to_thread(self._approvals.news))
        except (OSError, KernfedError) as err:  # it counts once the log has it
            if not self._deaf:
                log.error("what was decided on a job waits for the audit log", error=str(err))
            self._deaf = True
        else:
            self._deaf = False

    async def run(self, stop: asyncio.Event, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop` is set.

        Args:
            stop: Set by a signal.
            ready: Called once, when the first session is open.
        """
        log.info("client starts", client=self.name, datasets=sorted(self._file.datasets), state=str(self._file.state))

        connected = threading.Event()

        async def announce() -> None:
            await self.session.wait_connected()
            connected.set()
            ready()

        def prepare() -> tuple[str, str]:
            connected.wait(CONNECTS_FIRST_S)  # here, so that no task comes before it
            found: tuple[str, str] = _maths().prepare(self._file)
            gc.freeze()  # what was loaded stays: to look for what jobs leave costs little then
            return found

        async def warm_up() -> None:
            try:
                device, note = await self._worker.run(prepare)
            except KernfedError as err:  # steps that compute will say so too
                log.error("no device to compute on", error=str(err))
                device, note = "none", str(err)
            self.session.report_device(device, note)

        if self._metrics is not None:
            self._metrics.serve(
                lambda: self.session.connected,
                self._waits,
                lambda: Identity.load(self._file.identity, check_dates=False).not_after,
            )

        async def forget_old() -> None:
            while True:  # not at the start: a job that still runs asks soon
                await asyncio.sleep(LOOK_S)
                await self._worker.run(self._runner.forget_old)

        async def follow_decisions() -> None:
            while True:
                await self._hear_decisions()
                await asyncio.sleep(DECISIONS_EVERY_S)

        await self._hear_decisions()  # before anything of a job that was refused meanwhile is sent again
        session = self.session
        health = keep_health_written(
            self._file.state,
            lambda: session.connected,
            lambda: session.idle_cuts.text,
            lambda: NOTICES.text(self._folders),
            self._waits,
            lambda: "" if self._policy.needs_fresh_list else self._unknown_revocations(),
        )
        renewal = keep_renewed(self._file.identity, on_renewed=lambda _: session.dial_again())
        tasks = [
            asyncio.ensure_future(coroutine)
            for coroutine in (
                *(self.session.run(), renewal, health, forget_old(), follow_decisions()),
                *(announce(), warm_up()),
            )
        ]
        stopped = asyncio.ensure_future(stop.wait())
        try:
            endless = tasks[:5]
            done, _ = await asyncio.wait([stopped, *endless], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopped}:
                task.result()
        finally:
            for task in (*tasks, stopped):
                task.cancel()
            await asyncio.wait([*tasks, stopped], timeout=5)
            self._worker.close()
            self._audit.close()
            self._store.close()
            self._held.release()
            if self._metrics is not None:
                self._metrics.stop()
            log.info("client stops", client=self.name)


def _metrics(file: ClientFile, streams: Sequence[tuple[str, Path]]) -> ClientMetrics | None:
    where = file.metrics_at
    if where is None:
        return None
    from kernfed_client.daemon.metrics import ClientMetrics  # noqa: PLC0415  # where an address is set alone

    return ClientMetrics(where, file.state, streams)


def _maths() -> ModuleType:
    """What computes, which takes seconds to load: in the worker's thread alone, while the session opens."""
    from kernfed_client.daemon import maths  # noqa: PLC0415  # loads torch

    return maths


def _partitions(dataset: DatasetSection) -> tuple[str, ...]:
    return tuple(part for part in PARTITIONS if getattr(dataset, part) is not None)


async def serve(file: ClientFile) -> None:
    """Run a daemon until SIGTERM or SIGINT."""
    stop = stop_signal()
    async with open_feeds(file):
        await ClientDaemon(file).run(stop)
