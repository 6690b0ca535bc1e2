"""Statistics that clients compute on their own rows and the coordinator pools: moments, medians, distances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Flags, Floats
from kernfed.errors import DataError, NumericalError
from kernfed.rng import Stream

LENGTHSCALE_FLOOR = 1e-3
"""Smallest lengthscale that the median heuristic gives, in units of the (standardised) columns."""

_CONSTANT = float(np.finfo(np.float64).eps)
"""A deviation up to this fraction of |mean|, a unit or two of its last place, is rounding: the column is constant."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Row count, means, and deviations, per column.

    Right at every magnitude: a mean has two parts, so that what lies between clients survives a large offset, and
    nothing is squared that could leave the range of numbers.
    """

    num_rows: float
    """A whole number, but where a client's rows count in part."""
    mean: Floats
    """Shape (d,)."""
    deviation: Floats
    """Root of the mean squared deviation from the mean, shape (d,)."""
    rest: Floats
    """What `mean` lost to rounding, shape (d,): the mean is the exact sum of the two."""

    @property
    def sum_squares(self) -> Floats:
        """Sums of squared deviations from the mean, (d,); infinite or 0 where these leave the range of numbers."""
        with np.errstate(over="ignore", under="ignore"):
            squares: Floats = np.square(self.deviation) * self.num_rows
        return squares

    @classmethod
    def of_squares(cls, num_rows: int, mean: Floats, sum_squares: Floats) -> Moments:
        """Moments of a peer that states sums of squares and no more."""
        if num_rows == 0:
            return cls(0, mean, np.zeros_like(mean), np.zeros_like(mean))
        return cls(num_rows, mean, np.sqrt(sum_squares / num_rows), np.zeros_like(mean))


@dataclass(frozen=True, slots=True)
class MedianDistance:
    """Median Euclidean distance between rows."""

    value: float
    """Above 0, unless no two rows differ (or there are fewer than two): then 0."""
    ties: bool
    """More than half of the distances are 0, and `value` is the median of the others."""


@dataclass(frozen=True, slots=True)
class Lengthscale:
    """A lengthscale by the median heuristic."""

    value: float
    floored: bool
    """No usable median distance was there: `value` says little about the data, and a person should choose one."""


def moments(x: Floats) -> Moments:
    """Compute the moments of rows, from values shifted by their mean so that a large one does not cancel.

    Args:
        x: Rows, shape (n, d); n may be 0, which gives zeros.
    """
    num_rows, d = x.shape
    if num_rows == 0:
        return Moments(0, np.zeros(d), np.zeros(d), np.zeros(d))
    shift = x.mean(axis=0, dtype=np.float64)
    shifted = x - shift
    rest = shifted.mean(axis=0)
    shifted -= rest
    # Divided by a power of two, which rounds nothing, squares stay in the range of numbers.
    _, exponent = np.frexp(np.abs(shifted).max(axis=0))
    root = np.sqrt(np.square(np.ldexp(shifted, -exponent)).mean(axis=0))
    mean, rest = _two_sum(shift, rest)
    return Moments(num_rows, mean, np.ldexp(root, exponent), rest)


def pool_moments(parts: Sequence[Moments]) -> Moments:
    """Merge the moments of disjoint sets of rows, in the given order (clients: by name).

    A part without rows has weight exactly 0, whatever its means.

    Raises:
        DataError: No part has a row.
        NumericalError: The squares exceed the range of numbers.

    Source: Chan, Golub & LeVeque (1983), equation (2.1), on roots instead of squares.
    """
    filled = [part for part in parts if part.num_rows > 0]
    if not filled:
        raise DataError("no client has a training row; check the data sets and the rule for missing values")
    total = filled[0]
    with np.errstate(over="ignore", invalid="ignore"):
        for part in filled[1:]:
            num_rows = total.num_rows + part.num_rows
            share, other = part.num_rows / num_rows, total.num_rows / num_rows
            delta = (part.mean - total.mean) + (part.rest - total.rest)
            within = np.hypot(math.sqrt(other) * total.deviation, math.sqrt(share) * part.deviation)
            mean, rest = _two_sum(total.mean, total.rest + delta * share)
            total = Moments(num_rows, mean, np.hypot(within, math.sqrt(share * other) * np.abs(delta)), rest)
        finite = np.isfinite(total.mean) & np.isfinite(total.rest) & np.isfinite(total.sum_squares)
    if not finite.all():
        raise NumericalError(
            f"squares of column {int(np.argmin(finite))} (counted from 0) exceed the range of numbers; divide the "
            "column by a constant at every client"
        )
    return total


