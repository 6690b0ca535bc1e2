"""Clusters of clients that one ridge model each predicts well, from everyone's normal equations alone.

Clients of a few rows say little about their own model, and little about each other by distances; together they say
much about the few models that may lie behind all of them. Starting from random labels, each cluster's ridge model and
each client's best cluster are found in turn; of some starts the one with the least total loss after a few turns goes on
until its labels stay. Labels are drawn in an order of clients by what they sent, so the order in which they come does
not matter.

B clients, p inputs, C outputs, K clusters.

Source: the alternation of Ghosh, Chung, Yin & Ramchandran, "An efficient framework for clustered federated learning"
(IFCA), here on sums that are at hand, with exact minimisers in place of gradient steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernfed import rng
from kernfed.arrays import Floats
from kernfed.maths.triangles import pack_form, unpack

Labels = npt.NDArray[np.intp]

NUM_STARTS = 5
FIRST_TURNS, MAX_TURNS = 4, 30
"""Of every start, and of the best one after these."""
RIDGE = 1e-2
"""Over the mean diagonal of a cluster's second moments."""

_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class Clusters:
    """A model per cluster, and its members."""

    labels: Labels
    """Cluster of each client, shape (B,)."""
    models: Floats
    """Shape (K, p, C)."""


def forms_of(models: Floats) -> Floats:
    """Compute the quadratic forms W W' of models, shape (K, p, C), as `pack_form` weighs them: (K, p (p + 1)/2)."""
    return np.array([pack_form(model @ model.T) for model in models])


def client_losses(
    grams: Floats, moments: Floats, squares: Floats, models: Floats, forms: Floats | None = None
) -> Floats:
    """Compute the mean squared error of models on each client's rows from its sums, shape (K, B), at least 0.

    Args:
        grams: X'X/n as upper triangles, shape (B, p (p + 1)/2).
        moments: X'Y/n, shape (B, p, C).
        squares: Mean of |y|², shape (B,).
        models: Shape (K, p, C).
        forms: Of the models, as `forms_of` gives them; computed where not given.
    """
    forms = forms_of(models) if forms is None else forms
    products = models.reshape(len(models), -1) @ moments.reshape(len(moments), -1).T
    losses: Floats = np.maximum(forms @ grams.T - 2.0 * products + squares, 0.0)
    return losses


def cluster(
    num_rows: Floats,
    grams: Floats,
    moments: Floats,
    squares: Floats,
    penalised: Floats,
    num_clusters: int,
    ridge: float = RIDGE,
) -> Clusters:
    """Cluster clients by the ridge models that predict them.

    Args:
        num_rows: Shape (B,).
        grams: X'X/n as upper triangles, shape (B, p (p + 1)/2).
        moments: X'Y/n, shape (B, p, C).
        squares: Mean of |y|², shape (B,).
        penalised: 1 per input that the ridge counts, 0 for an intercept; shape (p,).
        num_clusters: K, at least 1; clusters may end up empty, and hold the model of all then.
        ridge: Over the mean diagonal of a cluster's second moments.
    """
    order = np.lexsort((grams[:, 0], np.square(moments).sum(axis=(1, 2)), squares))
    sums = (num_rows, grams, moments, squares, penalised, ridge)
    best: tuple[float, Clusters] | None = None
    for start in range(NUM_STARTS):
        drawn = rng.stream(start, "personalise", "clusters", str(num_clusters)).uniform(len(order), 1)[:, 0]
        labels = np.empty(len(order), dtype=np.intp)
        labels[order] = np.minimum((drawn * num_clusters).astype(np.intp), num_clusters - 1)
        loss, found = _alternate(*sums, num_clusters, labels, FIRST_TURNS)
        if best is None or loss < best[0] * (1.0 - 1e-9):
            best = loss, found
    assert best is not None  # noqa: S101  # there are starts
    return _alternate(*sums, num_clusters, best[1].labels, MAX_TURNS)[1]


