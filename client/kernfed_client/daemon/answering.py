"""A client's tasks, from their arrival until the coordinator has taken their answers, whatever becomes of the line.

Computations go on without one, and answers wait in the outbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from kernfed.errors import ApprovalError, JobCancelledError, KernfedError, WireError
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed.wire.frames import MAX_DECIDED_JOBS, MAX_TEXT
from kernfed.wire.incoming import IncomingPayload
from kernfed.wire.outgoing import Outgoing
from kernfed_client.approval.gate import Approvals, News
from kernfed_client.daemon.intake import MAX_ENDING, Intake, check_names
from kernfed_client.daemon.operators.submissions import Submissions
from kernfed_client.daemon.outbox import Outbox
from kernfed_client.daemon.reply_store import ReplyStore
from kernfed_client.daemon.tasks import Answered, TaskRunner
from kernfed_client.daemon.worker import Worker

log = structlog.get_logger(__name__)


class Answering:
    """Has tasks computed, keeps their answers, and sends them over the line that there is."""

    def __init__(
        self,
        runner: TaskRunner,
        worker: Worker,
        store: ReplyStore | None = None,
        max_memory_bytes: int | None = None,
        submissions: Submissions | None = None,
        approvals: Approvals | None = None,
    ) -> None:
        """Begin with the answers that an earlier life kept.

        Args:
            runner: Answers tasks.
            worker: Thread that it runs in.
            store: Keeps replies over the death of this process; None: they are computed again.
            max_memory_bytes: Of the client file.
            submissions: Takes what operators signed; None: nobody looks at it.
            approvals: What people at the site decide on jobs; None: they have no say.
        """
        self._runner = runner
        self._worker = worker
        self._store = store
        self._submissions = submissions
        self._approvals = approvals
        self._outbox = Outbox()
        for reply in store.restore() if store else ():
            self._outbox.restore(reply)
        self._intake = Intake(worker, max_memory_bytes)
        self._ending = 0
        """Jobs that are over, and whose state is still to be dropped."""
        self._line: Outgoing | None = None
        self._withheld: set[str] = set()
        """Tasks whose replies leave once the audit log has what people decided on their jobs."""

    @property
    def step_names(self) -> Sequence[str]:
        """Steps that the runner answers."""
        return self._runner.step_names

    @property
    def later_fields(self) -> Sequence[str]:
        """Fields of their requests that releases before may not know."""
        return self._runner.later_fields

    @property
    def known(self) -> Mapping[str, bytes]:
        """Digest of the request of each task that need not be sent again."""
        answered = {task_id: self._outbox.request_sha256(task_id) for task_id in self._outbox.undelivered()}
        return {**answered, **self._intake.digests}

    def connected(self, line: Outgoing) -> None:
        """There is a line: send what waits for one."""
        self._line = line
        for task_id in self._outbox.undelivered():
            self._send_answer(task_id)

    def disconnected(self, unfinished: Sequence[str] = ()) -> None:
        """There is no line any more; `unfinished` are the tasks whose requests were still arriving."""
        self._line = None
        self._withheld.clear()
        for task_id in unfinished:
            self._intake.leave(task_id)
        for task_id in self._outbox.failed(ApprovalError.reason):  # it may be decided by the time of the next line
            self._outbox.drop(task_id)

    def _send_answer(self, task_id: str) -> None:
        if self._line is None or not self._outbox.holds(task_id):
            return
        job = self._outbox.reply_of(task_id)
        if job is not None and self._approvals is not None and self._approvals.withholds(job):
            self._withheld.add(task_id)
        else:
            frame, body = self._outbox.frame(task_id)
            self._line.put(frame, body)

    def told(self, submission: task_pb2.JobSubmission) -> None:
        """The coordinator passes on what a job's operator signed."""
        if self._submissions is not None:
            self._submissions.told(submission)

    def told_revoked(self, der: bytes) -> None:
        """The coordinator passes on which operators were revoked."""
        if self._submissions is not None:
            self._submissions.revoked.told(der)

    def begin(self, task: task_pb2.Task) -> IncomingPayload | None:
        """A task arrives: answer it from the outbox, or make room for its request.

        Raises:
            WireError: No honest coordinator sends this, or sends it now.
        """
        check_names(task.job_id, task.task_id, task.submitted_by, task.method)
        if self._submissions is not None:
            self._submissions.used(task.job_id)
        moves_state = self._runner.moves_state(task.step)
        # The state on disk has the answer to its last step, and knows whether there were later ones.
        known = self._approvals is None or self._approvals.knows(task.job_id)
        if known and self._outbox.answers(task) and not (moves_state and self._outbox.restored(task.task_id)):
            if self._outbox.delivered(task.task_id):  # any other is on its way already
                self._outbox.asked(task.task_id)
                self._send_answer(task.task_id)
            return None
        if self._intake.holds(task):
            return None
        if self._outbox.holds(task.task_id):
            log.info("a task that was answered is computed anew", task_id=task.task_id)
            self._drop_answer(task.task_id)
        self._intake.leave(task.task_id)
        self._intake.check_count(task.job_id, self._outbox.not_taken())
        try:
            return self._intake.admit(task, self._runner.incoming)
        except KernfedError as err:
            self._fail(task, err)
            return None

    def _drop_answer(self, task_id: str) -> None:
        self._stop_sending(task_id)
        self._outbox.drop(task_id)
        self._forget(task_id)

    def compute(self, task: task_pb2.Task, incoming: IncomingPayload) -> None:
        """Run a step and send its answer, over whatever connection there is by then."""
        held = self._intake.find(task)
        if held is None:
            return  # asked anew while it arrived

        def answered(answer: Answered | None, error: BaseException | None) -> None:
            if self._intake.find(task) is None:
                if task.task_id not in self._intake:
                    self._forget(task.task_id)
                return  # cancelled meanwhile, or asked anew
            self._intake.leave(task.task_id)
            if isinstance(error, KernfedError):
                log.warning("step refused or failed", task_id=task.task_id, reason=error.reason, error=str(error))
                self._fail(task, error)
            elif answer is None:
                raise error or RuntimeError("a step ended without an answer")
            else:
                once = self._runner.moves_state(task.step) and not answer.setup
                for task_id in self._outbox.superseded(task, once=once, place=answer.place if answer.setup else None):
                    self._drop_answer(task_id)
                self._outbox.add_reply(task, answer.payload, answer.compute_s, once=once, place=answer.place)
                self._send_answer(task.task_id)

        def answer() -> Answered:
            if self._intake.find(task) is None:
                raise JobCancelledError("the task was cancelled before its turn came")
            answered = self._runner.answer(task, incoming, lambda: self._intake.find(task) is not None)
            if self._store is not None:
                self._store.put(task, answered.payload, answered.compute_s)
            return answered

        held.turn = self._worker.submit(answer, answered)

    def _fail(self, task: task_pb2.Task, err: KernfedError) -> None:
        failure = task_pb2.TaskFailure(
            task_id=task.task_id, reason=err.reason, message=err.public[:MAX_TEXT], request_sha256=task.request_sha256
        )
        self._outbox.add_failure(task.job_id, failure)
        self._send_answer(task.task_id)
        if isinstance(err, ApprovalError):
            if self._line is None:
                self._outbox.drop(task.task_id)
            elif self._approvals is not None and not self._approvals.held(task.job_id):
                self._tell_decided([task.job_id])  # meanwhile

    def decided(self, news: Sequence[News]) -> None:
        """People at the site decided on jobs: what waited for it is asked again, and nothing leaves of one refused.

        Called after each look at what they decided, once the audit log has all of it.
        """
        for job in news:
            if job.refused:
                for task_id in self._outbox.of_job(job.job_id):
                    self._drop_answer(task_id)
        withheld, self._withheld = self._withheld, set()
        for task_id in sorted(withheld):
            self._send_answer(task_id)
        for i in range(0, len(news), MAX_DECIDED_JOBS):
            self._tell_decided([job.job_id for job in news[i : i + MAX_DECIDED_JOBS]])

    def _tell_decided(self, job_ids: Sequence[str]) -> None:
        if self._line is not None:
            self._line.put(pb.ConnectRequest(heartbeat=pb.Heartbeat(decided_job_ids=job_ids)).SerializeToString())

    def acknowledged(self, ack: task_pb2.TaskAck) -> None:
        """The coordinator has an answer, or refuses it."""
        if ack.refused and self._outbox.holds(ack.task_id):
            log.warning("answer not taken by the coordinator", task_id=ack.task_id, why=ack.refused[:MAX_TEXT])
        self._stop_sending(ack.task_id)  # it may be a second copy of what the coordinator has
        self._outbox.acknowledge(ack.task_id)
        self._forget(ack.task_id)

    def cancelled(self, cancel: task_pb2.Cancel) -> list[str]:
        """Drop a task, or a whole job with its state; returns the tasks that were not answered yet.

        Raises:
            WireError: The coordinator ends more jobs than there can be.
        """
        check_names(cancel.job_id, cancel.task_id)
        gone = [t for t in self._intake.of_job(cancel.job_id) if cancel.task_id in ("", t)]
        for task_id in gone:
            self._intake.leave(task_id)
        for task_id in [cancel.task_id] if cancel.task_id else self._outbox.of_job(cancel.job_id):
            self._stop_sending(task_id)
        if cancel.task_id:
            self._forget(cancel.task_id)
        else:
            self._outbox.drop_job(cancel.job_id)
            if self._ending >= MAX_ENDING:
                raise WireError(f"the coordinator ends more than {MAX_ENDING} jobs at once")
            self._ending += 1
            # Nobody waits: a step may be under way for minutes, and the line must be read meanwhile.
            self._worker.submit(lambda: self._drop_job(cancel.job_id, cancel.why), self._job_dropped)
        return gone

    def _job_dropped(self, _done: None, error: BaseException | None) -> None:
        self._ending -= 1
        if error is not None:
            log.error("a job's state could not be dropped", exc_info=error)

    def _drop_job(self, job_id: str, why: str) -> None:
        self._runner.drop_job(job_id)
        if self._approvals is not None:
            self._approvals.over(job_id, why)
        if self._submissions is not None:
            self._submissions.forget(job_id)
        if self._store is not None:
            self._store.drop_job(job_id)

    def _forget(self, task_id: str) -> None:
        """Remove a reply from disk."""
        if self._store is None:
            return
        if self._store.is_file(task_id):  # the system may take its time over a large file
            asyncio.get_running_loop().run_in_executor(None, self._store.forget, task_id)
        else:
            self._store.forget(task_id)

    def _stop_sending(self, task_id: str) -> None:
        transfer = self._outbox.transfer(task_id)
        if self._line is not None and transfer:
            self._line.drop(transfer)

    @property
    def busy_task_ids(self) -> Sequence[str]:
        """Tasks being received or computed."""
        return list(self._intake.digests)
