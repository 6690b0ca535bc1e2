"""Rows of one combination of values: sums over features of few such combinations tell the sum over each of them.

Features that are no linear functions of the columns can tell apart whatever rows differ: of G combinations that all
columns may have together, sums over G or more random features tell the sum over the rows of each combination, by
linear equations, whatever the lengthscale is. Where few of the G occur, fewer features do, since numbers of rows are
not negative: A. Bruckstein, M. Elad and M. Zibulevsky, *On the uniqueness of nonnegative sparse solutions to
underdetermined systems of equations*, IEEE Transactions on Information Theory 54 (2008) 4813-4820. Who asks must know
the G combinations, so columns of values that nobody lists are no part of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Array, Floats, Integers

MOST_COMBINATIONS = 4096
"""Of so many that the columns may have, 500 features of the usual lengthscale told each of 100 rows to 13 digits; more
are not looked for."""
_MOST_COLUMNS = MOST_COMBINATIONS.bit_length() - 1
"""More columns that vary have more combinations."""
_SMOOTH = 10
"""A column of values that nobody lists counts as at most so many: functions that hardly change with it are told too."""
_PER_LENGTH = 6
"""It counts as one and so many for each lengthscale that its values span."""
_STEPS = range(1, 11)
"""Values lie on a grid where they are whole multiples of one of these parts of their least distance."""
_NEAR = 1e-6
_SPANS_NOTHING = 0.1
_TELLS_NOTHING = 1e-6
"""Of a column that spans so small a part of a lengthscale, products with another one are lost in rounding."""


@dataclass(frozen=True, slots=True)
class Combinations:
    """The combinations of values that n rows have in columns of few values."""

    columns: Integers
    """Places of these columns."""
    number: Integers
    """That of each row's combination, from 0 on, (n,)."""

    def rare(self, least: int, rows: Integers | slice = slice(None)) -> Array:
        """Whether fewer than `least` of some rows have a row's combination, a truth for each of these."""
        number = self.number[rows]
        found: Array = np.bincount(number)[number] < least
        return found


def combinations_of(
    x: Floats, lengthscales: Floats | float | None = None, *, grids: bool = True
) -> Combinations | None:
    """Find columns whose values together are few enough to be listed; None: there are none, or there are too many.

    Args:
        x: (n, P).
        lengthscales: Of a feature map, one or P: it does not see columns that span a small part of it; None: of
            functions that change as fast as they like.
        grids: Whether whole numbers and decimals can be listed where hardly any comes twice.
    """
    lengths = _lengths(x, lengthscales)
    return _listed(x, lengths, np.flatnonzero(lengths > _SPANS_NOTHING), grids=grids)


def all_combinations_of(x: Floats, lengthscales: Floats | float | None = None) -> Iterator[Combinations]:
    """Find them among the columns that functions see best, and among more and more that they hardly see.

    Long lengthscales hide little: of 23 rows and 8 columns of two values, 500 features of a lengthscale of ten times
    these told the targets of rows that are alone to 2e-7, and of 3 columns, of fifty times, to 3e-12. But columns that
    are seen less must not make the combinations too many.

    Args:
        x: (n, P).
        lengthscales: As of `combinations_of`.
    """
    lengths = _lengths(x, lengthscales)
    lower = np.unique(lengths[(lengths > _TELLS_NOTHING) & (lengths <= _SPANS_NOTHING)])[::-1]
    for least in (np.nextafter(_SPANS_NOTHING, 1), *lower[:_MOST_COLUMNS]):
        found = _listed(x, lengths, np.flatnonzero(lengths >= least), grids=True)
        if found is not None:
            yield found


def _lengths(x: Floats, lengthscales: Floats | float | None) -> Floats:
    """How many lengthscales the values of each column span, (P,); 0: it is constant."""
    spans = np.ptp(x, axis=0) if len(x) else np.zeros(x.shape[1])
    lengths: Floats = np.where(spans > 0, np.inf, 0.0) if lengthscales is None else spans / lengthscales
    return lengths


def _listed(x: Floats, lengths: Floats, seen: Integers, *, grids: bool) -> Combinations | None:
    if not 0 < len(seen) <= _MOST_COLUMNS:
        return None
    nums = np.array([_num_values(x[:, j], grids) for j in seen])
    seen, nums = seen[np.argsort(nums, kind="stable")], np.sort(nums, kind="stable")
    smooth = np.minimum(nums, np.minimum(_SMOOTH, 1 + np.ceil(_PER_LENGTH * np.minimum(lengths[seen], _SMOOTH))))
    for num in range(len(seen), 0, -1):
        if nums[:num].prod() * smooth[num:].prod() <= MOST_COMBINATIONS:
            columns = np.sort(seen[:num])
            _, number = np.unique(x[:, columns], axis=0, return_inverse=True)
            return Combinations(columns, number.reshape(-1).astype(np.int64))
    return None


def _num_values(column: Floats, grids: bool) -> float:
    """How many values a column may have; infinite: nobody lists them."""
    values = np.unique(column)
    if 2 * len(values) <= len(column):
        return float(len(values))
    steps = (values - values[0]) / np.diff(values).min()
    for part in _STEPS if grids and steps[-1] < MOST_COMBINATIONS else ():
        if np.abs(steps * part - np.rint(steps * part)).max() < _NEAR:
            return float(np.rint(steps[-1] * part)) + 1.0
    return np.inf