def cluster_models(
    num_rows: Floats,
    grams: Floats,
    moments: Floats,
    penalised: Floats,
    num_clusters: int,
    labels: Labels,
    ridge: float = RIDGE,
) -> Floats:
    """Solve the ridge model of each cluster, shape (K, p, C); an empty cluster has that of all clients.

    Args:
        num_rows: Shape (B,); a client of 0 rows has no say.
        grams: As in `cluster`, like the next two.
        moments: X'Y/n.
        penalised: 1 per input that the ridge counts.
        num_clusters: K.
        labels: Cluster of each client, shape (B,).
        ridge: Over the mean diagonal of a cluster's second moments.
    """
    share = np.where(labels == np.arange(num_clusters)[:, None], num_rows, 0.0)
    share[share.sum(axis=1) == 0] = num_rows
    share /= share.sum(axis=1, keepdims=True)
    right = (share @ moments.reshape(len(moments), -1)).reshape(num_clusters, *moments.shape[1:])
    return _models(share @ grams, right, penalised, ridge)


class ClusterSums:
    """Sums over the rows of each cluster's clients, from which those without one client follow with little work.

    They are sums over the other clients, never a difference: rounding of a client whose numbers are large stays away.
    """

    def __init__(self, num_rows: Floats, grams: Floats, moments: Floats, labels: Labels, num_clusters: int) -> None:
        """Add up; arguments as of `cluster_models`, which are kept and not copied."""
        self._labels, self._num_rows, self._shape = labels, num_rows, moments.shape[1:]
        self._grams, self._moments = grams, moments.reshape(len(moments), -1)
        self._blocks: list[list[Labels]] = []
        """Of each cluster, its clients by blocks of about the root of their number."""
        self._parts: list[list[_Sum]] = []
        for c in range(num_clusters):
            members = np.flatnonzero(labels == c)
            blocks = np.array_split(members, max(1, math.isqrt(len(members))))
            self._blocks.append(blocks)
            self._parts.append([self._sum(block) for block in blocks])
        self._whole = [_total(parts) for parts in self._parts]

    def models_without(self, client: int, penalised: Floats, ridge: float) -> Floats:
        """Solve the ridge model of each cluster without one client, as `cluster_models` does; shape (K, p, C)."""
        own, sums = int(self._labels[client]), list(self._whole)
        kept = [
            self._sum(block[block != client]) if client in block else part
            for block, part in zip(self._blocks[own], self._parts[own], strict=True)
        ]
        sums[own] = _total(kept)
        if not all(rows for rows, _, _ in sums):
            everyone = _total(sums)
            sums = [found if found[0] else everyone for found in sums]
        left = np.array([gram / rows for rows, gram, _ in sums])
        right = np.array([moment / rows for rows, _, moment in sums]).reshape(len(sums), *self._shape)
        return _models(left, right, penalised, ridge)

    def _sum(self, clients: Labels) -> _Sum:
        n = self._num_rows[clients]
        return float(n.sum()), n @ self._grams[clients], n @ self._moments[clients]


_Sum = tuple[float, Floats, Floats]
"""Rows, and the sums over them of X'X as a triangle and of X'Y, flat."""


def _total(parts: Sequence[_Sum]) -> _Sum:
    rows, grams, moments = zip(*parts, strict=True)
    return sum(rows), np.sum(grams, axis=0), np.sum(moments, axis=0)


def _models(grams: Floats, right: Floats, penalised: Floats, ridge: float) -> Floats:
    """Ridge models of mean second moments, as triangles (K, p (p + 1)/2), and of mean moments, (K, p, C)."""
    size = len(penalised)
    left = unpack(grams, size)
    mean = np.einsum("cpp,p->c", left, penalised) / max(1.0, float(penalised.sum()))
    left[:, np.arange(size), np.arange(size)] += ridge * np.maximum(mean, _TINY)[:, None] * penalised
    return np.asarray(np.linalg.solve(left, right), dtype=np.float64)


def _alternate(
    num_rows: Floats,
    grams: Floats,
    moments: Floats,
    squares: Floats,
    penalised: Floats,
    ridge: float,
    num_clusters: int,
    labels: Labels,
    num_turns: int,
) -> tuple[float, Clusters]:
    """Models of labels, labels of models, in turn; the total loss and what was found."""
    total = 0.0
    models = np.zeros((num_clusters, *moments.shape[1:]))
    for _ in range(num_turns):
        models = cluster_models(num_rows, grams, moments, penalised, num_clusters, labels, ridge)
        losses = client_losses(grams, moments, squares, models)
        new = losses.argmin(axis=0)
        total = float(losses.min(axis=0) @ num_rows)
        if (new == labels).all():
            break
        labels = new
    return total, Clusters(labels, models)
