"""Record of a run: its events, and its state after each round."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from kernfed.federation.events import JobEvent, RoundMetrics
from kernfed.jobs.info import JobInfo
from kernfed_server.jobs.state import Arrays

PART = "part."
"""Beginning of the names of a part's arrays; see `PartJournal`."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A finished round and the state after it."""

    round_num: int
    state: Arrays
    closes: bool = True
    """Whether the round was closed just now; else something was agreed on behind it."""


class Journal(Protocol):
    """Record of a run: the coordinator's store, or memory."""

    def event(self, event: JobEvent) -> None:
        """Note a fact; never blocks for long."""
        ...

    async def checkpoint(self, checkpoint: Checkpoint) -> None:
        """Keep the state after a round, atomically, in place of the one before."""
        ...


class Observer(Protocol):
    """Is told what jobs do, beside their records, on the event loop. It never blocks, and raises nothing."""

    def event(self, job: JobInfo, event: JobEvent) -> None:
        """A fact about a job."""

    def checkpointed(self, seconds: float) -> None:
        """A checkpoint is on disk, after so many seconds."""

    def over(self, job: JobInfo) -> None:
        """A job ended; its state says how."""


class Unobserved:
    """Tells nobody."""

    def event(self, job: JobInfo, event: JobEvent) -> None:
        """See `Observer.event`."""

    def checkpointed(self, seconds: float) -> None:
        """See `Observer.checkpointed`."""

    def over(self, job: JobInfo) -> None:
        """See `Observer.over`."""


@dataclass
class MemoryJournal:
    """Keeps events in a list and the last checkpoint in memory."""

    events: list[JobEvent] = field(default_factory=list)
    last: Checkpoint | None = None

    def event(self, event: JobEvent) -> None:
        """See `Journal.event`."""
        self.events.append(event)

    async def checkpoint(self, checkpoint: Checkpoint) -> None:
        """See `Journal.checkpoint`."""
        self.last = checkpoint


@dataclass(frozen=True)
class PartJournal:
    """Writes the facts and checkpoints of a run within another one into the journal of the whole."""

    tell: Callable[[JobEvent], None]
    """Notes a fact of the whole."""
    write: Callable[[int, Arrays], Awaitable[None]]
    """Keeps the state of the whole after a round."""
    keep: Arrays
    """Goes into every checkpoint beside the part's state, whose names begin with `part.` there."""
    measured: Callable[[RoundMetrics], RoundMetrics]
    """The metrics to record for those of a round of the part."""

    def event(self, event: JobEvent) -> None:
        """See `Journal.event`."""
        self.tell(event if event.metrics is None else replace(event, metrics=self.measured(event.metrics)))

    async def checkpoint(self, checkpoint: Checkpoint) -> None:
        """See `Journal.checkpoint`."""
        part = {f"{PART}{name}": array for name, array in checkpoint.state.items()}
        await self.write(checkpoint.round_num, {**self.keep, **part})
