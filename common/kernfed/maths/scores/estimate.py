"""A number over rows with its standard error by groups of rows, and intervals for it.

Each estimate holds the influence of every row, psi_i, so that it differs from what it estimates by about sum_i psi_i.
The variance is the sum over groups of (sum of psi_i in the group)^2: the limit of a bootstrap that draws whole groups,
without its noise. The influence of a difference of two estimates over the same rows is the difference of theirs.

Source: Efron & Tibshirani, An introduction to the bootstrap (1993), sections 11.6 and 21.3 (infinitesimal jackknife).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Flags, Floats, Integers
from kernfed.maths.scores.interval import Z


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number over rows."""

    value: float
    influence: Floats
    """Of each row, (n,); 0 of rows that it is not of."""
    behind: int
    """Rows that it is of: of an AUC those of the class that has fewer."""
    drawn_error: float | None = None
    """Standard error by resamples, where no influence is known."""

    def error(self, group: Integers) -> float:
        """Standard error.

        Args:
            group: Number of each row's group, (n,), from 0.
        """
        return grouped_norm(self.influence, group) if self.drawn_error is None else self.drawn_error

    def minus(self, other: Estimate) -> Estimate:
        """The difference of two numbers over the same rows."""
        return Estimate(self.value - other.value, self.influence - other.influence, min(self.behind, other.behind))


def grouped_norm(influence: Floats, group: Integers) -> float:
    """Root of the sum over groups of squared sums of influences, (n,) both."""
    return float(np.sqrt(np.square(np.bincount(group, weights=influence)).sum()))


def num_groups(group: Integers, chosen: Flags) -> int:
    """Count the groups of chosen rows, (n,) both."""
    return int(np.count_nonzero(np.bincount(group[chosen])))


def small_sample(groups: int) -> float:
    """By what influences are multiplied so that the variance of a mean over so many groups has no bias; 2 at least."""
    return math.sqrt(groups / (groups - 1))


def mean_of(values: Floats, group: Integers, chosen: Flags | None = None) -> Estimate | None:
    """Mean over chosen rows; None where they are of fewer than two groups.

    Args:
        values: (n,).
        group: Number of each row's group, (n,), from 0.
        chosen: Rows that count, (n,); unset: all.
    """
    chosen = np.ones(len(values), dtype=np.bool_) if chosen is None else chosen
    num, groups = int(chosen.sum()), num_groups(group, chosen)
    if groups < 2:
        return None
    mean = float(values[chosen].mean())
    influence = np.where(chosen, values - mean, 0.0) * (small_sample(groups) / num)
    return Estimate(mean, influence, num)


def interval(value: float, error: float, behind: int, lowest: float, highest: float) -> tuple[float, float]:
    """The 95 % interval of a number.

    Between 0 and 1 it is Wilson's, of a share of as many rows as have this standard error: it stays within, and where
    all rows are predicted alike, and the error is 0, it is that of a share of all rows behind the number.

    Args:
        value: The number.
        error: Its standard error.
        behind: Rows that it is of, at least 1.
        lowest: Least that it can be; -infinity where it can be any.
        highest: Most that it can be.

    Source: Wilson (1927).
    """
    if (lowest, highest) != (0.0, 1.0):
        return max(lowest, value - Z * error), min(highest, value + Z * error)
    rows = value * (1.0 - value) / error / error if error > 0 and 0.0 < value < 1.0 else float(max(behind, 1))
    middle = (value + Z * Z / (2.0 * rows)) / (1.0 + Z * Z / rows)
    half = Z / (1.0 + Z * Z / rows) * math.sqrt(value * (1.0 - value) / rows + (Z / (2.0 * rows)) ** 2)
    return max(0.0, min(value, middle - half)), min(1.0, max(value, middle + half))
