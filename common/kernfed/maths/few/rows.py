"""Columns in which a few rows stand out: sums over a column of zeros and two ones are sums over these two rows.

So are sums over what columns add up to: one less another one that equals it but for two rows, or one less all levels of
a category that two rows have none of. The span of the columns is searched for vectors that are 0 in all but a few rows,
as `kernfed_client.data.guards.row_spans` does for sets of rows, by information sets: E. Prange, *The use of information
sets in decoding cyclic codes*, IRE Transactions on Information Theory 8 (1962) 5-9. In those rows one column is then
taken to be what the others say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Array, Floats, Integers
from kernfed.rng import stream

_ZERO = 1e-9
"""A sum is 0 where it is below this part of the sum of its terms' sizes."""
_ORDERS = 4
"""Orders of the rows in which a vector of few rows is looked for."""
_MOST_ROUNDS = 50
_MOST_COLUMNS = 300
"""Columns whose sums are searched; where there are more, those whose commonest values are most common."""
_SAMPLE = 256
"""Fewest rows among which pivots are looked for."""
_LEAST_SHARE = 8
"""A value is one of a column's common ones where at least one row of so many has it."""


def levelled(x: Floats, least: int) -> Floats:
    """Make columns constant in which fewer than `least` rows differ from what at least half are, (n, P), in place."""
    for values, few in _levels(x, least):
        x[:, few] = values[few]
    return x


def columns_of_few(x: Floats, least: int) -> Array:
    """Columns in which fewer than `least` rows differ from what at least half are, bool (P,), of x (n, P)."""
    found = np.zeros(x.shape[1], dtype=np.bool_)
    for _, few in _levels(x, least):
        found |= few
    return found


