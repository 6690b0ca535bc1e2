"""The result of Cox's proportional hazards beside the model: coefficients, how well they order rows, baselines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from kernfed.maths.likelihood.inference import Coefficient
from kernfed.methods.finding import UNLESS_NONE, Finding


@dataclass(frozen=True, slots=True)
class Baseline:
    """The cumulative hazard of a row at the columns' means, at one client."""

    times: tuple[float, ...]
    """At which it rises."""
    hazard: tuple[float, ...]
    """From each time on."""


@dataclass(frozen=True, slots=True)
class CoxFinding(Finding):
    """Proportional hazards of all rows, with a baseline at each client."""

    name: ClassVar[str] = "cox"

    target: str
    """Column of the times."""
    ties: str
    """`efron` or `breslow`."""
    errors: str
    """`model`, `robust by row` or `robust by group`."""
    confidence: float
    rows: int
    deaths: int
    """Rows in which the event came."""
    coefficients: tuple[Coefficient, ...]
    """Logarithms of hazard ratios, of one more unit of a column."""
    covariance: tuple[tuple[float, ...], ...]
    """Of the estimates, in their order."""
    log_likelihood: float
    """Of the partial likelihood."""
    aic: float
    """2 K less twice the log-likelihood."""
    iterations: int
    pairs: int
    """Pairs of rows of one client, of which one had the event while the other was there."""
    null_log_likelihood: float | None = field(default=None, metadata=UNLESS_NONE)
    """Where all coefficients are 0; None: of other rows, for a client was lost since."""
    likelihood_ratio: float | None = field(default=None, metadata=UNLESS_NONE)
    """Twice the difference: of chi-squared's distribution with K degrees of freedom, where no column matters."""
    p_value: float | None = field(default=None, metadata=UNLESS_NONE)
    """Of that."""
    concordance: float | None = field(default=None, metadata=UNLESS_NONE)
    """Share of the pairs in which the one with the event has the greater risk, equal ones by half; None: no pairs."""
    groups: int | None = field(default=None, metadata=UNLESS_NONE)
    """Groups of the sandwich; None: it was not asked for."""
    baselines: Mapping[str, Baseline] = field(default_factory=dict)
    """By client, as far as it tells."""
