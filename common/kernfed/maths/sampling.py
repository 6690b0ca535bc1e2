"""Which clients take part in a round, drawn by the job's seed: the same in every run, and after a restart."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernfed.rng import stream


def sample_clients(clients: Sequence[str], fraction: float, seed: int, round_num: int) -> tuple[str, ...]:
    """Draw clients of a round without replacement.

    Args:
        clients: Names to draw from; their order does not matter.
        fraction: Share of them that takes part, above 0; at least one does.
        seed: The job's seed.
        round_num: The round.

    Returns:
        Names, sorted.
    """
    names = sorted(clients)
    count = min(len(names), max(1, math.ceil(fraction * len(names) - 1e-9)))
    chosen = stream(seed, "sample", str(round_num)).permutation(len(names))[:count]
    return tuple(sorted(names[int(i)] for i in chosen))
