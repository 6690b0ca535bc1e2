"""How much a coordinator may leave with this client at once: requests that arrive, wait or are computed, and answers.

An honest coordinator asks the next step of a job when it has closed the last one. One that asks far beyond that, or
takes none of the answers that it asked for, fills this client's memory: its session ends, and what is here is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from kernfed.errors import PayloadTooLargeError, WireError
from kernfed.memory import available_bytes
from kernfed.v1 import task_pb2
from kernfed.wire.frames import MAX_ID
from kernfed.wire.incoming import IncomingPayload
from kernfed_client.daemon.worker import Worker

MAX_OPEN, MAX_OPEN_OF_JOB = 32, 8
"""Tasks that are not answered, or whose answers were not taken: of all jobs, and of one."""
MAX_ENDING = 1000
"""Jobs whose end waits for the step that is computed."""
SMALL = 2 << 20
"""Bytes up to which a request's body is taken without a look at the memory: their number is bounded."""


@dataclass(eq=False, slots=True)
class UnderWay:
    """A task that is being received or computed, or waits for its turn."""

    task: task_pb2.Task
    incoming: IncomingPayload
    turn: int = 0
    """Its place in the worker's queue; 0: it is still arriving."""


class Intake:
    """Tasks that are being received or computed, or wait for their turn."""

    def __init__(
        self, worker: Worker, max_memory_bytes: int | None, available: Callable[[], int] = available_bytes
    ) -> None:
        """Begin with none.

        Args:
            worker: Where complete requests wait.
            max_memory_bytes: Of the client file: what all bodies together may take; None: 9/10 of what is available.
            available: Tells how much that is.
        """
        self._worker = worker
        self._max_memory_bytes = max_memory_bytes
        self._available = available
        self._tasks: dict[str, UnderWay] = {}

    @property
    def digests(self) -> Mapping[str, bytes]:
        """Digest of the request of each task."""
        return {task_id: held.task.request_sha256 for task_id, held in self._tasks.items()}

    def of_job(self, job_id: str) -> list[str]:
        """Tasks of a job."""
        return [task_id for task_id, held in self._tasks.items() if held.task.job_id == job_id]

    def __contains__(self, task_id: str) -> bool:
        """Whether a task has no answer yet."""
        return task_id in self._tasks

    def holds(self, task: task_pb2.Task) -> bool:
        """Whether this very request of a task is here; one that it replaces is not wanted any more."""
        held = self._tasks.get(task.task_id)
        return held is not None and held.task.request_sha256 == task.request_sha256

    def find(self, task: task_pb2.Task) -> UnderWay | None:
        """What is here of a task, unless it was dropped or asked anew meanwhile."""
        held = self._tasks.get(task.task_id)
        return held if held is not None and held.task is task else None

    def check_count(self, job_id: str, not_taken: Collection[str]) -> None:
        """Refuse one more task of a coordinator that left too many here.

        Args:
            job_id: Of the task.
            not_taken: Jobs of the answers that the coordinator has not acknowledged, one per answer.

        Raises:
            WireError: Too many of all jobs, or of this one.
        """
        of_job = len(self.of_job(job_id)) + sum(job == job_id for job in not_taken)
        if len(self._tasks) + len(not_taken) >= MAX_OPEN or of_job >= MAX_OPEN_OF_JOB:
            raise WireError(
                f"the coordinator leaves more than {MAX_OPEN} tasks with this client, or {MAX_OPEN_OF_JOB} of one "
                "job, before it takes their answers; an honest one does not: ask its operator what runs there"
            )

    def admit(self, task: task_pb2.Task, receive: Callable[[task_pb2.Task], IncomingPayload]) -> IncomingPayload:
        """Make room for a task's request.

        Args:
            task: That arrives.
            receive: Makes the place for its body, which is at most as large as it states.

        Raises:
            PayloadTooLargeError: The body has no room beside those that are here.
        """
        self._check_room(task)
        incoming = receive(task)
        self._tasks[task.task_id] = UnderWay(task, incoming)
        return incoming

    def _check_room(self, task: task_pb2.Task) -> None:
        size = task.payload.body_size
        if size <= SMALL:
            return
        held, limit = self._tasks.values(), self._max_memory_bytes
        if limit is None:
            needed, limit = size + sum(h.incoming.missing for h in held), self._available() * 9 // 10
        else:
            needed = size + sum(h.incoming.size for h in held)
        if needed > limit:
            raise PayloadTooLargeError(
                f"requests of {needed / 2**20:.0f} MiB at once, and {limit / 2**20:.0f} MiB may be used here; "
                "lower features.num_frequencies in the job, or raise max_memory_bytes of the client file"
            )

    def leave(self, task_id: str) -> None:
        """Give a task up: what waits for its turn goes at once, what is computed when it is over."""
        held = self._tasks.pop(task_id, None)
        if held is not None and held.turn and self._worker.withdraw(held.turn):
            held.incoming.abandon()


def check_names(*names: str) -> None:
    """Refuse what is no name of anything.

    Raises:
        WireError: A name is too long.
    """
    if any(len(name) > MAX_ID for name in names):
        raise WireError(f"the coordinator sends a name of more than {MAX_ID} characters")
