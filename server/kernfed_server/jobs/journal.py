"""Record of a run: its events, and its state after each round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from kernfed.federation.events import JobEvent
from kernfed_server.jobs.state import Arrays


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
