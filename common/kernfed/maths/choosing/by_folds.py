"""How well ridge models predict folds that they were not made of, by sums over the folds of each client's rows.

Of a fold's rows Σ z z', Σ z y' and Σ |y|² say what any W makes of them, and the sums of the other folds say W with any
ridge: one eigendecomposition a fold serves all ridges. So clients tell sums, once, and nobody needs a row.

M features, D = M + 1 with the constant before them, C outputs, F folds, L ridges, K pairs of a client and a fold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.maths.choosing.ridge_search import LEAST, MOST
from kernfed.maths.triangles import packed_size, unpack


@dataclass(frozen=True, slots=True)
class FoldSums:
    """Sums over one client's training rows, fold by fold; a fold without rows has zeros."""

    num_rows: Array
    """Shape (F,)."""
    second_moments: Array
    """Σ z z' as upper triangles, (F, D (D + 1)/2); the constant is the first of z."""
    target_moments: Array
    """Σ z y', shape (F, D, C)."""
    target_squares: Array
    """Σ |y|², shape (F,)."""

    def impossible(self, *, squared: float = math.inf, slack: float = 1e-6) -> str:
        """Say why no rows have such sums, in words; empty: rows may have them.

        Args:
            squared: The most that |z|² of a row is, without the constant; infinity: nobody knows.
            slack: Part by which rounding may move a sum.
        """
        size = self.target_moments.shape[1]
        if self.second_moments.shape[1] != packed_size(size):
            return "its second moments are of another number of features than its target moments"
        diagonal = self.second_moments[:, np.cumsum([0, *range(size, 1, -1)])]
        rows = np.asarray(self.num_rows, np.float64)
        tiny = slack * (1.0 + rows)
        if (np.abs(diagonal[:, 0] - rows) > tiny).any():
            return "its second moments are not of so many rows"
        if (diagonal < 0).any() or (diagonal[:, 1:].sum(axis=1) > (1.0 + slack) * squared * rows + tiny).any():
            return "its second moments are those of no features"
        if (self.target_squares < 0).any():
            return "a sum of squares is below 0"
        most = diagonal[:, :, None] * np.asarray(self.target_squares)[:, None, None]
        if (np.square(self.target_moments) > most * (1.0 + slack) + slack**2 * (1.0 + most.max(initial=0.0))).any():
            return "its target moments are larger than features and targets allow"
        return ""


@dataclass(frozen=True, slots=True)
class Told:
    """What rows kept apart say of several models: the sum of squared errors of each over each client's part of a fold.

    The same parts for all models, so that two of them can be compared in pairs.
    """

    errors: Floats
    """Sums, shape (L, K)."""
    rows: Floats
    """Rows behind them, shape (K,), each above 0."""

    @property
    def means(self) -> Floats:
        """Mean squared error of each model, (L,)."""
        means: Floats = self.errors.sum(axis=1) / self.rows.sum()
        return means

    def standard_errors(self) -> Floats:
        """Of each mean, (L,)."""
        return np.array([_standard_error(errors, self.rows) for errors in self.errors])

    def standard_error_of_difference(self, one: int, other: int) -> float:
        """Of the difference of two means, by the differences of the parts."""
        return _standard_error(self.errors[one] - self.errors[other], self.rows)

    def best(self, usual: int | None = None) -> int:
        """Which model to take: that of the least error, unless the usual one is within a standard error of it.

        Args:
            usual: The model that there would be without a choice; None: there is none.
        """
        means = self.means
        found = int(np.argmin(means))
        if usual is None or not math.isfinite(means[usual]):
            return found
        near = means[usual] - means[found] <= self.standard_error_of_difference(usual, found)
        return usual if near else found


def _standard_error(sums: Floats, rows: Floats) -> float:
    """Of Σ sums/Σ rows, as a ratio of means over parts; infinity of a single part."""
    num = len(rows)
    if num < 2 or not np.isfinite(sums).all():
        return math.inf
    rest = sums - sums.sum() / rows.sum() * rows
    return float(math.sqrt(np.square(rest).sum() * num / (num - 1)) / rows.sum())


def ridges_around(ridge: float) -> list[float]:
    """Ridges to choose among, by half tens from 10⁻⁴ to 10³ times one, as far as a model can have them; ascending."""
    found = (ridge * 10.0 ** (step / 2) for step in range(-8, 7))
    return [r for r in found if LEAST <= r <= MOST] or [ridge]


def held_out(sums: Sequence[FoldSums], shares: Sequence[float], ridges: Sequence[float], *, intercept: bool) -> Told:
    """Squared errors of the pooled ridge model with each ridge, over each fold that it is made without.

    The objective is |Z W - Y|²/(2n) + (ridge/2) |W|², over the rows of the other folds. With an intercept features and
    targets are less their means over these rows.

    Args:
        sums: Of each client, in the order of their names.
        shares: By what each client's rows count, in the objective and among the errors; 1: as they are.
        ridges: L of them, each above 0.
        intercept: Whether there is one.

    Returns:
        Without parts (K = 0) where no fold can be kept apart.
    """
    size = sums[0].target_moments.shape[1]
    parts = [(s, share) for s, share in zip(sums, shares, strict=True) if share > 0]
    seconds = sum((share * np.asarray(s.second_moments, np.float64) for s, share in parts), np.zeros(1))
    moments = sum((share * np.asarray(s.target_moments, np.float64) for s, share in parts), np.zeros(1))
    errors, rows = [], []
    for fold in range(len(sums[0].num_rows)):
        apart = [(s, share) for s, share in parts if s.num_rows[fold] > 0]
        left = np.delete(np.arange(len(sums[0].num_rows)), fold)
        gram, moment = unpack(seconds[left].sum(axis=0), size), moments[left].sum(axis=0)
        if not apart or not gram[0, 0] > 0:
            continue
        weights = _path(gram, moment, ridges, intercept=intercept)
        stacked = weights.transpose(1, 0, 2).reshape(size, -1)
        for own, share in apart:
            product = unpack(np.asarray(own.second_moments[fold], np.float64), size) @ stacked
            half = 2.0 * np.tile(np.asarray(own.target_moments[fold], np.float64), len(ridges)) - product
            each = (stacked * half).sum(axis=0).reshape(len(ridges), -1).sum(axis=1)
            errors.append(share * np.maximum(float(own.target_squares[fold]) - each, 0.0))
            rows.append(share * float(own.num_rows[fold]))
    return Told(np.array(errors).reshape(-1, len(ridges)).T, np.array(rows))


def _path(gram: Floats, moment: Floats, ridges: Sequence[float], *, intercept: bool) -> Floats:
    """Coefficients of the constant and the features with each ridge, shape (L, D, C)."""
    num = gram[0, 0]
    mean = gram[0, 1:] / num if intercept else np.zeros(len(gram) - 1)
    target = moment[0] / num if intercept else np.zeros(moment.shape[1])
    values, vectors = np.linalg.eigh(gram[1:, 1:] / num - np.outer(mean, mean))
    turned = vectors.T @ (moment[1:] / num - np.outer(mean, target))
    slopes = [vectors @ (turned / (np.maximum(values, 0.0) + ridge)[:, None]) for ridge in ridges]
    return np.stack([np.vstack([target - mean @ w, w]) for w in slopes])
