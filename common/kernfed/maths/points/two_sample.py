"""A kernel two-sample test: whether two samples are of one law, by the maximum mean discrepancy and permutations."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernfed import rng
from kernfed.arrays import Floats
from kernfed.errors import ConfigError, DataError
from kernfed.features.kernels import KernelSpec, PointKernel
from kernfed.maths.points.kernels import gram
from kernfed.maths.statistics import median_distance
from kernfed.memory import require_bytes

_COPIES = 4
"""Matrices of all pairs that are in memory at a time, at most."""
_BLOCK = 64
"""Permutations that are counted at once."""


@dataclass(frozen=True, slots=True)
class TwoSample:
    """Result of a two-sample test."""

    statistic: float
    """Unbiased estimate of the squared maximum mean discrepancy; below 0 where the samples are more alike than two of
    one law are on average."""
    p_value: float
    """Share of permutations, the samples as they are included, with a statistic at least as large."""
    lengthscale: float
    """Of the Gaussian kernel; one number for all columns."""
    num_permutations: int


def two_sample(
    x: Floats,
    y: Floats,
    *,
    lengthscale: float | None = None,
    num_permutations: int = 999,
    seed: int = 0,
) -> TwoSample:
    """Test whether two samples are of one law.

    The statistic is the unbiased one: the means of k over different pairs within each sample, less twice its mean over
    pairs between them. Under one law all divisions of the rows into two samples of these sizes are alike, so with B
    permutations, of which # have a statistic at least as large, p = (1 + #)/(1 + B) is exact: P(p <= a) <= a for every
    a. It holds at any size and for any lengthscale that does not look at which row is in which sample.

    Args:
        x: Rows of the first sample, shape (n, d), or (n,) of one column; at least 2.
        y: Rows of the second, shape (m, d), or (m,).
        lengthscale: ℓ of k(a, b) = exp(-|a - b|²/2ℓ²), in the units of the columns, above 0; None: the median distance
            between rows of both samples together (of 1,000 drawn by the seed, where there are more).
        num_permutations: B, at least 1. No p-value is below 1/(B + 1).
        seed: Of the permutations; the same seed gives the same p-value.

    Raises:
        DataError: Shapes do not fit, a sample has fewer than two rows, a value is text or not a finite number, or the
            matrix of all pairs does not fit into memory.
        ConfigError: A setting is out of its range.

    Source: Gretton, Borgwardt, Rasch, Schölkopf & Smola (2012), Lemma 6; permutations: Phipson & Smyth (2010).
    """
    a, b = _rows(x, "x"), _rows(y, "y")
    if a.shape[1] != b.shape[1]:
        raise DataError(f"x has {a.shape[1]} columns and y {b.shape[1]}; give both the same columns")
    if not _is_whole(num_permutations) or num_permutations < 1:
        raise ConfigError(f"num_permutations is {num_permutations!r}; give a whole number from 1 on")
    if not _is_whole(seed):
        raise ConfigError(f"seed is {seed!r}; give a whole number")
    if lengthscale is not None and not (_is_number(lengthscale) and math.isfinite(lengthscale) and lengthscale > 0):
        raise ConfigError(f"lengthscale is {lengthscale!r}; give a number above 0")
    pooled, n = np.concatenate([a, b]), len(a)
    total = len(pooled)
    require_bytes(_COPIES * 8 * total * total, f"a two-sample test of {total} rows", "give fewer rows")
    if lengthscale is None:
        ordered = pooled[np.lexsort(pooled.T)]  # or the draw would see which row is in which sample
        lengthscale = median_distance(ordered, rng.stream(seed, "two-sample", "median")).value or 1.0
    spec = KernelSpec(PointKernel.GAUSSIAN, (lengthscale,) * pooled.shape[1], intercept=False)
    k = gram(spec, pooled)
    np.fill_diagonal(k, 0.0)
    rows = k.sum(axis=1)
    everything = float(rows.sum())
    draw = rng.stream(seed, "two-sample", "permutations")
    first = np.zeros(total)
    first[:n] = 1.0
    statistic = float(_statistics(k, rows, everything, first[:, None], n)[0])
    at_least = 0
    for start in range(0, num_permutations, _BLOCK):
        chosen = np.zeros((total, min(_BLOCK, num_permutations - start)))
        for column in chosen.T:
            column[draw.permutation(total)[:n]] = 1.0
        found = _statistics(k, rows, everything, chosen, n)
        at_least += int((found >= statistic - _rounding(total)).sum())
    return TwoSample(statistic, (1 + at_least) / (1 + num_permutations), lengthscale, num_permutations)


def _is_whole(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _statistics(k: Floats, rows: Floats, everything: float, first: Floats, n: int) -> Floats:
    """Unbiased statistics, one for each column of `first`, which marks the rows of the first sample, (n + m, B)."""
    m = len(k) - n
    within = np.einsum("ib,ib->b", first, k @ first)
    between = rows @ first - within
    found: Floats = within / (n * (n - 1)) + (everything - within - 2 * between) / (m * (m - 1)) - 2 * between / (n * m)
    return found


def _rounding(total: int) -> float:
    """Statistics of so many rows that differ by less are the same: sums of another order."""
    return 1e-14 * math.sqrt(total)


def _rows(values: Floats, name: str) -> Floats:
    try:
        if np.iscomplexobj(values):  # whose imaginary parts would be dropped
            raise TypeError("complex numbers")
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} holds something that is no number ({error}); give columns of numbers alone") from error
    found = found[:, None] if found.ndim == 1 else found
    if found.ndim != 2 or found.shape[1] < 1:
        raise DataError(f"{name} has shape {np.shape(values)}; give rows and columns, (rows, columns)")
    if len(found) < 2:
        raise DataError(f"{name} has {len(found)} rows; a sample needs at least 2")
    if not np.isfinite(found).all():
        raise DataError(f"{name} holds NaN or infinity; leave these rows out")
    return found
