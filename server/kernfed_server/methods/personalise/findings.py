"""Findings of a personalised job, for people: weights between clients, distances, and each client's gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kernfed.arrays import Floats
from kernfed.federation.events import RoundMetrics
from kernfed.methods.finding import told
from kernfed.methods.personalise.finding import Learner, PersonaliseFinding, Teacher
from kernfed_server.methods.personalise.state import Collaboration

MAX_MATRIX = 200
"""Clients up to which whole matrices are published; above, each client's largest weights alone."""
MAX_TEACHERS = 10


def finding_of(
    found: Collaboration, distances: Floats, metrics: RoundMetrics, *, weights: str, trainer: str, words: Sequence[str]
) -> PersonaliseFinding:
    """The finding of a job.

    Args:
        found: The weights.
        distances: Unbiased estimates of the distance between embeddings, 0 where noise explains them, shape (B, B).
        metrics: Of the last round, from which gains follow.
        weights: How they were found.
        trainer: How models were trained.
        words: What people should know.
    """
    clients = []
    for i, client in enumerate(found.clients):
        row = found.weights[i]
        order = [int(k) for k in np.argsort(-row, kind="stable")[:MAX_TEACHERS] if row[k] > 0]
        clients.append(
            Learner(
                client=client,
                num_rows=int(found.num_rows[i]),
                told=bool(row.any()),
                choice=found.choices[i],
                learns_from=tuple(Teacher(found.clients[k], round(float(row[k]), 4)) for k in order),
                effective_rows=round(_effective_rows(row, found.num_rows), 1),
                scores=told(metrics.clients.get(client, {})),
            )
        )
    finding = PersonaliseFinding(weights, trainer, tuple(words), tuple(clients))
    if len(found.clients) > MAX_MATRIX:
        return finding
    return replace(finding, matrix=_rounded(found.weights), distances=_rounded(distances))


def mean_weights(found: Collaboration) -> tuple[dict[str, float], str, dict[str, int]]:
    """What each client counts over all personal models, in words what that is, and its rows; see `Run.weighs`."""
    told = found.weights[[found.clients.index(c) for c in found.told]]
    means = told.mean(axis=0) if len(told) else np.zeros(len(found.clients))
    rows = {client: int(n) for client, n in zip(found.clients, found.num_rows, strict=True)}
    return dict(zip(found.clients, means.tolist(), strict=True)), "the mean of the weights in personal models", rows


def _rounded(matrix: Floats) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in np.round(matrix, 4).tolist())


def _effective_rows(weights: Floats, num_rows: Floats) -> float:
    """Rows that a mixture is worth: 1/Σ w_k²/n_k."""
    spread = float((np.square(weights) / num_rows).sum())
    return 1.0 / spread if spread > 0 else 0.0
