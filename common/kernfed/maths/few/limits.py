"""Limits that leave out, or move, none of some rows or a multiple of a number of them."""

from __future__ import annotations

import numpy as np

from kernfed.arrays import Array


def whole_limit(values: Array, low: float, least: int) -> float:
    """The limit below which lie a multiple of `least` of the values (n,), and all that lie below `low`."""
    num = int((values < low).sum())
    if num % least == 0:
        return low
    known = np.sort(values[~np.isnan(values)])
    place = min(num + least - num % least, len(known)) - 1
    return max(low, float(np.nextafter(known[place], np.inf)))
