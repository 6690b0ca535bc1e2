"""Rows of two classes, and findings on scores, for tests of what scores are worth."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernfed.methods.scores import ClientScores, GainOf, ScoreOf
from kernfed_simulation.federation import Rows


def disease_rows(sizes: Mapping[str, int], positive_share: float = 0.4, *, num_test: int = 50) -> dict[str, Rows]:
    """Clients with rows of two classes that three columns tell apart in part; test rows beside."""
    random = np.random.default_rng(8)
    rows = {}
    for name, size in sizes.items():
        y = (random.uniform(size=size + num_test) < positive_share).astype(int)
        x = random.normal(size=(size + num_test, 3)) + 0.9 * y[:, None]
        rows[name] = Rows(x[:size], y[:size], x[size:], y[size:])
    return rows


def client_scores(client: str, own: float, job: float, *, error: float = 0.01, rows: int = 40) -> ClientScores:
    """Brier scores of a client's own model and of the job's."""
    values = {"global": job, "local": own}
    return ClientScores(
        client,
        rows,
        rows,
        positives=rows // 2,
        scores=tuple(ScoreOf(m, "brier", v, error, v - 2 * error, v + 2 * error, rows) for m, v in values.items()),
        gains=(
            GainOf("global", "local", "brier", own - job, error),
            GainOf("local", "global", "brier", job - own, error),
        ),
    )
