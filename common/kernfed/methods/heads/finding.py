"""The result that methods on a head tell of themselves: what was solved, how, and the course of the main metric."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from kernfed.methods.finding import UNLESS_NONE, Finding


@dataclass(frozen=True, slots=True)
class Course:
    """A metric on all test rows by the seconds since the first round of this life of the run."""

    metric: str
    rounds: tuple[int, ...] = ()
    seconds: tuple[float, ...] = ()
    values: tuple[float, ...] = ()

    def then(self, round_num: int, seconds: float, value: float) -> Course:
        """The course with one more round."""
        return Course(self.metric, (*self.rounds, round_num), (*self.seconds, seconds), (*self.values, value))


@dataclass(frozen=True, slots=True)
class HeadFinding(Finding):
    """Facts of the job so far."""

    name: ClassVar[str] = "head"

    method: str | None = field(default=None, metadata=UNLESS_NONE)
    loss: str | None = field(default=None, metadata=UNLESS_NONE)
    step: str | None = field(default=None, metadata=UNLESS_NONE)
    """Of FedNewton."""
    solver: str | None = field(default=None, metadata=UNLESS_NONE)
    """Of the clients' Newton systems, and why this one."""
    reason: str | None = field(default=None, metadata=UNLESS_NONE)
    features: int | None = field(default=None, metadata=UNLESS_NONE)
    """Features with the bias."""
    outputs: int | None = field(default=None, metadata=UNLESS_NONE)
    rows: int | None = field(default=None, metadata=UNLESS_NONE)
    """Rows of the largest client."""
    ridge: float | None = field(default=None, metadata=UNLESS_NONE)
    damping: float | None = field(default=None, metadata=UNLESS_NONE)
    """At the start."""
    arrived: bool | None = field(default=None, metadata=UNLESS_NONE)
    """Whether the last round ended at rest, by the rule of the method."""
    distance: float | None = field(default=None, metadata=UNLESS_NONE)
    """Of FedNewton's default the last gradient over that of the first Newton step; else the movement of the last round
    over the size of the weights."""
    course: Course | None = field(default=None, metadata=UNLESS_NONE)