def constant_columns(pooled: Moments) -> Flags:
    """Tell which columns hold one value, up to its last digit: deviation at most eps |mean|, shape (d,)."""
    constant: Flags = pooled.deviation <= _CONSTANT * np.abs(pooled.mean)
    return constant


def pooled_deviation(pooled: Moments) -> Floats:
    """Tell each column's standard deviation, shape (d,).

    A constant column (`constant_columns`) gets deviation 1, so that standardising makes it 0 instead of noise.
    """
    return np.where(constant_columns(pooled), 1.0, pooled.deviation)


def weighted_median(values: Sequence[float] | Floats, weights: Sequence[float] | Floats) -> float:
    """Compute the value with half of the weight on either side; the mean of two where both qualify.

    Values of weight 0 do not count.

    Raises:
        DataError: All weights are 0.
    """
    v = np.asarray(values, dtype=np.float64)
    w = np.asarray(weights, dtype=np.float64)
    v, w = v[w > 0], w[w > 0]
    if v.size == 0:
        raise DataError("no client has a weight above 0, so there is no median; check the data sets")
    order = np.argsort(v, kind="stable")
    v, cumulative = v[order], np.cumsum(w[order])
    half = cumulative[-1] / 2
    first = int(np.searchsorted(cumulative, half, side="left"))
    if cumulative[first] == half:
        return float((v[first] + v[first + 1]) / 2)
    return float(v[first])


def median_distance(x: Floats, draw: Stream | None, max_rows: int = 1000, least: int = 1) -> MedianDistance:
    """Compute the median Euclidean distance between different rows.

    Args:
        x: Rows, shape (n, d), standardised.
        draw: Draws the rows where there are more than `max_rows`. None takes evenly spaced ones, which in a file of
            patients times visits may all be of one visit.
        max_rows: Rows that are compared at most.
        least: Fewest rows that the number may stand for. Above 1 it is the mean of the middle distances, so many that
            each row takes part in about `least` of them; the median is the distance of one pair.
    """
    from scipy.spatial.distance import pdist  # noqa: PLC0415  # takes a quarter second of the coordinator's start

    num_rows = x.shape[0]
    if num_rows > max_rows:
        chosen = np.arange(max_rows) * num_rows // max_rows if draw is None else draw.permutation(num_rows)[:max_rows]
        x = x[np.sort(chosen)]
    if x.shape[0] < 2:
        return MedianDistance(0.0, ties=False)
    distances: Floats = pdist(np.ascontiguousarray(x, dtype=np.float64))
    share = min(1.0, least / (x.shape[0] - 1)) if least > 1 else 0.0
    if float(np.median(distances)) > 0:
        return MedianDistance(_middle(distances, share), ties=False)
    positive = distances[distances > 0]
    return MedianDistance(_middle(positive, share) if positive.size else 0.0, ties=True)


def _middle(values: Floats, share: float) -> float:
    """Mean of a share of the values, those in the middle; the median for 0."""
    if share == 0:
        return float(np.median(values))
    num = math.ceil(share * len(values))
    first = (len(values) - num) // 2
    return float(np.partition(values, [first, first + num - 1])[first : first + num].mean())


def agree_lengthscale(medians: Sequence[float], num_rows: Sequence[float]) -> Lengthscale:
    """Choose one lengthscale for all clients: the median of their median distances, weighted by rows.

    Clients without a positive median (fewer than two rows, or all alike) have no say. Where none has one, or the
    result is below `LENGTHSCALE_FLOOR`, that floor (or 1, where there is nothing to go by) is the answer.

    Args:
        medians: Per client, `MedianDistance.value`.
        num_rows: Per client, its training rows.
    """
    weights = [n if m > 0 else 0 for m, n in zip(medians, num_rows, strict=True)]
    if not any(weights):
        return Lengthscale(1.0, floored=True)
    value = weighted_median(medians, weights)
    return Lengthscale(max(value, LENGTHSCALE_FLOOR), floored=value < LENGTHSCALE_FLOOR)


def _two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Add two numbers without loss: their rounded sum, and what it lost. Source: Knuth (1969), section 4.2.2."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)
