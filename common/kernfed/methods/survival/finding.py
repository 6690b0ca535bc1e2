"""Results on times to an event."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from kernfed.methods.finding import UNLESS_NONE, Finding

ALL = "all"
"""The rows of all groups."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Survival of a group; T times at which rows had the event, or were last seen."""

    group: str
    """Its name; `all`: of all rows."""
    rows: int
    deaths: int
    """Rows in which the event came."""
    restricted_mean: float
    """Mean of the time, of which no more than the finding's `horizon` counts."""
    restricted_error: float
    """Its standard error."""
    times: tuple[float, ...]
    at_risk: tuple[int, ...]
    """Rows that are there just before."""
    died: tuple[int, ...]
    """Rows in which the event came then."""
    censored: tuple[int, ...]
    """Rows that were last seen then."""
    survival: tuple[float, ...]
    """From that time on."""
    error: tuple[float, ...]
    """Standard error of `survival` (Greenwood)."""
    low: tuple[float, ...]
    """Of the confidence band at each time alone."""
    high: tuple[float, ...]
    median: float | None = field(default=None, metadata=UNLESS_NONE)
    """First time at which survival is at most one half; None: it stays above."""
    median_low: float | None = field(default=None, metadata=UNLESS_NONE)
    """The same of the band's lower limit."""
    median_high: float | None = field(default=None, metadata=UNLESS_NONE)
    """The same of its upper limit."""


@dataclass(frozen=True, slots=True)
class LogRank:
    """A test whether groups have one law of survival."""

    statistic: float
    freedom: int
    """Degrees of freedom of chi-squared."""
    p_value: float
    observed: tuple[float, ...]
    """Events by group, in the order of the finding's `groups`."""
    expected: tuple[float, ...]
    """The same where the groups have one law."""


@dataclass(frozen=True, slots=True)
class KaplanMeierFinding(Finding):
    """Curves of survival of all rows, and of each group."""

    name: ClassVar[str] = "kaplan_meier"

    target: str
    """Column of the times."""
    confidence: float
    horizon: float
    """Up to which means are taken."""
    curves: tuple[Curve, ...]
    """Of all rows first, then of each of `groups`."""
    by: str = ""
    """Column of the groups; empty: there are none."""
    groups: tuple[str, ...] = ()
    log_rank: LogRank | None = field(default=None, metadata=UNLESS_NONE)
    """Of all rows as if they lay in one place; None: there are no groups to compare."""
    log_rank_by_site: LogRank | None = field(default=None, metadata=UNLESS_NONE)
    """Rows are compared with rows of their own site alone."""
