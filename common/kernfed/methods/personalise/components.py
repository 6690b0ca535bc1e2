"""Principal components of a mixture of clients' rows, from embeddings alone.

The error |u - m - P(u - m)|² of a row u that is projected to a subspace is a polynomial of degree 2. It lies in the
space of the kernel (u'v + 1)², so that the risk of components on a mixture of clients follows from the mixture of their
embeddings: the paper's assumption 4.1 holds exactly. Such an embedding is the mean and the second moment of the rows,
and nothing more.

Which mixture a client takes, its own rows decide, each by components that have not seen it: alone, all rows alike, the
weights that were learned, and the clients that are nearest by embeddings, each leaning on them more or less.

Source: Fermanian, Le Bars & Bellet, "Adaptive personalized federated learning via multi-task averaging of kernel mean
embeddings", Section 5.2: dimensionality reduction as the minimisation of a population risk.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kernfed.arrays import Floats, Integers

ALONE, ALL_ALIKE = 0, 1
"""Places of these two among `mixtures`."""
_NEAREST = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_LEANING = (1.0, 0.3, 0.1)
_EQUAL = 1e-9
"""Relative difference of errors up to which two mixtures are equal: weights that were learned may be those of all."""


class Components(NamedTuple):
    """A mean, and directions from it."""

    mean: Floats
    """(d,)."""
    directions: Floats
    """Orthonormal columns, most variance first, (d, r)."""
    variances: Floats
    """Of the mixture along them, (r,)."""

    def squared_error(self, rows: Floats) -> float:
        """Sum over rows, (n, d), of the squared distance to what the components make of them."""
        centred = rows - self.mean
        return float(np.square(centred - centred @ self.directions @ self.directions.T).sum())


def principal(embedding: Floats, num_components: int) -> Components:
    """Components of the rows that an embedding stands for.

    Args:
        embedding: Mean of the features of the kernel (u'v + 1)², ((d+1)(d+2)/2,); see
            `kernfed.tensors.feature_maps.polynomial_features`.
        num_components: r, from 1 to d.
    """
    size = math.isqrt(2 * len(embedding))  # (d+1)(d+2)/2 = (s² + s)/2 with s = d + 1
    moments = np.zeros((size, size))
    upper = np.triu_indices(size)
    moments[upper] = embedding / np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))
    moments += np.triu(moments, 1).T
    mean, second = moments[0, 1:], moments[1:, 1:]
    values, vectors = np.linalg.eigh(second - np.outer(mean, mean))
    directions = vectors[:, ::-1][:, :num_components]
    largest = directions[np.abs(directions).argmax(axis=0), np.arange(num_components)]
    return Components(mean, directions * np.sign(largest), values[::-1][:num_components])


def mixtures(own: int, num_rows: Floats, squares: Floats, learned: Floats | None) -> Floats:
    """Weights over clients to choose from, (S, B): `ALONE`, `ALL_ALIKE`, then others.

    Args:
        own: Place t of the client.
        num_rows: Of each client, (B,).
        squares: Unbiased squared distances of the clients' embeddings to its own, (B,).
        learned: Weights that the client has learned already, (B,).
    """
    alone = np.eye(len(num_rows))[own]
    found = [alone, num_rows / num_rows.sum()]
    if learned is not None:
        found.append(learned)
    others = np.array([k for k in np.argsort(squares, kind="stable") if k != own], dtype=np.intp)
    for count in sorted({min(count, len(others)) for count in _NEAREST}):
        for share in _LEANING if count else ():
            weights = np.zeros(len(num_rows))
            weights[others[:count]] = share * num_rows[others[:count]]
            weights[own] = num_rows[own]
            found.append(weights / weights.sum())
    return np.array(found)


def choose(
    weights: Floats, own: int, means: Floats, phi: Floats, rows: Floats, fold: Integers, num_components: int
) -> int:
    """The mixture whose components lose least on own rows, each by components without its fold.

    Args:
        weights: Mixtures, (S, B).
        own: Place t of the client.
        means: Embeddings, (B, M).
        phi: Features of own rows, (n, M).
        rows: These rows, (n, d).
        fold: Which fold each is in, from 0 on, (n,); where there is one fold alone, all rows alike are taken.
        num_components: r.

    Returns:
        Place among the mixtures; the first of those that are equal but for rounding.
    """

    def error(mixed: Floats, held: Integers) -> float:
        return principal(mixed, num_components).squared_error(rows[held])

    return choose_by(weights, own, means, phi, fold, error)


def choose_by(
    weights: Floats, own: int, means: Floats, phi: Floats, fold: Integers, error: Callable[[Floats, Integers], float]
) -> int:
    """The mixture that loses least on own rows, each by a mixture without its fold.

    Args:
        weights: Mixtures, (S, B).
        own: Place t of the client.
        means: Embeddings, (B, M).
        phi: Features of own rows, (n, M).
        fold: As in `choose`.
        error: Of an embedding, (M,), on the rows of these places, summed.

    Returns:
        As `choose`.
    """
    num_folds = int(fold.max()) + 1
    if num_folds < 2:
        return ALL_ALIKE
    others = weights.copy()
    others[:, own] = 0.0
    without = others @ means
    errors = np.zeros(len(weights))
    for apart in range(num_folds):
        rest, held = phi[fold != apart].mean(axis=0), np.flatnonzero(fold == apart)
        errors += [error(mixed + weights[i, own] * rest, held) for i, mixed in enumerate(without)]
    return int(np.flatnonzero(errors <= errors.min() * (1.0 + _EQUAL))[0])
