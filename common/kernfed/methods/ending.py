"""The finding that all methods share: whether a job arrived, how far it is, and where its model loses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from kernfed.methods.finding import UNLESS_NONE, Finding


@dataclass(frozen=True, slots=True)
class Loser:
    """A client at which the model that the job leaves is the worse one, by its own test rows."""

    client: str
    value: float
    """Of the job's model."""
    against: float
    """Of the other one."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A model that the job leaves, against another one, by a metric of which less is better."""

    model: str
    """As metrics name it, e.g. `global`."""
    against: str
    """The other one, e.g. `local`."""
    called: str
    """The other one, in words."""
    metric: str
    num_clients: int
    """Clients that measured both."""
    num_better: int
    """At so many the job's model is better, and at those that are in no list the two are level."""
    worse: tuple[Loser, ...] = ()
    """By client name."""
    pooled: float | None = field(default=None, metadata=UNLESS_NONE)
    """The metric of the job's model over all measured rows, which are test rows or those of streams."""
    pooled_against: float | None = field(default=None, metadata=UNLESS_NONE)


@dataclass(frozen=True, slots=True)
class EndFinding(Finding):
    """The end of a job, told once for every method."""

    name: ClassVar[str] = "end"

    words: str
    """In one line, for people."""
    arrived: bool | None = None
    """Whether the method reached what it looks for, by its own rule; None: it says nothing of the kind."""
    distance: float | None = None
    """How far it is; None where nobody can say."""
    measure: str = ""
    """What `distance` is."""
    comparisons: tuple[Comparison, ...] = ()
