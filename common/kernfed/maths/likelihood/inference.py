"""From pooled sums to coefficients in the columns' own units, with their standard errors, tests and intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Floats, Integers
from kernfed.wording import listed

_SINGULAR = 1e-11
"""Least eigenvalue of a Hessian with a diagonal of 1 from which on columns are told apart."""
_ROUNDING = 1e-8
"""Relative rounding of sums."""
_PART = 0.2
"""A column takes part in a sum of columns where its coefficient is at least this part of the greatest."""


@dataclass(frozen=True, slots=True)
class Coefficient:
    """One coefficient, in the units of its column."""

    name: str
    estimate: float
    error: float
    """Standard error."""
    statistic: float
    """Estimate over error."""
    p_value: float
    """Of the hypothesis that the coefficient is 0, two-sided."""
    low: float
    """Of the confidence interval."""
    high: float


def score_products(each: Floats, group: Integers | None) -> Floats:
    """Sum of products u u' of the scores u of groups, (K, K), which robust errors are made of.

    Args:
        each: Scores of the rows, (n, K).
        group: Of each row, (n,); None: each row is one.
    """
    if group is not None:
        _, place = np.unique(group, return_inverse=True)
        by_group = np.zeros((int(place.max()) + 1, each.shape[1]))
        np.add.at(by_group, place, each)
        each = by_group
    found: Floats = each.T @ each
    return found


@dataclass(frozen=True, slots=True)
class Units:
    """K coefficients of scaled columns as those of the columns in their own units."""

    mean: Floats
    """Of the columns, (P,)."""
    deviation: Floats
    """(P,)."""
    intercept: bool
    """Whether the first coefficient is one: of P + 1."""

    def matrix(self) -> Floats:
        """What to multiply coefficients of scaled columns by, (K, K)."""
        first = int(self.intercept)
        found = np.eye(len(self.mean) + first)
        diagonal = np.arange(first, len(found))
        found[diagonal, diagonal] = 1.0 / self.deviation
        if first:
            found[0, 1:] = -self.mean / self.deviation
        return found


def errors_by(*, robust: bool, groups: int, rows: int) -> str:
    """Whose standard errors are: `model`, `robust by group`, or `robust by row` where each row is a group."""
    if not robust:
        return "model"
    return "robust by group" if groups < rows else "robust by row"


def not_semidefinite(matrix: Floats, what: str) -> Iterator[str]:
    """Why a matrix (K, K) can be no sum of outer products, in words; nothing: it can."""
    size = float(np.abs(matrix).max(initial=0.0))
    if np.abs(matrix - matrix.T).max(initial=0.0) > _ROUNDING * size:
        yield f"states a {what} that is not symmetric"
    elif size and float(np.linalg.eigvalsh(matrix)[0]) < -_ROUNDING * size * len(matrix):
        yield f"states a {what} that is not positive semidefinite"


def lacking_rank(hessian: Floats, names: Sequence[str]) -> str:
    """Which columns add up to others, so that they have no coefficients of their own, in words; empty: none.

    Args:
        hessian: Shape (K, K), of scaled columns.
        names: Of the K coefficients.
    """
    diagonal = np.diag(hessian)
    flat = [name for name, size in zip(names, diagonal, strict=True) if not size > 0]
    if flat:
        return f"column {listed(flat)} is 0, or the same in every row"
    scale = 1.0 / np.sqrt(diagonal)
    values, vectors = np.linalg.eigh(hessian * np.outer(scale, scale))
    if values[0] > _SINGULAR * len(names):
        return ""
    part = np.abs(vectors[:, 0])
    told = [name for name, size in zip(names, part, strict=True) if size >= _PART * part.max()]
    return f"columns {listed(told)} add up to a constant or to each other"


def covariance(
    hessian: Floats, information: Floats, scores: Floats | None, *, dispersion: float, rows: int, groups: int
) -> Floats:
    """Covariance of the coefficients, (K, K): the inverse of the information, or the sandwich.

    Args:
        hessian: Of minus the log-likelihood, times the dispersion, over all rows.
        information: Its expectation.
        scores: Sum over groups of the outer products of their gradients, times the dispersion twice; None: the model's
            covariance is asked for.
        dispersion: φ.
        rows: n, above K.
        groups: G, above 1.

    Source: of the sandwich with the correction G/(G-1) (n-1)/(n-K), K.-Y. Liang and S. L. Zeger, *Longitudinal data
    analysis using generalized linear models*, Biometrika 73 (1986) 13-22; with single rows it is HC1.
    """
    if scores is None:
        found: Floats = np.asarray(np.linalg.inv(information), dtype=np.float64) * dispersion
        return found
    bread: Floats = np.asarray(np.linalg.inv(hessian), dtype=np.float64)
    few = groups / (groups - 1) * (rows - 1) / (rows - len(hessian))
    sandwich: Floats = bread @ scores @ bread * few
    return sandwich


def coefficients(
    names: Sequence[str], estimates: Floats, matrix: Floats, *, confidence: float, freedom: int | None
) -> tuple[Coefficient, ...]:
    """The table of coefficients.

    Args:
        names: K of them.
        estimates: Shape (K,).
        matrix: Their covariance, (K, K).
        confidence: Of the intervals.
        freedom: Degrees of freedom of Student's t; None: the normal distribution.
    """
    from scipy.special import ndtr, ndtri, stdtr, stdtrit  # noqa: PLC0415  # the coordinator starts without scipy

    level = (1.0 + confidence) / 2.0
    reach = float(ndtri(level) if freedom is None else stdtrit(freedom, level))
    found = []
    for name, estimate, variance in zip(names, estimates.tolist(), np.diag(matrix).tolist(), strict=True):
        error = math.sqrt(max(variance, 0.0))
        statistic = estimate / error if error > 0 else 0.0
        below = ndtr(-abs(statistic)) if freedom is None else stdtr(freedom, -abs(statistic))
        found.append(
            Coefficient(
                name=name,
                estimate=estimate,
                error=error,
                statistic=statistic,
                p_value=min(2.0 * float(below), 1.0),
                low=estimate - reach * error,
                high=estimate + reach * error,
            )
        )
    return tuple(found)
