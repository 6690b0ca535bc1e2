"""Which clients take part in a round, drawn by the job's seed: the same in every run, and after a restart.

Source of draws of unequal probability: Madow (1949), systematic sampling after a permutation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from kernfed.arrays import Floats
from kernfed.rng import stream

_NO_WEIGHTS: Mapping[str, float] = {}


def sample_clients(
    clients: Sequence[str], fraction: float, seed: int, round_num: int, weights: Mapping[str, float] = _NO_WEIGHTS
) -> tuple[str, ...]:
    """Draw clients of a round without replacement.

    Args:
        clients: Names to draw from; their order does not matter.
        fraction: Share of them that takes part, above 0; at least one does.
        seed: The job's seed.
        round_num: The round.
        weights: Client to how often it is drawn, relative to the others, above 0; of a client that is not named 1.
            Empty: all are drawn alike.

    Returns:
        Names, sorted: as many in every round.
    """
    names = sorted(clients)
    count = num_drawn(len(names), fraction)
    draw = stream(seed, "sample", str(round_num))
    order = draw.permutation(len(names))
    if not weights:
        return tuple(sorted(names[int(i)] for i in order[:count]))
    ends = np.cumsum(inclusion_probabilities([weights.get(name, 1.0) for name in names], count)[order])
    ends[-1] = count  # rounding must not lose a client
    passed = np.floor(ends + draw.uniform())
    chosen = order[np.diff(passed, prepend=0.0) > 0]
    return tuple(sorted(names[int(i)] for i in chosen))


def num_drawn(num_clients: int, fraction: float) -> int:
    """How many clients of so many a draw of a share of them has, at least 1."""
    return min(num_clients, max(1, math.ceil(fraction * num_clients - 1e-9)))


def inclusion_probabilities(weights: Sequence[float], count: int) -> Floats:
    """Probabilities with which clients are in a draw of so many, relative to their weights, and at most 1; (B,).

    A client whose probability would be larger is in every draw.
    """
    w = np.array(weights, dtype=np.float64)
    found = np.zeros(len(w))
    while True:
        left = found < 1.0
        found[left] = (count - int((~left).sum())) * w[left] / w[left].sum()
        if not (found > 1.0).any():
            return found
        found[found > 1.0] = 1.0
