"""The result that personalisation tells of itself: who learns from whom, how far apart clients are, and their gains."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from kernfed.methods.finding import UNLESS_NONE, Finding, Told


@dataclass(frozen=True, slots=True)
class Teacher:
    """A client that another one learns from, and its weight."""

    client: str
    weight: float


@dataclass(frozen=True, slots=True)
class Learner:
    """One client's mix."""

    client: str
    num_rows: int = 0
    told: bool = False
    """Whether it told its weights."""
    choice: str = ""
    """How they were found, in words."""
    learns_from: tuple[Teacher, ...] = ()
    """Those of the largest weights, most first; itself among them."""
    effective_rows: float = 0.0
    """Rows that the mix is worth."""
    scores: Told = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PersonaliseFinding(Finding):
    """After the last round. B clients."""

    name: ClassVar[str] = "personalise"

    weights: str = ""
    """How they were found, as the job ended up doing it."""
    trainer: str = ""
    words: tuple[str, ...] = ()
    """Notes for people."""
    clients: tuple[Learner, ...] = ()
    matrix: tuple[tuple[float, ...], ...] | None = field(default=None, metadata=UNLESS_NONE)
    """Weights, a row for who learns, shape (B, B); None for many clients, as `distances`."""
    distances: tuple[tuple[float, ...], ...] | None = field(default=None, metadata=UNLESS_NONE)
    """Between embeddings; 0 where noise explains them."""
