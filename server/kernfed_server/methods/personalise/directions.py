"""Fewer inputs for many features: the directions in which all clients' features vary, and clusters found once.

Normal equations of Q inputs are Q²/2 numbers, and a ridge model costs Q³. Ridge models of all clients' features lie
mostly in a few directions, those of the largest eigenvalues of the pooled second moments. So clients send a factor of
few rows, the coordinator finds the directions, and all that is handed on and solved is in these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from kernfed.arrays import Floats
from kernfed.methods.personalise.clusters import RIDGE, cluster
from kernfed.methods.personalise.messages import Clustering, Factor, Statistics

FEATURES_KEPT = 64
"""Features up to which all are used."""

REST = 1e-3
"""Directions are enough where the others hold this share of the features' second moments."""

CLUSTERED_ONCE_FROM = 150
"""Clients from which the coordinator clusters them for everyone: a single one hardly moves the clusters then."""


@dataclass(frozen=True, slots=True)
class Pooled:
    """Normal equations of all clients' rows; the constant, if there is one, is the first of Q inputs."""

    gram: Floats
    """Shape (Q, Q)."""
    moment: Floats
    """Shape (Q, C)."""


def pool_factors(replies: Mapping[str, Factor]) -> Pooled:
    """Weigh the clients' second moments by rows, in the order of their names."""
    total = float(sum(r.num_rows for r in replies.values()))
    first = next(iter(replies.values()))
    gram, moment = np.zeros((first.factor.shape[1],) * 2), np.zeros(first.moment.shape)
    for _, reply in sorted(replies.items()):
        share = reply.num_rows / total
        rows = reply.factor.astype(np.float64)
        gram += share * (rows.T @ rows)
        moment += share * reply.moment
    return Pooled(gram, moment)


def leading_directions(gram: Floats, limit: int | None) -> tuple[Floats, float]:
    """Find the directions of the largest second moments.

    Args:
        gram: Pooled second moments of the features, shape (P, P).
        limit: How many; None: as many as leave `REST`, at most `FEATURES_KEPT`.

    Returns:
        Orthonormal columns, (P, R), the largest first; and the share of the second moments that they hold.
    """
    values, vectors = eigh(gram)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    held = np.cumsum(values) / max(float(values.sum()), 1e-300)
    count = limit or min(int(np.searchsorted(held, 1.0 - REST)) + 1, FEATURES_KEPT)
    count = min(count, len(gram))
    # The sign of an eigenvector is free; this one does not depend on the library.
    found = vectors[:, :count]
    largest = found[np.abs(found).argmax(axis=0), np.arange(count)]
    return np.ascontiguousarray(found * np.where(largest < 0, -1.0, 1.0)), float(held[count - 1])


def cluster_once(
    statistics: Sequence[Statistics], numbers: Sequence[int], num_constants: int, ridge_scale: float
) -> tuple[Clustering, ...]:
    """Cluster many clients for all of them; empty where each can do so itself.

    Args:
        statistics: Of all clients, in the order in which they are handed on.
        numbers: Numbers of clusters.
        num_constants: Inputs that the ridge leaves alone, the first ones.
        ridge_scale: As in `kernfed.methods.personalise.crossfit.Target`.
    """
    if len(statistics) < CLUSTERED_ONCE_FROM:
        return ()
    sums = (
        np.array([s.num_rows for s in statistics], dtype=np.float64),
        np.array([s.gram for s in statistics], dtype=np.float64),
        np.array([s.moment for s in statistics], dtype=np.float64),
        np.array([s.square for s in statistics], dtype=np.float64),
    )
    penalised = np.ones(sums[2].shape[1])
    penalised[:num_constants] = 0.0
    return tuple(
        Clustering(num_clusters=k, labels=cluster(*sums, penalised, k, RIDGE * ridge_scale).labels.astype(np.int64))
        for k in numbers
    )
