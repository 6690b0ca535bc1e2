"""What follows from groups of neighbours in the order of a column: quantiles and histograms; and rows by value.

`kernfed.maths.few.neighbours` makes the groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Flags, Floats, Integers


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of a column's rows, of one client or of several."""

    means: Floats
    """(G,), ascending."""
    sizes: Integers
    """(G,), rows of each."""
    alike: Flags
    """(G,), whether all rows of a group have its mean for their value."""

    @classmethod
    def of_neighbours(cls, means: Floats, sizes: Integers) -> Groups:
        """Those that `group_means` makes."""
        return cls(means, sizes, sizes == 1)

    @classmethod
    def of_values(cls, values: Sequence[float], counts: Sequence[int]) -> Groups:
        """Rows counted by value."""
        return cls(np.array(values, dtype=np.float64), np.array(counts, dtype=np.int64), np.ones(len(counts), np.bool_))

    @classmethod
    def joined(cls, parts: Sequence[Groups]) -> Groups:
        """Those of several clients."""
        means = np.concatenate([part.means for part in parts])
        order = np.argsort(means, kind="stable")
        sizes, alike = np.concatenate([p.sizes for p in parts]), np.concatenate([p.alike for p in parts])
        return cls(means[order], sizes[order], alike[order])

    def quantiles(self, levels: Sequence[float]) -> Floats:
        """Values below which shares of the rows lie, one for each level.

        A group of neighbours stands for its middle row, and between such rows values are interpolated. With groups of
        one row, or of rows that are alike, that is numpy's rule `linear`.
        """
        end = np.cumsum(self.sizes) - 1.0
        begin = end - self.sizes + 1.0
        middle = (begin + end) / 2.0
        places = np.column_stack([np.where(self.alike, begin, middle), np.where(self.alike, end, middle)])
        wanted = np.asarray(levels, dtype=np.float64) * end[-1]
        found: Floats = np.interp(wanted, places.ravel(), np.repeat(self.means, 2))
        return found

    def histogram(self, edges: Floats) -> Integers:
        """Rows in each of B cells, (B,), by whole groups: each is counted in the cell in which its mean lies.

        Args:
            edges: (B + 1,), ascending; the outer cells are open, and an edge belongs to the cell above it.
        """
        cells = np.searchsorted(edges[1:-1], self.means, side="right")
        found = np.zeros(len(edges) - 1, dtype=np.int64)
        np.add.at(found, cells, self.sizes)
        return found


def value_counts(values: Floats, most: int, least: int) -> tuple[tuple[float, ...], tuple[int, ...], int] | None:
    """Count rows by value, (n,): values of at least `least` rows, ascending; their rows; and the rows of all others.

    The others are 0 or at least `least`: where they are fewer, they count with the commonest value. None where more
    than `most` values are different, or none has enough rows.
    """
    found, counts = np.unique(values, return_counts=True)
    if not 0 < len(found) <= most:
        return None
    enough = counts >= least
    if not enough.any():
        return None
    others = int(counts[~enough].sum())
    kept = counts[enough].astype(np.int64)
    if 0 < others < least:
        kept[int(kept.argmax())] += others
        others = 0
    return tuple(found[enough].tolist()), tuple(kept.tolist()), others
