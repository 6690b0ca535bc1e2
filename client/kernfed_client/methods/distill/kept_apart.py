"""Parts of a client's rows that are kept apart in turn, for models without errors of left-out rows in closed form."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernfed import rng
from kernfed.arrays import Floats

Bools = npt.NDArray[np.bool_]

_NUM_PARTS = 5


def parts(x: Floats, seed: int) -> list[Bools]:
    """Deal rows into parts of about the same size; copies of a row lie in one part.

    Args:
        x: Rows, (N, d), N at least 1.
        seed: Of the draw.

    Returns:
        At most five parts, each (N,): which rows belong to it. None is empty; a single one has all rows.
    """
    _, of_row = np.unique(x, axis=0, return_inverse=True)
    of_row = of_row.reshape(-1)
    num_different = int(of_row.max()) + 1
    num_parts = min(_NUM_PARTS, num_different)
    dealt = np.empty(num_different, dtype=np.int64)
    dealt[rng.stream(seed, "kept apart").permutation(num_different)] = np.arange(num_different) % num_parts
    return [dealt[of_row] == part for part in range(num_parts)]
