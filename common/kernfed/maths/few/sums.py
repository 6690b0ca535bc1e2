"""Sums of columns that are 0 in most rows, and not in the others: of some rows, those others may be few.

One column that equals another one but in every twelfth row tells of a batch of ten rows, by the difference of two sums,
the one row in which they differ. Such sums are looked for among all rows as in `kernfed.maths.few.rows`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Array, Floats, Integers
from kernfed.maths.few.rows import differs, scaled_columns, sparse_sums, with_constant

_MOST = 200
"""Sums that are kept, those of which the fewest rows are not 0."""
_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class SparseSums:
    """Q sums of a constant and of columns, which are 0 in most rows of those that they were found among."""

    num_columns: int
    """Columns P of the rows."""
    columns: Integers
    """Places of those that vary, (P',)."""
    scale: Floats
    """By what these are divided, (P',)."""
    centre: Floats
    """What is subtracted before, (P',)."""
    coefficients: Floats
    """That of the constant first, (1 + P', Q)."""

    @property
    def num(self) -> int:
        """Sums Q."""
        return int(self.coefficients.shape[1])

    @property
    def used(self) -> Array:
        """Which columns each sum has, bool (Q, P)."""
        found = np.zeros((self.num, self.num_columns), dtype=np.bool_)
        found[:, self.columns] = _used(self.coefficients).T
        return found

    def apart(self, x: Floats) -> Array:
        """In which rows each sum is not 0, bool (n, Q), of x (n, P)."""
        a = with_constant((x[:, self.columns] - self.centre) / self.scale)
        return differs(a, np.abs(a), self.coefficients)


def sums_of(x: Floats, least: int) -> SparseSums:
    """Find sums of at least two columns, and a constant, that are 0 in most rows.

    The search is bounded. Sums that are 0 in hardly more rows than there are columns are no sign of anything.

    Args:
        x: (n, P).
        least: Fewest rows that may stand out.
    """
    num_rows, num_columns = x.shape
    empty = np.empty(0)
    none = SparseSums(num_columns, np.empty(0, dtype=np.int64), empty, empty, np.empty((1, 0)))
    if num_rows < least:
        return none
    columns, a, scale, centre = scaled_columns(x)
    most = min(num_rows // 2, num_rows - 2 * a.shape[1] - least)
    if most < least:
        return none
    size = np.abs(a)
    found: dict[bytes, tuple[int, Floats]] = {}
    for sums in sparse_sums(a, size, most + 1):
        apart = differs(a, size, sums)
        for rows, coefficients in zip(apart.T, sums.T, strict=True):
            if _used(coefficients).sum() > 1 and 0 < (num := int(rows.sum())) <= most:
                found.setdefault(np.packbits(rows).tobytes(), (num, coefficients))
    if not found:
        return none
    kept = sorted(found.values(), key=lambda one: one[0])[:_MOST]
    return SparseSums(num_columns, columns, scale, centre, np.stack([coefficients for _, coefficients in kept], axis=1))


def rows_of_sums(x: Floats, least: int) -> tuple[Array, Array]:
    """In which rows sums of columns, as of `sums_of`, are not 0, bool (n, Q), and which columns each has, (Q, P)."""
    found = sums_of(x, least)
    return found.apart(x), found.used


def _used(coefficients: Floats) -> Array:
    used: Array = np.abs(coefficients[1:]) > _TINY
    return used
