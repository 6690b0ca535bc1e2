"""The result that FedNewton tells of its clients: who is different, and what that does to the paper's step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from kernfed.methods.finding import UNLESS_NONE, Finding


@dataclass(frozen=True, slots=True)
class DifferenceOfClient:
    """How far the second moments of a client's features are from those of all."""

    client: str
    rows: int
    share: float
    """p_j, of the weight."""
    difference: float
    """Δ_D = |C - C_j| in the operator norm, from below."""
    by_chance: float
    """About what it is at a client whose rows are of the law of all."""
    upsilon: float
    """Its part of Υ: p_j (Δ/λ)(1 + Δ/λ)."""

    @property
    def times(self) -> float:
        """The difference over that of chance."""
        return self.difference / self.by_chance if self.by_chance else 0.0


@dataclass(frozen=True, slots=True)
class DifferencesFinding(Finding):
    """Before round 1; see `kernfed.methods.ridge.differences`."""

    name: ClassVar[str] = "differences"

    ridge: float
    norm: float
    """|C|, of all clients."""
    upsilon: float
    """Υ of Theorem 1 with rows in the place of laws (P = 1, R = 0): an upper bound of what the paper's step multiplies
    the error by."""
    contraction: float
    """What it multiplies the error by at worst, at least: λ_max(P H) - 1."""
    growth: float
    """By which part the last trip raised a difference: small where they are found."""
    rows_enough: float | None = field(default=None, metadata=UNLESS_NONE)
    """Rows of a client from which on Theorem 3 promises Υ < 1 for clients of one law; None: features have no bound."""
    clients: tuple[DifferenceOfClient, ...] = ()
