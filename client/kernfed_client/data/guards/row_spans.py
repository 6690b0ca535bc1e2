"""Whether the sums that jobs told add up to one over a few rows: four jobs may do together what no two of them do.

A job tells sums over its set of rows. Whoever has several may add and subtract them: of all rows, of those without A,
of those without B and of those without either, the first minus the second minus the third plus the fourth is the sum
over what A and B share. What can be made so are the sums over the span of the sets' indicator vectors, so a few rows
are told apart where the span holds a vector that is 0 everywhere but there. F. Chin and G. Özsoyoğlu, *Auditing and
inference control in statistical databases*, IEEE Transactions on Software Engineering 8 (1982) 574-582, keep that span
in reduced row echelon form, as here; it is exact for single rows of few sets, and the search for the vectors of
least weight is information-set decoding: E. Prange, *The use of information sets in decoding cyclic codes*, IRE
Transactions on Information Theory 8 (1962) 5-9.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernfed.arrays import Array, Integers
from kernfed.rng import stream

_PRIME = (1 << 31) - 1
"""Numbers are taken modulo this: exact, where decimals would have to be judged; products of two fit into 63 bits."""
_ORDERS = 8
"""Orders of the rows in which a vector of few rows is looked for."""
_MOST_WORK, _FEWEST_SETS = 15_000_000, 4
"""Products of numbers per order; beyond it the first sets do not count, but so many always do."""


def tells_of_few(new: Array, earlier: Sequence[Array], least: int, beside: Sequence[Array] = ()) -> bool:
    """Whether a set of rows, with earlier ones, tells a sum over fewer than `least` rows that those did not tell.

    Args:
        new: Numbers of its rows.
        earlier: Those of the sets before, the last one last; where they are too many to judge, the first do not count.
        least: Fewest rows.
        beside: Those of other new sets; what the earlier ones tell with any of the new ones counts.
    """
    sets, num_new = [*earlier, *beside, new], 1 + len(beside)
    _, place = np.unique(np.concatenate(sets), return_inverse=True)
    num = int(place.max(initial=-1)) + 1
    split = np.split(place, np.cumsum([len(s) for s in sets])[:-1])
    member, sizes = _alike(split, num)
    while len(member) > max(_FEWEST_SETS, num_new) and len(member) ** 2 * len(sizes) > _MOST_WORK:
        split = split[min(len(split) // 8 + 1, len(split) - num_new) :]
        member, sizes = _alike(split, num)
    is_new = np.zeros((len(member), num_new), dtype=np.int64)
    is_new[-num_new:] = np.eye(num_new, dtype=np.int64)  # what a vector of the span takes of each new set
    draw = stream(0, "row spans")
    order = np.argsort(-sizes, kind="stable")
    large = int((sizes >= least).sum())
    for _ in range(_ORDERS):
        found = _echelon(np.hstack([member[:, order], is_new]))
        found = found[found[:, -num_new:].any(axis=1), :-num_new]
        weights = (found != 0) @ sizes[order]
        if (weights == 0).all():  # the earlier ones tell them
            return False
        if ((weights > 0) & (weights < least)).any():
            return True
        order[large:] = order[large:][draw.permutation(len(order) - large)]
    return False


def _alike(sets: Sequence[Integers], num: int) -> tuple[Integers, Integers]:
    """Rows that no set tells apart as one: whether each set has them, (K, A), and how many they are, (A,)."""
    marks = stream(0, "row spans", "marks").integers((1 << 62) - 1, len(sets))
    mark = np.zeros(num, dtype=np.int64)
    for rows, own in zip(sets, marks, strict=True):
        mark[rows] += own  # sums wrap; two of the same have 62 bits to differ in
    _, alike, sizes = np.unique(mark, return_inverse=True, return_counts=True)
    member = np.zeros((len(sets), len(sizes)), dtype=np.int64)
    for has, rows in zip(member, sets, strict=True):
        has[alike[rows]] = 1
    return member, sizes


def _echelon(rows: Integers) -> Integers:
    """The reduced row echelon form modulo a prime, without rows of zeros."""
    rows, rank = rows % _PRIME, 0
    for column in range(rows.shape[1]):
        if rank == len(rows):
            break
        [places] = np.nonzero(rows[rank:, column])
        if not len(places):
            continue
        rows[[rank, rank + places[0]]] = rows[[rank + places[0], rank]]
        rows[rank] = rows[rank] * pow(int(rows[rank, column]), -1, _PRIME) % _PRIME
        [others] = np.nonzero(rows[:, column])
        others = others[others != rank]
        rows[others] = (rows[others] - rows[others, column, None] * rows[rank]) % _PRIME
        rank += 1
    return rows[:rank]
