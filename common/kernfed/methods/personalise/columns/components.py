"""Principal components of a mixture of clients' rows, from embeddings alone.

The error |u - m - P(u - m)|² of a row u that is projected to a subspace is a polynomial of degree 2. It lies in the
space of the kernel (u'v + 1)², so that the risk of components on a mixture of clients follows from the mixture of their
embeddings: the paper's assumption 4.1 holds exactly. Such an embedding is the mean and the second moment of the rows,
and nothing more.

Source: Fermanian, Le Bars & Bellet, "Adaptive personalized federated learning via multi-task averaging of kernel mean
embeddings", Section 5.2: dimensionality reduction as the minimisation of a population risk.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kernfed.arrays import Floats, Integers
from kernfed.methods.personalise.columns.mixtures import choose_by


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
