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
