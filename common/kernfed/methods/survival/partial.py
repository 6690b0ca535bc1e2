"""Cox's partial likelihood of rows in one stratum: value, derivatives, score residuals, baseline hazard, concordance.

Row j has the columns x_j, the linear predictor η_j, and is at risk up to its time. Events at one time are ordered one
after another: with Breslow's rule all of their rows stay at risk, with Efron's each leaves by the part l/d, l = 0 ...
d-1. So there are D events, each with a sum S0 of exp(η), and a mean x̄ of the columns, over its rows at risk.

Sources: D. R. Cox, *Regression models and life-tables*, JRSS B 34 (1972) 187-220; B. Efron, *The efficiency of Cox's
likelihood function for censored data*, JASA 72 (1977) 557-565.
"""

from __future__ import annotations

import bisect
import enum
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Flags, Floats, Integers

_MOST = 500.0
"""Linear predictors are taken at most so far from 0: a step that went too far has a finite likelihood."""


class Ties(enum.StrEnum):
    """The rule for events at one time."""

    EFRON = "efron"
    BRESLOW = "breslow"


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a stratum, n of them, by ascending time; what does not depend on coefficients."""

    x: Floats
    """Columns, (n, K)."""
    times: Floats
    """(n,), ascending."""
    died: Flags
    """Whether the event came, (n,)."""
    first: Integers
    """Of each event, the place of the first row at risk, (D,)."""
    tied: Integers
    """Of each event, the place among the different times of events, (D,)."""
    part: Floats
    """Of each event, the part by which rows with an event at its time have left, (D,)."""
    order: Integers
    """Place of each row among the rows as they were given, (n,)."""

    @classmethod
    def of(cls, x: Floats, times: Floats, died: Flags, ties: Ties) -> Rows:
        """Sort rows (n, K) and their times and outcomes, (n,)."""
        order = np.argsort(times, kind="stable")
        x, times, died = x[order], times[order], died[order]
        at = times[died]
        _, begin, tied, num = np.unique(at, return_index=True, return_inverse=True, return_counts=True)
        before = np.arange(len(at)) - begin[tied]
        part = before / num[tied] if ties is Ties.EFRON else np.zeros(len(at))
        return cls(x, times, died, np.searchsorted(times, at), tied, part, order)

    @property
    def num_deaths(self) -> int:
        """Events D."""
        return len(self.first)


@dataclass(frozen=True, slots=True)
class Point:
    """A stratum at coefficients."""

    rows: Rows
    eta: Floats
    """(n,)."""
    weights: Floats
    """exp(η), (n,)."""
    at_risk: Floats
    """S0 of each event, (D,)."""
    means: Floats
    """x̄ of each event, (D, K)."""

    @classmethod
    def at(cls, rows: Rows, coefficients: Floats) -> Point:
        """At coefficients (K,)."""
        eta: Floats = np.clip(rows.x @ coefficients, -_MOST, _MOST)
        weights: Floats = np.exp(eta)
        weighted = np.column_stack([weights, rows.x * weights[:, None]])
        after = weighted[::-1].cumsum(axis=0)[::-1][rows.first]
        dead = np.zeros((int(rows.tied.max(initial=-1)) + 1, weighted.shape[1]))
        np.add.at(dead, rows.tied, weighted[rows.died])
        sums = after - rows.part[:, None] * dead[rows.tied]
        return cls(rows, eta, weights, sums[:, 0], sums[:, 1:] / sums[:, :1])

    def log_likelihood(self) -> float:
        """Log of the partial likelihood."""
        return float(self.eta[self.rows.died].sum() - np.log(self.at_risk).sum())

    def gradient(self) -> Floats:
        """Its derivative, (K,)."""
        found: Floats = (self.rows.x[self.rows.died] - self.means).sum(axis=0)
        return found

    def expected(self) -> Floats:
        """Events that are expected of each row, (n,): D in all."""
        found: Floats = self.weights * self._over_time(1.0 / self.at_risk)
        return found

    def hessian(self) -> Floats:
        """Minus its second derivative, (K, K)."""
        weights = self.expected()
        # About the mean row of an event, where the two terms are the least: one row far out may be most of both.
        centre = weights @ self.rows.x / max(self.rows.num_deaths, 1)
        x, means = self.rows.x - centre, self.means - centre
        found: Floats = (x * weights[:, None]).T @ x - means.T @ means
        return (found + found.T) / 2.0

    def residuals(self) -> Floats:
        """Score residuals of the rows as they were given, (n, K); they add up to the gradient.

        Source: T. M. Therneau and P. M. Grambsch, *Modeling Survival Data* (2000), sections 4.2 and 4.6.
        """
        rows, inverse = self.rows, 1.0 / self.at_risk
        hazards = np.column_stack([inverse, self.means * inverse[:, None]])
        passed = self._over_time(hazards)
        found: Floats = self.weights[:, None] * (passed[:, 1:] - rows.x * passed[:, :1])
        mean = np.zeros((int(rows.tied.max(initial=-1)) + 1, rows.x.shape[1]))
        np.add.at(mean, rows.tied, self.means)
        num = np.bincount(rows.tied, minlength=len(mean))
        found[rows.died] += rows.x[rows.died] - (mean / num[:, None])[rows.tied]
        given: Floats = np.empty_like(found)
        given[rows.order] = found
        return given

    def _over_time(self, values: Floats) -> Floats:
        """Sum numbers of events, (D, ...), over those at which a row is at risk, by the part that it is; (n, ...)."""
        rows = self.rows
        shape = values.shape[1:]
        sums = np.concatenate([np.zeros((1, *shape)), values.cumsum(axis=0)])
        found: Floats = sums[np.searchsorted(rows.times[rows.died], rows.times, side="right")]
        own = np.zeros((int(rows.tied.max(initial=-1)) + 1, *shape))
        np.add.at(own, rows.tied, rows.part.reshape(-1, *(1 for _ in shape)) * values)
        found[rows.died] -= own[rows.tied]
        return found

    def hazards(self) -> Floats:
        """Increments of the cumulative baseline hazard at the events, by Breslow's estimate, (D,): that of η = 0."""
        whole = self.weights[::-1].cumsum()[::-1][self.rows.first]
        found: Floats = 1.0 / whole
        return found


def concordance(times: Floats, died: Flags, risk: Floats) -> tuple[int, int, int]:
    """Pairs of which one had the event while the other was there, those whose risks are in that order, and equal ones.

    Args:
        times: Shape (n,).
        died: Whether the event came, (n,).
        risk: The greater, the earlier, (n,).

    Source: F. E. Harrell et al., *Evaluating the yield of medical tests*, JAMA 247 (1982) 2543-2546.
    """
    later: list[float] = []
    pairs = concordant = equal = 0
    order = np.lexsort((died, -times))  # from the last time back; of one time rows without an event first
    told = zip(times[order].tolist(), died[order].tolist(), risk[order].tolist(), strict=True)
    waiting: list[float] = []
    now = np.nan
    for time, event, value in told:
        if time != now:
            for one in waiting:
                bisect.insort(later, one)
            waiting, now = [], time
        if not event:
            bisect.insort(later, value)
            continue
        low, high = bisect.bisect_left(later, value), bisect.bisect_right(later, value)
        pairs, concordant, equal = pairs + len(later), concordant + low, equal + high - low
        waiting.append(value)
    return pairs, concordant, equal
