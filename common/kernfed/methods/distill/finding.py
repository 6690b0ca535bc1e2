"""The result that distillation tells of itself: how the consensus moved, and where each client stands to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kernfed.methods.finding import Finding


@dataclass(frozen=True, slots=True)
class ClientDistance:
    """Root mean square differences between a client's predictions on the public points and the consensus."""

    client: str
    first: float
    """Of its first predictions."""
    last: float
    far_rows: float = 0.0
    """Share of the client's rows that have no public point within a lengthscale."""
    alone: bool = False
    """Whether the client kept the model of its own rows alone, which predicts rows kept apart better."""
    share: float = 1.0
    """Weight of the distilled model in the one that the client kept; the rest is that of its own rows alone."""
    gain: float = 0.0
    """By which part of the squared error of own rows alone that one has less, on rows kept apart."""
    gain_error: float = 0.0
    """Standard error of that; 0: it is not known."""
    answered: int = 0
    """The last round in which its predictions counted; 0: it was not told."""


@dataclass(frozen=True, slots=True)
class DistillationFinding(Finding):
    """After the last round."""

    name: ClassVar[str] = "distillation"

    rounds: int
    num_points: int
    words: str
    """Whether the limit is near, for people."""
    movements: tuple[float, ...]
    """Of the consensus in rounds 2, 3, …, relative to its size."""
    clients: tuple[ClientDistance, ...]
    arrived: bool | None = None
    """Whether the consensus is near its limit; None: nobody can say."""
    distance: float | None = None
    """Estimate of the way that is left, relative to the consensus' size; None: there is no estimate."""
    ridge: float | None = None
    """λ; None: it was not told."""
    lengthscales: tuple[float, ...] = ()
    """Of the job's kernel: one, or one per column; empty: they were not told."""
