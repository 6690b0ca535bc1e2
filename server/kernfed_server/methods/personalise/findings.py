"""Findings of a personalised job, for people: weights between clients, distances, and each client's gain."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from kernfed.arrays import Floats
from kernfed.federation.events import RoundMetrics
from kernfed.methods.finding import told
from kernfed.methods.personalise.embedding_messages import ClientEmbedding
from kernfed.methods.personalise.finding import Gain, Learner, PersonaliseFinding, Teacher
from kernfed.methods.personalise.gains import gain_of, probabilities_alike
from kernfed_server.methods.personalise.state import Collaboration

MAX_MATRIX = 200
"""Clients up to which whole matrices are published; above, each client's largest weights alone."""
MAX_TEACHERS = 10


@dataclass(frozen=True)
class Promises:
    """What embeddings say before any model is scored."""

    gains: tuple[Gain | None, ...]
    """Of each client; None of one that has not told its weights."""
    alike: Floats
    """p-values of the hypotheses that two clients have one law, (B, B); NaN: not known; (0, 0) of many clients."""


def promises(parts: Sequence[ClientEmbedding], weights: Floats, distances: Floats) -> Promises:
    """What embeddings say of each client and of each pair.

    Args:
        parts: Of all clients, in order.
        weights: Row t: the weights of client t; zeros where they are not known. Shape (B, B).
        distances: As in `finding_of`.
    """
    means, num_rows = np.array([p.mean for p in parts]), np.array([p.rows_embedded for p in parts], dtype=np.float64)
    traces, squares = np.array([p.trace for p in parts]), np.array([p.square for p in parts])
    gains = [
        gain_of(t, row, means, traces, num_rows, parts[t].largest, distances) if row.any() else None
        for t, row in enumerate(weights)
    ]
    few = len(parts) <= MAX_MATRIX
    return Promises(tuple(gains), probabilities_alike(means, traces, squares, num_rows) if few else np.zeros((0, 0)))


def finding_of(
    found: Collaboration,
    distances: Floats,
    metrics: RoundMetrics,
    *,
    weights: str,
    trainer: str,
    words: Sequence[str],
    promises: Promises,
    learners: Container[str],
    rounds: Mapping[str, int],
) -> PersonaliseFinding:
    """The finding of a job.

    Args:
        found: The weights.
        distances: Unbiased estimates of the distance between embeddings, 0 where noise explains them, shape (B, B).
        metrics: Of the last round, from which gains follow.
        weights: How they were found.
        trainer: How models were trained.
        words: What people should know.
        promises: What embeddings say.
        learners: The clients that get a model in this job.
        rounds: From which a client's network is, where rows that are kept apart chose it.
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
                learns=client in learners,
                choice=found.choices[i],
                learns_from=tuple(Teacher(found.clients[k], round(float(row[k]), 4)) for k in order),
                effective_rows=round(_effective_rows(row, found.num_rows), 1),
                scores=told(metrics.clients.get(client, {})),
                gain=_short(promises.gains[i]),
                round_num=rounds.get(client),
            )
        )
    finding = PersonaliseFinding(weights, trainer, tuple(words), tuple(clients))
    if len(found.clients) > MAX_MATRIX:
        return finding
    alike = tuple(tuple(None if np.isnan(p) else float(f"{p:.3g}") for p in row) for row in promises.alike)
    return replace(finding, matrix=_rounded(found.weights), distances=_rounded(distances), alike=alike)


def _short(gain: Gain | None) -> Gain | None:
    """The same with four digits."""
    if gain is None:
        return None
    short: dict[str, Any] = {name: float(f"{n:.4g}") for name, n in asdict(gain).items() if isinstance(n, float)}
    return replace(gain, **short)


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
