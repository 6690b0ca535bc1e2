"""The result that methods on streams tell of themselves: errors and regret per client, and what was sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from kernfed.methods.finding import UNLESS_NONE, Finding


@dataclass(frozen=True, slots=True)
class StreamOfClient:
    """A client's predictions so far, each made before its row was learned."""

    rows: int
    mse: float
    regret: float
    """Total loss less that of the best single kernel in hindsight, with targets in [0, 1]."""
    regret_bound: float | None
    """What theory says it is at most; None: nothing."""
    effective_kernels: float
    hindsight_regret: float | None = field(default=None, metadata=UNLESS_NONE)
    """Total loss less that of the best function in hindsight for the rows of all clients, the client's part of (12); it
    may lie below 0. None: not measured."""


@dataclass(frozen=True, slots=True)
class HindsightOfAll:
    """The best function of one kernel for the rows of all clients, and the regret against it, (12)."""

    lengthscale: float
    """Of its kernel."""
    rows: int
    """Of the clients that kept theirs."""
    loss: float
    """Its total loss, with targets in [0, 1]."""
    regret: float
    """Total loss of the predictions less that."""
    bound: float | None = field(default=None, metadata=UNLESS_NONE)
    """What Theorem 2 says it is at most, in expectation; None: nothing."""


@dataclass(frozen=True, slots=True)
class OnlineFinding(Finding):
    """A method's facts, and where it has come to."""

    name: ClassVar[str] = "online"

    method: str = ""
    rates: str | None = field(default=None, metadata=UNLESS_NONE)
    num_kernels: int | None = field(default=None, metadata=UNLESS_NONE)
    kernels_per_round: int | None = field(default=None, metadata=UNLESS_NONE)
    num_frequencies: int | None = field(default=None, metadata=UNLESS_NONE)
    share: str | None = field(default=None, metadata=UNLESS_NONE)
    """Of `online`: what clients send of their rows, statistics or gradients."""
    budget: int | None = field(default=None, metadata=UNLESS_NONE)
    """Per round and client, in `budget_unit`."""
    budget_unit: str | None = field(default=None, metadata=UNLESS_NONE)
    num_parameters: int | None = field(default=None, metadata=UNLESS_NONE)
    rows: int = 0
    """Rows predicted by all clients."""
    bytes_up: float = 0.0
    """Bytes of numbers that a client sent per round; `bytes_down`: that it got."""
    bytes_down: float = 0.0
    clients: Mapping[str, StreamOfClient] = field(default_factory=dict)
    exploration: float | None = field(default=None, metadata=UNLESS_NONE)
    """Share of the draw of a bin of kernels that is uniform, where clients draw any."""
    hindsight: HindsightOfAll | None = field(default=None, metadata=UNLESS_NONE)
