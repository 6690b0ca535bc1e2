"""Updates for the watchers of a job, some at a time: each batch is encoded once, and all watchers get the same one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kernfed.jobs.info import JobUpdate
from kernfed.v1 import operator_service_pb2 as pb
from kernfed.wire.operator import update_to_proto

BATCH_BYTES = 256 << 10
"""A batch ends with the update that takes it past this, so it stays below the limit of one message."""


@dataclass(frozen=True, slots=True)
class Told:
    """An update in its place."""

    position: int
    """Sequence number that the history had reached with it."""
    update: JobUpdate

    def after(self, seen: int) -> JobUpdate | None:
        """What of it a watcher does not know who has seen the events up to `seen`."""
        event = self.update.event
        # A passing event is as old as the numbered one before it.
        if event is None or (event.sequence > seen if event.sequence else self.position >= seen):
            return self.update
        return None if self.update.job is None else JobUpdate(job=self.update.job)


@dataclass(frozen=True, slots=True)
class Batch:
    """Some updates, in order."""

    told: tuple[Told, ...]
    message: pb.WatchJobResponse
    """The same, each one of its `updates`."""

    @property
    def updates(self) -> tuple[JobUpdate, ...]:
        """The updates alone."""
        return tuple(t.update for t in self.told)

    @property
    def position(self) -> int:
        """Sequence number that the history had reached with its last one."""
        return self.told[-1].position

    def after(self, seen: int) -> Batch | None:
        """What of it a watcher does not know who has seen the events up to `seen`; None: nothing."""
        if self.told[0].position > seen:
            return self
        left = [Told(t.position, new) for t in self.told if (new := t.after(seen)) is not None]
        return next(pack(left), None)

    def singly(self) -> Iterator[pb.WatchJobResponse]:
        """One message an update, for operators of a release without batches, and no passing event that is past."""
        last = max((i for i, t in enumerate(self.told) if t.update.event is None or t.update.event.sequence), default=0)
        for i, (told, message) in enumerate(zip(self.told, self.message.updates, strict=True)):
            if i > last or told.update.event is None or told.update.event.sequence or told.update.job is not None:
                yield message


def pack(told: Iterable[Told]) -> Iterator[Batch]:
    """Updates in batches that each fit a message."""
    held: list[Told] = []
    encoded: list[pb.WatchJobResponse] = []
    num_bytes = 0
    for one in told:
        held.append(one)
        encoded.append(update_to_proto(one.update))
        num_bytes += encoded[-1].ByteSize()
        if num_bytes > BATCH_BYTES:
            yield Batch(tuple(held), pb.WatchJobResponse(updates=encoded))
            held, encoded, num_bytes = [], [], 0
    if held:
        yield Batch(tuple(held), pb.WatchJobResponse(updates=encoded))
