"""Statistics that clients compute on their own rows and the coordinator pools: moments, medians, distances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernfed.arrays import Floats
from kernfed.errors import DataError, NumericalError

LENGTHSCALE_FLOOR = 1e-3
"""Smallest lengthscale that the median heuristic gives, in units of the (standardised) columns."""

_CONSTANT = 64 * float(np.finfo(np.float64).eps)
"""A deviation below this fraction of |mean| is rounding: the column is constant."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Row count, means, and squared deviations from them, per column."""

    num_rows: int
    mean: Floats
    """Shape (d,)."""
    sum_squares: Floats
    """Sums of squared deviations from `mean`, shape (d,)."""


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
    """Compute the moments of rows, in two passes so that a large mean does not cancel.

    Args:
        x: Rows, shape (n, d); n may be 0, which gives zeros.
    """
    num_rows, d = x.shape
    if num_rows == 0:
        return Moments(0, np.zeros(d), np.zeros(d))
    mean = x.mean(axis=0, dtype=np.float64)
    mean += (x - mean).mean(axis=0)
    return Moments(num_rows, mean, np.square(x - mean).sum(axis=0))


def pool_moments(parts: Sequence[Moments]) -> Moments:
    """Merge the moments of disjoint sets of rows, in the given order (clients: by name).

    A part without rows has weight exactly 0, whatever its means.

    Raises:
        DataError: No part has a row.
        NumericalError: The squares exceed the range of numbers.

    Source: Chan, Golub & LeVeque (1983), equation (2.1).
    """
    filled = [part for part in parts if part.num_rows > 0]
    if not filled:
        raise DataError("no client has a training row; check the data sets and the rule for missing values")
    total = filled[0]
    with np.errstate(over="ignore", invalid="ignore"):
        for part in filled[1:]:
            num_rows = total.num_rows + part.num_rows
            share = part.num_rows / num_rows
            delta = part.mean - total.mean
            mean = total.mean + delta * share
            squares = total.sum_squares + part.sum_squares + delta * delta * (total.num_rows * share)
            total = Moments(num_rows, mean, squares)
    if not (np.isfinite(total.mean).all() and np.isfinite(total.sum_squares).all()):
        column = int(np.flatnonzero(~(np.isfinite(total.mean) & np.isfinite(total.sum_squares)))[0])
        raise NumericalError(
            f"squares of column {column} (counted from 0) exceed the range of numbers; divide the column by a "
            "constant at every client"
        )
    return total


def constant_columns(pooled: Moments) -> npt.NDArray[np.bool_]:
    """Tell which columns hold one value, up to rounding: deviation at most 64 eps |mean|, shape (d,)."""
    constant: npt.NDArray[np.bool_] = _deviation(pooled) <= _CONSTANT * np.abs(pooled.mean)
    return constant


def pooled_deviation(pooled: Moments) -> Floats:
    """Compute each column's standard deviation sqrt(sum_squares / n), shape (d,).

    A constant column (`constant_columns`) gets deviation 1, so that standardising makes it 0 instead of noise.
    """
    return np.where(constant_columns(pooled), 1.0, _deviation(pooled))


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


def median_distance(x: Floats, max_rows: int = 1000) -> MedianDistance:
    """Compute the median Euclidean distance between different rows.

    Args:
        x: Rows, shape (n, d), standardised.
        max_rows: With more rows, this many evenly spaced ones are used, always the same.
    """
    from scipy.spatial.distance import pdist  # noqa: PLC0415  # takes a quarter second of the coordinator's start

    num_rows = x.shape[0]
    if num_rows > max_rows:
        x = x[np.arange(max_rows) * num_rows // max_rows]
    if x.shape[0] < 2:
        return MedianDistance(0.0, ties=False)
    distances: Floats = pdist(np.ascontiguousarray(x, dtype=np.float64))
    value = float(np.median(distances))
    if value > 0:
        return MedianDistance(value, ties=False)
    positive = distances[distances > 0]
    return MedianDistance(float(np.median(positive)) if positive.size else 0.0, ties=True)


def agree_lengthscale(medians: Sequence[float], num_rows: Sequence[int]) -> Lengthscale:
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


def _deviation(pooled: Moments) -> Floats:
    deviation: Floats = np.sqrt(pooled.sum_squares / pooled.num_rows)
    return deviation
