"""From a task to its answer: policy, step, encoding, audit; and what is kept of a job between tasks."""

from __future__ import annotations

import functools
import gc
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import structlog

from kernfed.errors import (
    JobCancelledError,
    JobStateMissingError,
    KernfedError,
    PolicyError,
    StepFailedError,
    UnknownStepError,
    WireError,
)
from kernfed.federation.messages.base import Reply, Request
from kernfed.federation.messages.catalogue import Requests
from kernfed.federation.setup import NOTHING
from kernfed.files import DiskWait, is_full, takes_nothing, until_kept
from kernfed.jobs.client_file import job_folder
from kernfed.v1 import task_pb2
from kernfed.wire.codec import encode
from kernfed.wire.incoming import IncomingPayload
from kernfed.wire.outgoing import payload_to_proto
from kernfed.wire.payload import Payload
from kernfed_client.daemon.kept_setup import SETUP, KeptSetup, remove_many, remove_old, remove_setup

log = structlog.get_logger(__name__)

T = TypeVar("T")
StepFunction = Callable[[Any, Any], Reply]

KEPT_JOBS = 8
"""Jobs whose data stay in memory, those last asked for."""
LONGEST_WAIT_S = 24 * 3600.0
"""After so long without space on the disk a step fails; the job's own deadlines end most waits earlier."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A reply ready to be sent."""

    payload: Payload
    compute_s: float
    place: int = 0
    """Of the last setup step that it stands on, in the order of the job's; its own where it is one."""
    setup: bool = False
    """Whether it is the answer to a setup step: what was computed on top of an earlier answer to it is void."""