def _levels(x: Floats, least: int) -> Iterator[tuple[Floats, Array]]:
    """Values that at least half of the rows may have, (P,), and in which columns few others differ from these, (P,)."""
    num = len(x)
    head = np.sort(x[: 2 * least - 1], axis=0)  # where so few differ, most of the first ones do not
    for place in {(len(head) - 1) // 2, len(head) // 2} if num else ():
        differ = (x != head[place]).sum(axis=0)
        yield head[place], (differ > 0) & (differ < least) & (2 * differ <= num)


def without_few(x: Floats, least: int) -> tuple[Floats, tuple[int, ...]]:
    """Change columns so that neither they nor their sums stand out in fewer than `least` rows.

    The search for sums is bounded, and exact numbers are what it finds: columns that nearly add up are left. Where rows
    are few beside the columns, sums that are 0 in many rows are no sign of anything, and none are looked for.

    Args:
        x: (n, P).
        least: Fewest rows; nothing changes where it is 1, or where there are fewer rows at all.

    Returns:
        The columns, and which of them changed; the same array where none did.
    """
    if not 1 < least <= len(x):
        return x, ()
    found = levelled(x.copy(), least)
    for _ in range(_MOST_ROUNDS):
        if len(x) < x.shape[1] + 1 + 2 * least or not _follow(found, least):
            break
    changed = tuple(np.flatnonzero((found != x).any(axis=0)).tolist())
    return (found, changed) if changed else (x, ())


def _follow(x: Floats, least: int) -> bool:
    """Have one column follow others in the rows where their sum stands out, in place; whether any did."""
    columns, a, scale, _ = scaled_columns(x)
    size, done = np.abs(a), False
    for sums in sparse_sums(a, size, least):
        num = differs(a, size, sums).sum(axis=0)
        fewest_first = np.argsort(num, kind="stable")
        for coefficients in sums[:, fewest_first[(num > 0)[fewest_first] & (num < least)[fewest_first]]].T:
            rows = np.flatnonzero(differs(a, size, coefficients[:, None])[:, 0])
            if not 0 < len(rows) < least:  # a sum before this one changed a column
                continue
            place = int(np.argmax(np.abs(coefficients[1:])))  # the first is that of the constant
            step = a[rows] @ coefficients / coefficients[1 + place]
            a[rows, 1 + place] -= step
            size[rows] = np.abs(a[rows])
            x[rows, columns[place]] -= step * scale[place]
            done = True
    return done


def scaled_columns(x: Floats) -> tuple[Integers, Floats, Floats, Floats]:
    """Columns that vary, (P',), a constant and these of about size 1, (n, 1 + P'), and what makes them so.

    Returns:
        The columns, the numbers, by what they are divided, (P',), and what was subtracted before, (P',).
    """
    drawn = slice(None) if len(x) <= _SAMPLE else stream(0, "few rows", "centre").integers(len(x), _SAMPLE)
    centre = np.median(x[drawn], axis=0)  # not of the first rows: a file may be sorted
    scale = np.abs(x - centre).mean(axis=0)
    columns = np.flatnonzero(scale > 0)
    if len(columns) > _MOST_COLUMNS:
        share = (x[:, columns] == centre[columns]).mean(axis=0)
        columns = np.sort(columns[np.argsort(-share, kind="stable")[:_MOST_COLUMNS]])
    scale, centre = scale[columns], centre[columns]
    return columns, with_constant((x[:, columns] - centre) / scale), scale, centre


def with_constant(x: Floats) -> Floats:
    """A constant 1 before the columns, (n, 1 + P)."""
    return np.column_stack([np.ones(len(x)), x])


def sparse_sums(a: Floats, size: Floats, most: int) -> Iterator[Floats]:
    """Coefficients, (P, Q), of sums of the columns of `a`, (n, P), that may be 0 in all rows but a few.

    Args:
        a: Columns of about size 1, as of `scaled_columns`.
        size: Of its numbers.
        most: So many rows are not few any more.
    """
    draw = stream(0, "few rows")
    for _ in range(_ORDERS):
        rows = draw.permutation(len(a))[: max(4 * a.shape[1], _SAMPLE)]
        solved, free = _echelon(a[rows])
        weights = differs(a[rows], size[rows], solved).sum(axis=0)
        yield solved[:, ~free & (weights > 0) & (weights < most)]
        rest = solved[:, free]  # sums that are 0 in the sample, and of which a few may be 0 nearly everywhere
        apart = differs(a, size, rest)
        rest, places = rest[:, apart.any(axis=0)], np.flatnonzero(apart.any(axis=1))
        if rest.shape[1]:
            yield rest @ _echelon((a[places] @ rest)[draw.permutation(len(places))])[0]


def differs(a: Floats, size: Floats, coefficients: Floats) -> Array:
    """Where sums of columns are not 0, (n, Q), for coefficients of shape (P, Q); `size` is that of `a`."""
    found: Array = np.abs(a @ coefficients) > _ZERO * (size @ np.abs(coefficients))
    return found


def _echelon(a: Floats) -> tuple[Floats, Array]:
    """Coefficients, (P, P), of sums of the columns of which each is 0 in the pivot rows of all others.

    Returns:
        One sum a column; and which of them have no pivot, for they are 0 in all rows.
    """
    num = a.shape[1]
    solved, free = np.eye(num), np.ones(num, dtype=np.bool_)
    size = np.eye(num)
    for row in a:
        values = row @ solved
        usable = free & (np.abs(values) > _ZERO * (np.abs(row) @ size))
        if not usable.any():
            if not free.any():
                break
            continue
        pivot = int(np.argmax(np.where(usable, np.abs(values), 0.0)))
        solved[:, pivot] /= values[pivot]
        values[pivot] = 0.0
        solved -= np.outer(solved[:, pivot], values)
        size = np.abs(solved)
        free[pivot] = False
    return solved, free


@dataclass(frozen=True, slots=True)
class FewProducts:
    """Pairs of columns (j, k), j <= k, of which (x_j - a)(x_k - b) is not 0 in a few rows alone; d columns."""

    few: Array
    """Which pairs, bool (d, d), upper triangle."""
    a: Floats
    """(d, d)."""
    b: Floats
    """(d, d)."""

    @property
    def num(self) -> int:
        """How many pairs there are."""
        return int(self.few.sum())


def few_products(x: Floats, least: int) -> FewProducts:
    """Find the products of two columns, also of one with itself, that tell of fewer than `least` rows.

    With a constant, both columns and their product, as in a polynomial of degree 2, sums of (x_j - a)(x_k - b) can be
    told for any a and b; here those are the two commonest values of each column.

    Args:
        x: (n, d).
        least: Fewest rows.
    """
    num = x.shape[1]
    few, a, b = np.zeros((num, num), dtype=np.bool_), np.zeros((num, num)), np.zeros((num, num))
    for new, values_a, values_b in ProductsApart(x).found(slice(None), least):
        new &= ~few
        few |= new
        a, b = np.where(new, values_a, a), np.where(new, values_b, b)
    return FewProducts(few, a, b)


class ProductsApart:
    """Counts in how many of some rows of x, (n, d), products of two columns less their commonest values are not 0."""

    def __init__(self, x: Floats) -> None:
        """Find the values."""
        self._values = np.array([two_commonest(column) for column in x.T]).reshape(x.shape[1], 2)
        # NaN, no value, differs from all
        self._other = [(x != self._values[:, i]).astype(np.float64) for i in range(2)]

    def found(self, rows: Integers | slice, least: int) -> Iterator[tuple[Array, Floats, Floats]]:
        """Pairs j <= k that are not 0 in fewer than `least` of some rows, bool (d, d), and their a and b, (d, d)."""
        values = self._values
        for i, k in ((0, 0), (0, 1), (1, 0), (1, 1)):
            num = self._other[i][rows].T @ self._other[k][rows]
            usable = np.isfinite(values[:, i, None] + values[None, :, k])
            few = np.triu((num > 0.5) & (num < least - 0.5)) & usable
            yield few, values[:, i, None], values[None, :, k]


def two_commonest(column: Floats) -> tuple[float, float]:
    """The values that most rows have, the commonest first; NaN in place of one that hardly an eighth of them has."""
    values, counts = np.unique(column, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:2]
    found = [float(values[i]) if counts[i] * _LEAST_SHARE >= len(column) else np.nan for i in order]
    first, second = [*found, np.nan, np.nan][:2]
    return first, second
