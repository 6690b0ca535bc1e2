"""Centres of k-means of a mixture of clients' rows, from embeddings alone.

With the Gaussian kernel, K groups of rows of one width, Σ a_j N(c_j, s² I) of columns u that are divided by the
lengthscales, have the embedding Σ a_j exp(-s² |ω|²/2) φ(c_j). The groups whose embedding is nearest to that of a
mixture are found by gradient steps, from two beginnings; their places c_j are the centres. The error |u - c_j|² of a
row is that of its nearest centre.

Source: Fermanian, Le Bars & Bellet, "Adaptive personalized federated learning via multi-task averaging of kernel mean
embeddings", Section 5.2: clustering as the minimisation of a population risk; Keriven, Tremblay, Traonmilin &
Gribonval (2017), "Compressive K-means", Section 3: centres from an embedding; Keriven, Bourrier, Gribonval & Pérez
(2018), Section 4: groups that have a width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kernfed.arrays import Floats, Integers
from kernfed.rng import Stream

_STARTS = 10
"""Beginnings of k-means on rows."""
_TURNS = 100
"""Turns of k-means at most, and of gradient steps twice as many."""


class Centres(NamedTuple):
    """Where groups of rows lie."""

    places: Floats
    """Columns divided by the lengthscales, (K, d)."""
    shares: Floats
    """Of the rows, largest first, (K,)."""

    def squared_error(self, rows: Floats) -> float:
        """Sum over rows, (n, d), of the squared distance to the nearest centre."""
        return float(_squares(rows, self.places).min(axis=1).sum()) if len(rows) else 0.0

    def width(self, rows: Floats) -> float:
        """Mean over rows, (n, d), and columns of the squared distance to the nearest centre."""
        return self.squared_error(rows) / max(1, rows.size)


class Waves(NamedTuple):
    """Frequencies and phases of an embedding."""

    omega: Floats
    """Of columns that are divided by the lengthscales, (M, d)."""
    phase: Floats
    """(M,)."""

    def features(self, rows: Floats, width: float = 0.0) -> Floats:
        """Mean features of groups around rows, (n, d), whose variance is `width` in each column; (n, M)."""
        faded = math.sqrt(2.0 / len(self.omega)) * np.exp(-0.5 * width * np.square(self.omega).sum(axis=1))
        found: Floats = faded * np.cos(rows @ self.omega.T + self.phase)
        return found


def of_rows(rows: Floats, num_centres: int, draws: Stream) -> Centres:
    """Centres of k-means on rows: the best of some beginnings that k-means++ draws.

    Args:
        rows: At least one, (n, d).
        num_centres: K; of fewer different rows some centres are the same.
        draws: For the beginnings.
    """
    found, least = np.zeros((0, 0)), math.inf
    for _ in range(_STARTS):
        places = _settled(rows, _apart(rows, num_centres, draws))
        error = float(_squares(rows, places).min(axis=1).sum())
        if error < least:
            found, least = places, error
    return _ordered(found, np.bincount(_nearest(rows, found), minlength=num_centres) / len(rows))


def of_embedding(embedding: Floats, waves: Waves, beginnings: Sequence[Floats], width: float) -> Centres:
    """Centres of the mixture that an embedding stands for: of the best of some beginnings.

    Args:
        embedding: ν, (M,).
        waves: By which it was made.
        beginnings: Centres, (K, d) each.
        width: Variance s² of a group in each column, at first.
    """
    ends = [_nearest_groups(embedding, waves, places, width) for places in beginnings]
    _, places, shares = min(ends, key=lambda end: end[0])
    return _ordered(places, shares / max(float(shares.sum()), 1e-300))


def telling(embedding: Floats, waves: Waves, points: Floats, num: int, width: float) -> Floats:
    """Points around which groups tell most of an embedding, each of what those before it leave, (K, d).

    Args:
        embedding: ν, (M,).
        waves: By which it was made.
        points: To choose from, at least one, (P, d).
        num: K.
        width: Variance of a group in each column.
    """
    from scipy.optimize import nnls  # noqa: PLC0415  # as above

    features = waves.features(points, width)
    norms = np.linalg.norm(features, axis=1)
    left, chosen = embedding, []
    for _ in range(num):
        chosen.append(int((features @ left / norms).argmax()))
        shares, _ = nnls(features[chosen].T, embedding)
        left = embedding - shares @ features[chosen]
    return points[chosen]


def _nearest_groups(embedding: Floats, waves: Waves, places: Floats, width: float) -> tuple[float, Floats, Floats]:
    """Groups at a least distance to the embedding: this distance, places (K, d) and shares (K,)."""
    from scipy.optimize import minimize  # noqa: PLC0415  # a fifth of a second; few jobs look for centres

    (num, columns), squares = places.shape, np.square(waves.omega).sum(axis=1)
    size, scale = num * columns, max(float(embedding @ embedding), 1e-300)

    def distance(x: Floats) -> tuple[float, Floats]:
        at, shares, s2 = x[:size].reshape(num, columns), x[size:-1], x[-1]
        angle = at @ waves.omega.T + waves.phase
        faded = math.sqrt(2.0 / len(squares)) * np.exp(-0.5 * s2 * squares)
        each = faded * np.cos(angle)
        apart = shares @ each - embedding
        by_place = -shares[:, None] * ((faded * np.sin(angle) * apart) @ waves.omega)
        by_width = -0.5 * apart @ (squares * (shares @ each))
        return float(apart @ apart) / scale, 2.0 / scale * np.concatenate([by_place.ravel(), each @ apart, [by_width]])

    start = np.concatenate([places.ravel(), np.full(num, 1.0 / num), [width]])
    bounds = [(None, None)] * size + [(0.0, None)] * (num + 1)
    options = {"maxiter": 2 * _TURNS, "ftol": 1e-9, "gtol": 1e-7}
    found = minimize(distance, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return float(found.fun), found.x[:size].reshape(num, columns), found.x[size:-1]


def _apart(rows: Floats, num: int, draws: Stream) -> Floats:
    """Rows that lie apart, (K, d): each is drawn by its squared distance to those before it (k-means++)."""
    chosen = [int(draws.integers(len(rows), 1)[0])]
    left = np.full(len(rows), math.inf)
    for _ in range(num - 1):
        left = np.minimum(left, np.square(rows - rows[chosen[-1]]).sum(axis=1))
        along = np.cumsum(left)
        chosen.append(min(int(np.searchsorted(along, draws.uniform(1)[0] * along[-1], side="right")), len(rows) - 1))
    return rows[chosen]


def _settled(rows: Floats, places: Floats) -> Floats:
    """Centres after turns of k-means, (K, d); one that is nearest to no row stays where it is."""
    label = np.full(len(rows), -1)
    for _ in range(_TURNS):
        before, label = label, _nearest(rows, places)
        if np.array_equal(before, label):
            break
        places = np.array([rows[label == j].mean(axis=0) if (label == j).any() else at for j, at in enumerate(places)])
    return places


def _squares(rows: Floats, places: Floats) -> Floats:
    """Squared distances, (n, K)."""
    found: Floats = np.stack([np.square(rows - place).sum(axis=1) for place in places], axis=1)
    return found


def _nearest(rows: Floats, places: Floats) -> Integers:
    found: Integers = _squares(rows, places).argmin(axis=1)
    return found


def _ordered(places: Floats, shares: Floats) -> Centres:
    order = np.argsort(-shares, kind="stable")
    return Centres(places[order], shares[order])
