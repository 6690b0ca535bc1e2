"""Replies kept until the coordinator has them, and a while longer: a task asked again is answered from here.

Of steps that move what the client keeps of a job, only the last answer is here: it belongs to the state that there is.
A coordinator that fell back asks for an earlier one. The client then computes it from the state before it, and answers
that came after it belong to a state that is gone. When a setup step is computed anew, so do all answers that were given
on top of it, those of later setup steps too: they have to be done again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed.wire.frames import REQUEST_FRAGMENT_TAG
from kernfed.wire.outgoing import Body, payload_to_proto
from kernfed.wire.payload import INLINE_BYTES, Payload
from kernfed_client.daemon.reply_store import Restored

KEPT_REPLIES = 64
"""Delivered replies kept per job, newest first."""
KEPT_BYTES = 8 << 20
"""A delivered reply larger than this is not kept: computing it again gives the same bits."""
KEPT_OF_ALL_JOBS, KEPT_BYTES_OF_ALL_JOBS = 1024, 64 << 20
"""Delivered replies kept, and their bytes, oldest first to go."""


@dataclass(slots=True)
class Entry:
    """An answer, delivered or not."""

    job_id: str
    payload: Payload | None
    """None for a failure."""
    failure: task_pb2.TaskFailure | None
    compute_s: float
    request_sha256: bytes
    """Of the request that it answers."""
    delivered: bool = False
    restored: bool = False
    """Of an earlier life of the daemon, and not asked for in this one: whether it is wanted is not known."""
    once: bool = False
    """Whether the step moved what the client keeps."""
    place: float = math.inf
    """Of the last setup step that it stands on; of an earlier life: not known."""
    transfer: int = 0
    """Number of the fragments under which the reply was last sent; 0: without fragments."""


class Outbox:
    """Answers by task id."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._kept: dict[str, tuple[str, int]] = {}
        """Delivered replies, oldest first: their jobs and bytes."""
        self._transfers = 0

    def add_reply(
        self, task: task_pb2.Task, payload: Payload, compute_s: float, *, once: bool = False, place: int = 0
    ) -> None:
        """Keep a reply until it is acknowledged.

        Args:
            task: The task.
            payload: Of the reply.
            compute_s: Seconds that it took.
            once: Whether the step moved what the client keeps of the job.
            place: Of the last setup step of the job that the answer stands on.
        """
        entry = Entry(task.job_id, payload, None, compute_s, task.request_sha256, once=once, place=place)
        self._entries[task.task_id] = entry

    def restore(self, found: Restored) -> None:
        """Take in a reply of an earlier life of the daemon: it is sent when its task is asked again, not before."""
        entry = Entry(found.job_id, found.payload, None, found.compute_s, found.request_sha256, restored=True)
        self._entries[found.task_id] = entry

    def add_failure(self, job_id: str, failure: task_pb2.TaskFailure) -> None:
        """Keep a failure until it is acknowledged."""
        self._entries[failure.task_id] = Entry(job_id, None, failure, 0.0, failure.request_sha256)

    def reply_of(self, task_id: str) -> str | None:
        """The job of a task that is answered by a reply; None: it is not answered, or it failed."""
        entry = self._entries.get(task_id)
        return None if entry is None or entry.payload is None else entry.job_id

    def failed(self, reason: str) -> list[str]:
        """Tasks that failed for a reason, of which the coordinator has not said that it knows."""
        kept = self._entries.items()
        return [task_id for task_id, entry in kept if entry.failure is not None and entry.failure.reason == reason]

    def holds(self, task_id: str) -> bool:
        """Whether a task is answered."""
        return task_id in self._entries

    def answers(self, task: task_pb2.Task) -> bool:
        """Whether this very request of a task is answered; where a side tells no digest, the id counts alone."""
        entry = self._entries.get(task.task_id)
        if entry is None:
            return False
        return not entry.request_sha256 or not task.request_sha256 or entry.request_sha256 == task.request_sha256

    def restored(self, task_id: str) -> bool:
        """Whether a task was answered in an earlier life of the daemon, and has not been asked in this one."""
        entry = self._entries.get(task_id)
        return entry is not None and entry.restored

    def request_sha256(self, task_id: str) -> bytes:
        """Digest of the request that a kept answer is for."""
        return self._entries[task_id].request_sha256

    def superseded(self, task: task_pb2.Task, *, once: bool, place: int | None) -> list[str]:
        """Answers that belong to a state which the step of this task has replaced.

        Args:
            task: It was computed.
            once: Whether its step moved what the client keeps of the job.
            place: Of its step among the setup steps of the job; None: it is none.
        """

        def gone(entry: Entry) -> bool:
            return (once and entry.once) or (place is not None and entry.place >= place)

        return [t for t, e in self._entries.items() if e.job_id == task.job_id and t != task.task_id and gone(e)]

    def drop(self, task_id: str) -> None:
        """Forget the answer to another request of a task."""
        self._entries.pop(task_id, None)
        self._kept.pop(task_id, None)

    def delivered(self, task_id: str) -> bool:
        """Whether a task is answered and the answer is not on its way: the coordinator had it, or never asked."""
        entry = self._entries.get(task_id)
        return entry is not None and (entry.delivered or entry.restored)

    def asked(self, task_id: str) -> None:
        """A task is asked (again): a restored answer is wanted, and counts as undelivered from now on."""
        if task_id in self._entries:
            self._entries[task_id].restored = False

    def undelivered(self) -> list[str]:
        """Tasks whose answers have not been acknowledged, oldest first."""
        return [task_id for task_id, e in self._entries.items() if not e.delivered and not e.restored]

    def not_taken(self) -> list[str]:
        """The job of each answer that has not been acknowledged."""
        return [self._entries[task_id].job_id for task_id in self.undelivered()]

    def frame(self, task_id: str) -> tuple[bytes, Body | None]:
        """The answer as a frame, and the body to send after it."""
        entry = self._entries[task_id]
        if entry.failure is not None:
            return pb.ConnectRequest(failure=entry.failure).SerializeToString(), None
        assert entry.payload is not None  # noqa: S101  # an entry is a failure or a reply
        self._transfers = self._transfers % (2**32 - 1) + 1
        reply = task_pb2.TaskReply(
            task_id=task_id,
            payload=payload_to_proto(entry.payload, self._transfers),
            compute_s=entry.compute_s,
            request_sha256=entry.request_sha256,
        )
        large = entry.payload.body_size > INLINE_BYTES
        body = Body(REQUEST_FRAGMENT_TAG, self._transfers, entry.payload) if large else None
        entry.transfer = self._transfers if large else 0
        return pb.ConnectRequest(reply=reply).SerializeToString(), body

    def acknowledge(self, task_id: str) -> None:
        """The coordinator has the answer, or does not want it: keep it only if it is small and lately given."""
        entry = self._entries.get(task_id)
        if entry is None or entry.delivered:
            return
        entry.delivered = True
        if entry.failure is not None or (entry.payload and entry.payload.body_size > KEPT_BYTES):
            del self._entries[task_id]
            return
        self._kept[task_id] = (entry.job_id, entry.payload.body_size if entry.payload else 0)
        self._trim(entry.job_id)

    def _trim(self, job_id: str) -> None:
        """Forget delivered replies, oldest first: of a job that has too many, then of all."""
        of_job = [task_id for task_id, (job, _) in self._kept.items() if job == job_id]
        for task_id in of_job[:-KEPT_REPLIES]:
            self.drop(task_id)
        held = sum(size for _, size in self._kept.values())
        for task_id, (_, size) in list(self._kept.items()):
            if held <= KEPT_BYTES_OF_ALL_JOBS and len(self._kept) <= KEPT_OF_ALL_JOBS:
                return
            held -= size
            self.drop(task_id)

    def transfer(self, task_id: str) -> int:
        """Number of the fragments under which a reply was last sent; 0: none."""
        return self._entries[task_id].transfer if task_id in self._entries else 0

    def of_job(self, job_id: str) -> list[str]:
        """Tasks of a job that are answered."""
        return [task_id for task_id, entry in self._entries.items() if entry.job_id == job_id]

    def drop_job(self, job_id: str) -> None:
        """A job is over."""
        for task_id in self.of_job(job_id):
            self.drop(task_id)
