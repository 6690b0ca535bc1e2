"""Sums of columns that are 0 in most rows, and not in the others: of some rows, those others may be few.

One column that equals another one but in every twelfth row tells of a batch of ten rows, by the difference of two sums,
the one row in which they differ. Such sums are looked for among all rows as in `kernfed.maths.few.rows`.
"""

from __future__ import annotations

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.maths.few.rows import differs, scaled_columns, sparse_sums

_MOST = 200
"""Sums that are kept, those of which the fewest rows are not 0."""
_TINY = 1e-12


def rows_of_sums(x: Floats, least: int) -> tuple[Array, Array]:
    """In which rows sums of at least two columns, and a constant, are not 0.

    The search is bounded. Sums that are 0 in hardly more rows than there are columns are no sign of anything.

    Args:
        x: (n, P).
        least: Fewest rows that may stand out.

    Returns:
        For each of Q sums, the rows, bool (n, Q), and its columns, bool (Q, P).
    """
    num_rows, num_columns = x.shape
    none = np.zeros((num_rows, 0), dtype=np.bool_), np.zeros((0, num_columns), dtype=np.bool_)
    if num_rows < least:
        return none
    columns, a, _ = scaled_columns(x)
    most = min(num_rows // 2, num_rows - 2 * a.shape[1] - least)
    if most < least:
        return none
    size = np.abs(a)
    found: dict[bytes, tuple[int, Array, Array]] = {}
    for sums in sparse_sums(a, size, most + 1):
        apart = differs(a, size, sums)
        for rows, coefficients in zip(apart.T, sums.T, strict=True):
            used = np.abs(coefficients[1:]) > _TINY
            if used.sum() > 1 and 0 < (num := int(rows.sum())) <= most:
                found.setdefault(np.packbits(rows).tobytes(), (num, rows, used))
    if not found:
        return none
    kept = sorted(found.values(), key=lambda one: one[0])[:_MOST]
    of_columns = np.zeros((len(kept), num_columns), dtype=np.bool_)
    of_columns[:, columns] = [used for _, _, used in kept]
    return np.stack([rows for _, rows, _ in kept], axis=1), of_columns
