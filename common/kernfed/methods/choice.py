"""The finding of a job that chose its ridge, or its lengthscale, by training rows that its clients kept apart."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from kernfed.methods.finding import UNLESS_NONE, Finding


@dataclass(frozen=True, slots=True)
class Tried:
    """One ridge, with one lengthscale, and what rows kept apart said of it."""

    ridge: float
    error: float | None
    """Mean squared error over the rows kept apart; of classes, of their indicators. None: it could not be had."""
    standard_error: float | None = field(default=None, metadata=UNLESS_NONE)
    """Of that, by the parts that clients kept apart; None: there is one part, or nobody knows."""
    lengthscale: float | None = field(default=None, metadata=UNLESS_NONE)
    """The first of them where columns have their own; None: it was not chosen."""


@dataclass(frozen=True, slots=True)
class ChoiceFinding(Finding):
    """Before round 1; see `kernfed.maths.choosing`."""

    name: ClassVar[str] = "choice"

    ridge: float | None = None
    """The one chosen; None: that of the job file stays."""
    lengthscale: float | None = None
    """The one chosen; None: it was not to be chosen."""
    rows: int = 0
    """Training rows that were kept apart, each once."""
    tried: tuple[Tried, ...] = ()
    silent: tuple[str, ...] = ()
    """Clients none of whose rows are among these."""
    words: str = ""
    """How it was chosen, as a sentence goes on."""


def known(value: float) -> float | None:
    """A number as a finding holds it: None for one that nobody knows."""
    return float(value) if math.isfinite(value) else None
