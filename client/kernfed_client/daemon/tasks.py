"""From a task to its answer: policy, step, encoding, audit; and what is kept of a job between tasks.

A job's setup requests (schema, scales, feature map) are kept on disk, so that a daemon that was restarted rebuilds the
job's data by itself when the next task comes.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from google.protobuf.message import DecodeError

from kernfed.errors import JobStateMissingError, KernfedError, StepFailedError, UnknownStepError, WireError
from kernfed.federation.messages.base import Reply, Request
from kernfed.v1 import task_pb2
from kernfed.wire.codec import encode
from kernfed.wire.incoming import IncomingPayload
from kernfed.wire.outgoing import payload_to_proto
from kernfed.wire.payload import Payload
from kernfed_client.daemon.disk import until_kept

log = structlog.get_logger(__name__)

StepFunction = Callable[[Any, Any], Reply]

KEPT_JOBS = 8
"""Jobs whose data stay in memory, those last asked for."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A reply ready to be sent."""

    payload: Payload
    compute_s: float


class TaskRunner:
    """Answers tasks; used from the worker's thread only.

    Args:
        requests: What this client agrees to answer.
        load_steps: Gives the steps, by request type; called once, when the first is run, for it loads torch.
        open_job: Makes a job's local state: (job id, folder for its files) -> local job.
        permit: Raises PolicyError for a request that may not be answered: (request, task, num_rows or None).
        record: Writes a reply into the audit log before it leaves: (task, request, reply, payload).
        state: Folder for the jobs' files.
        max_body_bytes: Largest request body.
    """

    def __init__(
        self,
        requests: Iterable[type[Request[Any]]],
        load_steps: Callable[[], Mapping[type[Request[Any]], StepFunction]],
        open_job: Callable[[str, Path], Any],
        permit: Callable[[Request[Any], task_pb2.Task, int | None], None],
        record: Callable[[task_pb2.Task, Request[Any], Reply, Payload], None],
        state: Path,
        max_body_bytes: int,
    ) -> None:
        self._requests = {request.step: request for request in requests}
        self._load_steps = load_steps
        self._open_job = open_job
        self._permit = permit
        self._record = record
        self._state = state
        self._max_body_bytes = max_body_bytes
        self._jobs: OrderedDict[str, Any] = OrderedDict()

    @property
    def step_names(self) -> list[str]:
        """Wire names of the steps, sorted."""
        return sorted(self._requests)

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
            reply = until_kept(lambda: self._run(task, request), "the job's state", wanted)
            payload = encode(reply, task.float_bits or 64)
            until_kept(lambda: self._record(task, request, reply, payload), "the audit log", wanted)
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
        return Answered(payload, time.perf_counter() - started)

    def _run(self, task: task_pb2.Task, request: Request[Any]) -> Reply:
        job = self._jobs.get(task.job_id)
        if job is None:
            job = self._open_job(task.job_id, self._folder(task.job_id))
            self._rebuild(task, job, request)
            self._jobs[task.job_id] = job
            # Of a job that ends while this client is away it is never told; one that comes back is rebuilt.
            while len(self._jobs) > KEPT_JOBS:
                self._jobs.popitem(last=False)
        self._jobs.move_to_end(task.job_id)
        self._permit(request, task, _rows_of(job))
        reply = self._steps[type(request)](job, request)
        # Before the reply is sent: rows of a data set are known only once it is loaded.
        self._permit(request, task, _rows_of(job))
        if request.setup:
            self._keep(task, request)
        return reply

    def _folder(self, job_id: str) -> Path:
        # A job id comes from a peer, so it never becomes a path: its digest does.
        return self._state / "jobs" / hashlib.sha256(job_id.encode()).hexdigest()[:32]

    def _keep(self, task: task_pb2.Task, request: Request[Any]) -> None:
        folder = self._folder(task.job_id) / "setup"
        folder.mkdir(parents=True, exist_ok=True)
        payload = encode(request)
        kept = task_pb2.Task(
            task_id=task.task_id,
            job_id=task.job_id,
            step=task.step,
            submitted_by=task.submitted_by,
            method=task.method,
            payload=payload_to_proto(payload, 0),
        )
        kept.payload.transfer = 0
        kept.payload.inline_body = payload.body()
        path = folder / f"{self._setup_order(request):02d}.task"
        temporary = path.with_suffix(".tmp")
        temporary.write_bytes(kept.SerializeToString())
        os.replace(temporary, path)

    def _setup_order(self, request: Request[Any]) -> int:
        """Place of a request among the setup steps; after all of them for any other step."""
        steps = [r.step for r in self._steps if r.setup]
        return steps.index(request.step) if request.setup else len(steps)

    def _rebuild(self, task: task_pb2.Task, job: Any, request: Request[Any]) -> None:
        """Repeat the setup steps that come before `request`, from what an earlier life of the daemon kept."""
        folder = self._folder(task.job_id) / "setup"
        kept_files = sorted(folder.glob("*.task")) if folder.is_dir() else []
        files = [path for path in kept_files if int(path.stem) < self._setup_order(request)]
        for path in files:
            try:
                kept = task_pb2.Task.FromString(path.read_bytes())
                setup = self.incoming(kept).message()
            except (OSError, DecodeError, WireError) as err:  # a broken disk, or another release wrote it
                log.warning("kept setup of a job cannot be read", job_id=task.job_id, error=str(err))
                shutil.rmtree(folder, ignore_errors=True)
                raise JobStateMissingError("what was kept of this job cannot be read; it is prepared again") from err
            assert isinstance(setup, Request)  # noqa: S101  # as above
            self._permit(setup, kept, _rows_of(job))
            self._steps[type(setup)](job, setup)
        if files:
            log.info("job state rebuilt after restart", job_id=task.job_id, num_setup_steps=len(files))

    def drop_job(self, job_id: str) -> None:
        """A job is over: forget its state; its own models stay."""
        self._jobs.pop(job_id, None)
        shutil.rmtree(self._folder(job_id) / "setup", ignore_errors=True)


def _rows_of(job: Any) -> int | None:
    """Training rows of a job whose data are loaded, else None."""
    try:
        rows: int = job.num_rows
    except (AttributeError, JobStateMissingError):
        return None
    return rows
