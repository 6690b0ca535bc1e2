"""Parts of a client's rows that are kept apart in turn, for models without errors of left-out rows in closed form."""

from __future__ import annotations

from kernfed import rng
from kernfed.arrays import Flags, Integers
from kernfed.maths.folds import deal

_NUM_PARTS = 5


def parts(unit: Integers, seed: int) -> list[Flags]:
    """Deal rows into parts of about the same size; rows of one unit lie in one part.

    Args:
        unit: Which rows belong together, (N,), N at least 1; see `kernfed.maths.folds.units`.
        seed: Of the draw.

    Returns:
        At most five parts, each (N,): which rows belong to it. None is empty; a single one has all rows.
    """
    num_parts = min(_NUM_PARTS, int(unit.max()) + 1)
    dealt = deal(rng.stream(seed, "kept apart").permutation(len(unit)), unit, num_parts)
    return [dealt == part for part in range(num_parts)]
