"""Kernel mean embeddings: a distribution as the mean of its rows' features, and distances between such means.

An embedding is the mean ν = Σ φ(z_i)/n of n rows in feature space. Its expected squared error is Tr Σ/n, with Σ the
covariance of φ(z); the trace travels with it, so that a distance can be told from the noise of few rows.

Equations are those of Fermanian, Le Bars & Bellet, "Adaptive personalized federated learning via multi-task averaging
of kernel mean embeddings". B clients, M features.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Floats
from kernfed.errors import ConfigError, DataError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, FeatureSpec, make_spec


class View(enum.StrEnum):
    """Which columns are embedded."""

    XY = "xy"
    """Features and targets: clients differ in how y depends on x (concept shift)."""
    X = "x"
    """Features alone: clients differ in where their x lie (covariate shift)."""


@dataclass(frozen=True, slots=True)
class Embedding:
    """The empirical mean embedding of a client's rows."""

    num_rows: int
    mean: Floats
    """ν, shape (M,)."""
    trace: float
    """Tr Σ, at least 0; (22)."""

    @property
    def error(self) -> float:
        """Expected squared error of the mean, (6)."""
        return self.trace / self.num_rows


@dataclass(frozen=True, slots=True)
class TargetTerms:
    """Facts on its target that Q-aggregation needs beside the embeddings; computed where the target's rows are."""

    num_rows: int
    trace: float
    """Tr Σ_t, (22)."""
    spread: Floats
    """q_k = <ν_k - ν_t, Σ_t (ν_k - ν_t)>, shape (B,), (23)."""
    distance: Floats
    """|ν_k - ν_t|, shape (B,)."""


def embed(phi: Floats) -> Embedding:
    """Embed rows.

    Of a single row no covariance is known. Its second moment stands in for it, which is the larger of the two.

    Args:
        phi: Features of the rows, shape (n, M).

    Raises:
        DataError: No row.
    """
    mean, centred, degrees = _centred(phi)
    return Embedding(len(phi), mean, float(np.square(centred).sum()) / degrees)


def target_terms(phi: Floats, means: Floats) -> TargetTerms:
    """Compute a target's terms from its own rows and everyone's embeddings.

    Args:
        phi: Features of the target's rows, shape (n, M).
        means: Embeddings, shape (B, M).

    Raises:
        DataError: No row.

    Source: equations (22) and (23).
    """
    mean, centred, degrees = _centred(phi)
    offset = means - mean
    spread = np.square(centred @ offset.T).sum(axis=0) / degrees
    trace = float(np.square(centred).sum()) / degrees
    return TargetTerms(len(phi), trace, spread, np.sqrt(np.square(offset).sum(axis=1)))


def _centred(phi: Floats) -> tuple[Floats, Floats, int]:
    """The mean, the rows less it, and by what their squares are divided; a single row is left as it is."""
    n = phi.shape[0]
    if n == 0:
        raise DataError("an embedding needs at least 1 row, there is none; add rows")
    mean: Floats = phi.mean(axis=0)
    return (mean, phi - mean, n - 1) if n > 1 else (mean, phi, 1)


def squared_distances(means: Floats) -> Floats:
    """Compute |ν_k - ν_l|² between all embeddings, shape (B, B), at least 0, with a diagonal of exact zeros."""
    centred = means - means.mean(axis=0)
    gram = centred @ centred.T
    norms = gram.diagonal()
    squares: Floats = np.maximum(norms[:, None] - 2.0 * gram + norms[None, :], 0.0)
    np.fill_diagonal(squares, 0.0)
    return squares


def view_spec(
    view: View,
    num_columns: int,
    num_outputs: int,
    *,
    kernel: Kernel = Kernel.GAUSSIAN,
    num_frequencies: int = 500,
    lengthscales: Sequence[float] = (),
    seed: int = 0,
) -> FeatureSpec:
    """Specify the map that embeds standardised columns z = x, or z = [x, y].

    Without lengthscales, each group of d columns (all of x; all of y) gets sqrt(2 d): distances in x and in y then
    count alike, however many columns x has.

    Args:
        view: Which columns.
        num_columns: Columns of x.
        num_outputs: Columns of y: 1, or one per class.
        kernel: The embedding's kernel; exact ones (linear, polynomial2) have nothing random.
        num_frequencies: Random frequencies D.
        lengthscales: None, one for x, or two for x and y, or one per column of z.
        seed: Of the frequencies.

    Raises:
        ConfigError: The number of lengthscales does not fit.
    """
    groups = [num_columns] if view is View.X else [num_columns, num_outputs]
    total = sum(groups)
    if not lengthscales:
        lengthscales = [math.sqrt(2.0 * d) for d in groups]
    if len(lengthscales) == len(groups):
        lengthscales = [scale for scale, d in zip(lengthscales, groups, strict=True) for _ in range(d)]
    if len(lengthscales) != total:
        raise ConfigError(
            f"method.lengthscales has {len(lengthscales)} numbers; give {len(groups)} (one for x"
            f"{', one for y' if len(groups) == 2 else ''}) or {total} (one per embedded column)"
        )
    return make_spec(kernel, FeatureForm.COSINE, total, lengthscales, num_frequencies, seed)
