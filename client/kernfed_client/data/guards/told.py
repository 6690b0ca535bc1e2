"""Numbers about rows as others may know them: none stands for fewer rows than the policy says."""

from __future__ import annotations

import numpy as np

from kernfed.arrays import Array, Floats, Integers


def told(count: int, least: int) -> int:
    """A number of rows; 0 where it is below `least`, which this client's own log and `check-data` show."""
    return count if count >= least else 0


def told_counts(counts: Array, least: int) -> Integers:
    """Numbers of rows of which each is 0 or at least `least`: smaller ones are counted with the greatest."""
    found = np.array(counts, dtype=np.int64)
    small = (found > 0) & (found < least)
    small[int(found.argmax())] = False
    found[int(found.argmax())] += found[small].sum()
    found[small] = 0
    return found


def greatest(values: Array, least: int) -> float:
    """The mean of the `least` greatest values, for the greatest one is that of a single row."""
    return float(np.sort(_flat(values))[-least:].mean())


def smallest(values: Array, least: int) -> float:
    """The mean of the `least` smallest values."""
    return float(np.sort(_flat(values))[:least].mean())


def _flat(values: Array) -> Floats:
    return np.asarray(values, dtype=np.float64).ravel()