class TaskRunner:
    """Answers tasks; used from the worker's thread only.

    Args:
        requests: What this client agrees to answer.
        load_steps: Gives the steps, by request type; called once, when the first is run, for it loads torch.
        open_job: Makes a job's local state: (job id, folder for its files) -> local job.
        permit: Raises PolicyError for a request that may not be answered: (request, task, num_rows or None).
        record: Writes a reply into the audit log before it leaves: (task, request, reply, payload).
        refuse: Writes a refusal by the policy into the audit log: (task, error).
        state: Folder for the jobs' files.
        max_body_bytes: Largest request body.
        admit: Raises PolicyError where people at the site hold the job up: (task, whether its reply is computed).
    """

    def __init__(
        self,
        requests: Requests,
        load_steps: Callable[[], Mapping[type[Request[Any]], StepFunction]],
        open_job: Callable[[str, Path], Any],
        permit: Callable[[Request[Any], task_pb2.Task, int | None], None],
        record: Callable[[task_pb2.Task, Request[Any], Reply, Payload], None],
        refuse: Callable[[task_pb2.Task, PolicyError], None],
        state: Path,
        max_body_bytes: int,
        admit: Callable[[task_pb2.Task, bool], None] = lambda _task, _answered: None,
    ) -> None:
        self._requests = requests
        self._load_steps = load_steps
        self._open_job = open_job
        self._permit = permit
        self._record = record
        self._refuse = refuse
        self._admit = admit
        self._state = state
        self._max_body_bytes = max_body_bytes
        self._jobs: OrderedDict[str, tuple[Any, KeptSetup]] = OrderedDict()
        self._closed = 0
        self.waits = ""
        """What a step waits for that is under way, for people; empty: nothing."""

    @property
    def step_names(self) -> list[str]:
        """Wire names of the steps, sorted."""
        return sorted(self._requests)

    @property
    def later_fields(self) -> list[str]:
        """Fields of these steps' requests that releases before may not know, sorted."""
        return self._requests.later_fields

    def moves_state(self, step: str) -> bool:
        """Whether a step makes or moves what this client keeps of the job, or tells of it."""
        request = self._requests.get(step)
        return request is not None and (request.once or request.setup)

    @functools.cached_property
    def _steps(self) -> Mapping[type[Request[Any]], StepFunction]:
        return self._load_steps()

    def incoming(self, task: task_pb2.Task) -> IncomingPayload:
        """Begin to receive a task's request.

        Raises:
            UnknownStepError: This client does not run the step.
            WireError: The request is malformed or too large.
        """
        known = self._requests.get(task.step)
        if known is None:
            raise UnknownStepError(
                f"this client does not run the step {task.step[:100]!r}; it may need a newer release of kernfed"
            )
        return IncomingPayload(known, task.payload, self._max_body_bytes, {})

    def answer(
        self, task: task_pb2.Task, incoming: IncomingPayload, wanted: Callable[[], bool] = lambda: True
    ) -> Answered:
        """Run a step; wait where the disk is full, for what leaves must be noted first.

        Args:
            task: The task.
            incoming: Its request, complete.
            wanted: Whether the task has not been cancelled.

        Raises:
            KernfedError: The step is refused or failed; its text may cross the wire.
        """
        started = time.perf_counter()
        try:
            request = incoming.message()
            assert isinstance(request, Request)  # noqa: S101  # `incoming` was made for a request class
            reply = self._until_kept(lambda: self._run(task, request), "the job's state", wanted)
            payload = encode(reply, task.float_bits or 64)
            self._until_kept(lambda: self._record(task, request, reply, payload), "the audit log", wanted)
        except PolicyError as err:
            refusal = err
            self._until_kept(lambda: self._refuse(task, refusal), "the audit log", wanted)
            raise
        except KernfedError:
            raise
        except MemoryError as err:
            log.exception("step ran out of memory", task_id=task.task_id)
            raise StepFailedError(
                f"{task.step}: out of memory at the client; use fewer features or rows, or a larger machine"
            ) from err
        except Exception as err:
            log.exception("step failed", task_id=task.task_id)
            raise StepFailedError(
                f"{task.step}: unexpected {type(err).__name__}; the client's log has the trace"
            ) from err
        return Answered(
            payload, time.perf_counter() - started, self._jobs[task.job_id][1].place(task.step), request.setup
        )

    def _until_kept(self, attempt: Callable[[], T], what: str, wanted: Callable[[], bool]) -> T:
        """Do what writes to the disk; while that takes nothing, wait, say so in the log, and do it again.

        Args:
            attempt: May be repeated after it failed.
            what: What is to be written, for the texts.
            wanted: Whether anybody still waits for the result.

        Raises:
            JobCancelledError: Nobody waits any more.
            StepFailedError: It was full, or read-only, for `LONGEST_WAIT_S`.
            OSError: Another fault of the disk.
        """

        def cause(err: Exception) -> str | None:
            if not isinstance(err, OSError) or takes_nothing(err) is None:
                return None
            if not wanted():
                raise JobCancelledError(f"the task was cancelled while {what} waited for space on the disk") from err
            return what

        def tell(_: str, err: Exception | None) -> None:
            if err is None:
                self.waits = ""
                log.info("space on the disk again: the step goes on", what=what)
            else:
                remedy = takes_nothing(err)
                self.waits = (
                    f"a step waits for disk: {what} cannot be written ({err}); {remedy}, and it goes on by itself"
                )
                full = "disk full: the step waits for space" if is_full(err) else "disk read-only: the step waits"
                log.error(full, what=what, error=str(err), remedy=remedy)

        def give_up(_: str, err: Exception, waited_s: float) -> Exception:
            state = "full" if is_full(err) else "read-only"
            return StepFailedError(
                f"{what} cannot be written: the client's disk has been {state} for {waited_s:.0f} s; "
                f"{takes_nothing(err)} there"
            )

        try:
            return until_kept(attempt, DiskWait(LONGEST_WAIT_S, cause, tell, give_up))
        finally:
            self.waits = ""

    def _run(self, task: task_pb2.Task, request: Request[Any]) -> Reply:
        job, setup = self._prepared(task, request)
        self._permit(request, task, rows_of(job))
        self._admit(task, False)
        if not setup.stands_on(type(request), task.setup_sha256):
            if task.setup_sha256 != NOTHING:
                raise JobStateMissingError("what was set up here is not what the coordinator counts on")
            self.drop_job(task.job_id)  # the coordinator begins anew, and what is here came in another order
            job, setup = self._prepared(task, request)
        reply = self._steps[type(request)](job, request)
        # Before the reply is sent: rows of a data set are known only once it is loaded.
        self._permit(request, task, rows_of(job))
        self._admit(task, True)
        if request.setup:
            setup.keep(_complete(task, request), type(request))
        return reply

    def _prepared(self, task: task_pb2.Task, request: Request[Any]) -> tuple[Any, KeptSetup]:
        """The state of a task's job, and what of its setup is kept; after a restart it is rebuilt first."""
        if task.job_id not in self._jobs:
            folder = job_folder(self._state, task.job_id)
            setup, job = KeptSetup(folder / SETUP), self._open_job(task.job_id, folder)
            self._rebuild(task, request, job, setup)
            self._jobs[task.job_id] = job, setup
            # Of a job that ends while this client is away it is never told; one that comes back is rebuilt.
            while len(self._jobs) > KEPT_JOBS:
                self._close(next(iter(self._jobs)))
            remove_many(self._state / "jobs", self._live_folders())
        self._jobs.move_to_end(task.job_id)
        return self._jobs[task.job_id]

    def _rebuild(self, task: task_pb2.Task, request: Request[Any], job: Any, kept: KeptSetup) -> None:
        """Repeat the setup steps that come before a task, from what an earlier life of the daemon kept."""
        earlier = kept.before(task.step, leaves_later=request.leaves_later)
        for setup_task in earlier:
            try:
                setup = self.incoming(setup_task).message()
            except WireError as err:  # another release wrote it
                log.warning("kept setup of a job cannot be read", job_id=task.job_id, error=str(err))
                raise kept.unreadable() from err
            assert isinstance(setup, Request)  # noqa: S101  # `incoming` was made for a request class
            setup_task.cohort_size = task.cohort_size  # as it is by now
            setup_task.submission_sha256 = task.submission_sha256
            self._permit(setup, setup_task, rows_of(job))
            self._steps[type(setup)](job, setup)
        if earlier:
            log.info("job state rebuilt after restart", job_id=task.job_id, num_setup_steps=len(earlier))

    def drop_job(self, job_id: str) -> None:
        """A job is over: forget its state. Its own models stay; blocks of rows of which nothing was told go back."""
        if job_id in self._jobs:
            settle = getattr(self._jobs[job_id][0], "settle_blocks", None)
            try:
                if settle is not None:
                    settle(refused=True)
            except OSError as err:  # they stay used then
                log.warning("blocks of rows of a job that is over are not given back", job_id=job_id, error=str(err))
        self._close(job_id)
        remove_setup(job_folder(self._state, job_id))

    def _close(self, job_id: str) -> None:
        """Let go of a job's data. What methods keep leads back to it, with files that are open, so it is looked for."""
        if self._jobs.pop(job_id, None) is not None:
            self._closed += 1
            if self._closed % KEPT_JOBS == 0:
                gc.collect()

    def forget_old(self) -> None:
        """Remove what is kept of jobs that nobody asked for in a long time: they ended while this client was away.

        Its own models stay. A job that comes back all the same is prepared again.
        """
        remove_old(self._state / "jobs", self._live_folders())

    def _live_folders(self) -> set[Path]:
        return {job_folder(self._state, job_id) for job_id in self._jobs}


def _complete(task: task_pb2.Task, request: Request[Any]) -> task_pb2.Task:
    """A task with its request inside, at full precision."""
    payload = encode(request)
    complete = task_pb2.Task(
        task_id=task.task_id,
        job_id=task.job_id,
        step=task.step,
        submitted_by=task.submitted_by,
        method=task.method,
        payload=payload_to_proto(payload, 0),
        request_sha256=task.request_sha256,
    )
    complete.payload.transfer = 0
    complete.payload.inline_body = payload.body()
    return complete


def rows_of(job: Any) -> int | None:
    """Training rows of a job whose data are loaded, else None."""
    try:
        rows: int = job.num_rows
    except (AttributeError, JobStateMissingError):
        return None
    return rows
