"""Curves of survival and log-rank tests, of rows counted by time.

Where events and rows that were last seen are at one time, the events come first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Floats, Integers

_HALF = 1e-12
"""A survival is taken for one half where it is above that by no more."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows of a group by time, of one client or of several. T times."""

    times: Floats
    """(T,), ascending, no two alike."""
    deaths: Integers
    """(T,), rows in which the event came then."""
    censored: Integers
    """(T,), rows that were last seen then."""

    @classmethod
    def joined(cls, parts: Sequence[Counts]) -> Counts:
        """Those of several clients, or groups."""
        times, place = np.unique(np.concatenate([part.times for part in parts]), return_inverse=True)
        found = [np.zeros(len(times), dtype=np.int64) for _ in range(2)]
        for sums, counts in zip(found, ("deaths", "censored"), strict=True):
            np.add.at(sums, place, np.concatenate([getattr(part, counts) for part in parts]).astype(np.int64))
        return cls(times, *found)

    @property
    def at_risk(self) -> Integers:
        """Rows that are still there just before each time, (T,)."""
        leave = self.deaths + self.censored
        found: Integers = leave.sum() - np.cumsum(leave) + leave
        return found

    @property
    def rows(self) -> int:
        """All of them."""
        return int(self.deaths.sum() + self.censored.sum())


@dataclass(frozen=True, slots=True)
class Steps:
    """An estimated curve at the T times of its counts: from a time on it has the value there, before the first 1."""

    counts: Counts
    survival: Floats
    """S(t), (T,)."""
    greenwood: Floats
    """Sum of d/(n (n - d)) up to each time, (T,): the variance of log S; infinite where S is 0."""

    def error(self) -> Floats:
        """Standard error of S, (T,); 0 where S is 0."""
        there = self.survival > 0
        found: Floats = self.survival * np.sqrt(np.where(there, self.greenwood, 0.0))
        return found

    def band(self, confidence: float) -> tuple[Floats, Floats]:
        """Lower and upper limits of S at each time alone, (T,), by the normal distribution of log(-log S).

        They are 1 where S is 1, and 0 where it is 0.

        Source: J. D. Kalbfleisch and R. L. Prentice, *The Statistical Analysis of Failure Time Data*, 2nd edition
        (2002), section 1.4.
        """
        from scipy.special import ndtri  # noqa: PLC0415  # the coordinator starts without scipy

        inside = (self.survival > 0) & (self.survival < 1)
        logs = np.log(np.where(inside, self.survival, 0.5))
        reach = float(ndtri((1.0 + confidence) / 2.0)) * np.sqrt(np.where(inside, self.greenwood, 0.0)) / -logs
        low, high = (np.where(inside, np.exp(logs * np.exp(sign * reach)), self.survival) for sign in (1.0, -1.0))
        return low, high

    def restricted_mean(self, horizon: float) -> tuple[float, float]:
        """The area below the curve from 0 to a horizon, and its standard error.

        Source: J. P. Klein and M. L. Moeschberger, *Survival Analysis*, 2nd edition (2003), section 4.5.
        """
        times = self.counts.times
        edges = np.concatenate([[0.0], np.clip(times, 0.0, horizon), [horizon]])
        areas = np.diff(edges) * np.concatenate([[1.0], self.survival])
        beyond = areas[::-1].cumsum()[::-1][1:]  # from each time on
        n, d = self.counts.at_risk, self.counts.deaths
        inside = (times <= horizon) & (n > d)
        parts = np.where(inside, d / np.where(inside, n * (n - d), 1), 0.0)
        return float(areas.sum()), math.sqrt(float(np.square(beyond) @ parts))


def product_limit(counts: Counts) -> Steps:
    """The product-limit estimate, with Greenwood's variance.

    Source: E. L. Kaplan and P. Meier, *Nonparametric estimation from incomplete observations*, JASA 53 (1958) 457-481.
    """
    n, d = counts.at_risk, counts.deaths
    left = n - d
    with np.errstate(divide="ignore"):
        parts = np.where(d > 0, d / (n * left.astype(np.float64)), 0.0)
    survival: Floats = np.asarray(np.cumprod(left / n), dtype=np.float64)
    return Steps(counts, survival, np.cumsum(parts))


def median_time(times: Floats, survival: Floats) -> float | None:
    """The first time at which a curve is at one half or below; None: it stays above."""
    below = np.flatnonzero(survival <= 0.5 + _HALF)
    return float(times[below[0]]) if len(below) else None


@dataclass(frozen=True, slots=True)
class Tested:
    """A log-rank test of G groups."""

    statistic: float
    """Of chi-squared's distribution with `freedom` degrees of freedom, where the groups have one law."""
    freedom: int
    p_value: float
    observed: Floats
    """Events by group, (G,)."""
    expected: Floats
    """The same where the groups have one law."""


def log_rank(strata: Sequence[Mapping[str, Counts]], names: Sequence[str]) -> Tested | None:
    """Test whether groups have one law of survival within each stratum; None: nothing tells them apart.

    Args:
        strata: Counts by group; of one stratum, the test is the usual one.
        names: Of the groups.

    Source: N. Mantel, *Evaluation of survival data and two new rank order statistics arising in its consideration*,
    Cancer Chemotherapy Reports 50 (1966) 163-170.
    """
    from scipy.special import chdtrc  # noqa: PLC0415  # the coordinator starts without scipy

    num = len(names)
    observed, expected, variance = np.zeros(num), np.zeros(num), np.zeros((num, num))
    for groups in strata:
        if not groups:
            continue
        times = Counts.joined(list(groups.values())).times
        deaths, at_risk = (np.zeros((num, len(times))) for _ in range(2))
        for name, counts in groups.items():
            row = names.index(name)
            deaths[row, np.searchsorted(times, counts.times)] = counts.deaths
            # Rows at risk just before a time are those before the group's next one.
            at_risk[row] = np.append(counts.at_risk, 0)[np.searchsorted(counts.times, times)]
        d, n = deaths.sum(axis=0), at_risk.sum(axis=0)
        share = at_risk / n
        several = np.where(n > 1, n - 1.0, 1.0)
        weights = np.where(n > 1, d * (n - d) / several, 0.0)
        observed += deaths.sum(axis=1)
        expected += share @ d
        variance += np.diag(share @ weights) - (share * weights) @ share.T
    size = float(np.abs(variance).max(initial=0.0))
    if not size > 0:
        return None
    inverse = np.linalg.pinv(variance, rcond=1e-10, hermitian=True)
    freedom = int(np.linalg.matrix_rank(variance, tol=1e-10 * size, hermitian=True))
    apart = observed - expected
    statistic = float(apart @ inverse @ apart)
    return Tested(statistic, freedom, float(chdtrc(freedom, statistic)), observed, expected)
