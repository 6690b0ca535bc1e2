"""How many rows have to stand behind a number that is a sum over rows.

How many do is the effective number of its terms t_i, (sum |t_i|)^2 / sum t_i^2: n where all are of a size, 1 where one
outweighs all others.
"""

from __future__ import annotations

import numpy as np

from kernfed.arrays import Floats

_PART, _PART_OF_PAIRS = 6, 16
"""Of few rows, one in so many must stand behind a number: no batch has all of its rows behind each. Behind the weight
between two hidden units stand the rows that set off both."""
_FEWEST = 2
"""Never fewer."""
_ROUNDING = 0.5


def wanted(least: int, num: int) -> tuple[float, float]:
    """Rows that must stand behind a number, and behind a weight between two hidden units, where `num` rows add up."""
    rows, of_pairs = (max(_FEWEST, min(least, num // part)) - _ROUNDING for part in (_PART, _PART_OF_PAIRS))
    return rows, of_pairs


def few_behind(sizes: Floats, least: int) -> bool:
    """Whether fewer rows than wanted stand behind a sum of terms of these sizes, (n,), none below 0.

    Args:
        sizes: Of the terms; where all are 0, the sum tells of no row.
        least: Number of rows; 1: any number will do.
    """
    largest = float(sizes.max(initial=0.0))
    if least == 1 or not largest:
        return False
    part = sizes / largest
    return float(np.square(part.sum())) < float(np.square(part).sum()) * wanted(least, len(part))[0]
