"""The result that reweighting tells of itself: weights of each client's rows, their worth, and metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from kernfed.methods.finding import UNLESS_NONE, Finding, Told
from kernfed.methods.reweight.eigenvalue_condition import EigenvalueCondition


@dataclass(frozen=True, slots=True)
class RatiosOfClient:
    """Density ratios at one client; see `kernfed.methods.reweight.messages.RatioSummary`."""

    client: str
    shared: str
    """What it shared, in words."""
    num_rows: int
    total: float
    mean: float
    greatest: float
    effective_rows: float
    num_cut: int
    bound: float
    uncovered: float
    num_steps: int
    histogram: tuple[int, ...]
    scores: Told = field(default_factory=dict)
    held_out: float = 0.0
    condition: EigenvalueCondition | None = field(default=None, metadata=UNLESS_NONE)
    """Theorem 2's, where it was asked for."""


@dataclass(frozen=True, slots=True)
class ReweightFinding(Finding):
    """After the last round."""

    name: ClassVar[str] = "reweight"

    scope: str
    """The scope that the job went on with; `asked_scope`: that of its file."""
    asked_scope: str
    target: str | None
    """The client whose test points count, with that scope."""
    source: str
    trainer: str
    client_weights: str
    words: tuple[str, ...]
    """Notes for people."""
    clients: tuple[RatiosOfClient, ...]
    pooled: Told = field(default_factory=dict)
