"""Whether blocks of rows, with those of earlier sets, add up to a few rows, some added and some subtracted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kernfed.arrays import Flags, Integers
from kernfed.rng import Words
from kernfed_client.data.guards.dealt import Dealt
from kernfed_client.data.guards.row_spans import tells_of_few

_MOST_JUDGED = 250
"""Earlier blocks that are judged together with new ones: those that share most rows with them."""
_TOGETHER, _MOST_GROUPS = 60, 4
"""New blocks that are judged at a time, and how often: of a client with very many rows not all are judged so."""


def add_up_to_few(words: Words, block: Integers, is_new: Flags, before: Sequence[Dealt], least: int) -> bool:
    """Whether new blocks, with those of one earlier set or of several, add up to a few rows.

    Rows that no job had before count as enough: whether a few may come is judged by whole sets.

    Args:
        words: What tells the rows of the new blocks apart, (n,).
        block: Number of each one's block, (n,).
        is_new: Whether no job had it before, (n,).
        before: The earlier sets.
        least: Fewest rows.
    """
    weight = np.where(is_new, least, 1)
    sizes = np.bincount(block, weight).astype(np.int64)
    shares: list[_Shares] = []
    for holder, kept in enumerate(before):
        theirs = kept.blocks_of(words)
        both = theirs >= 0
        num_theirs = int(kept.block.max()) + 1
        pairs, inverse = np.unique(theirs[both] * len(sizes) + block[both], return_inverse=True)
        shared = np.bincount(inverse, minlength=len(pairs))
        their, own = pairs // len(sizes), pairs % len(sizes)
        their_sizes = np.bincount(kept.block, minlength=num_theirs)
        if _few(own, shared, sizes, their_sizes[their], least).any():
            return True
        mostly = np.zeros(num_theirs, dtype=np.bool_)
        mostly[their[2 * shared > sizes[own]]] = True
        if (_few(their, shared, their_sizes, sizes[own], least) & mostly).any():
            return True
        name = kept.named[np.searchsorted(np.unique(kept.block), their)]
        shares.append(_Shares(np.full(len(their), holder), their, name, own, shared))
    return _together(words, block, is_new, before, least, _Shares(*map(np.concatenate, zip(*shares, strict=True))))


def _together(
    words: Words, block: Integers, is_new: Flags, before: Sequence[Dealt], least: int, shares: _Shares
) -> bool:
    num = int(block.max()) + 1
    for start in range(0, min(num, _TOGETHER * _MOST_GROUPS), _TOGETHER):
        numbers = range(start, min(start + _TOGETHER, num))
        own: list[Words] = []
        for number in numbers:
            come = words[is_new & (block == number)][:1, None] ^ np.arange(least, dtype=np.uint64)
            own.append(np.concatenate([words[~is_new & (block == number)], come.ravel()]))
        earlier = [
            before[holder].words[before[holder].block == number] for holder, number in shares.most_shared(numbers)
        ]
        if tells_of_few(own[-1], earlier, least, own[:-1]):
            return True
    return False


class _Shares(NamedTuple):
    """Earlier blocks and new ones that share rows, p pairs."""

    holder: Integers
    """Place of the set that holds the earlier one, (p,)."""
    number: Integers
    """Of the earlier one in its set, (p,)."""
    name: Words
    """Of the earlier one, (p,); see `Dealt.named`."""
    own: Integers
    """Number of the new one, (p,)."""
    shared: Integers
    """Rows that both have, (p,)."""

    def most_shared(self, numbers: range) -> list[tuple[int, int]]:
        """Holder and number of the earlier blocks that share most rows with these new ones, the most last."""
        near = np.flatnonzero((self.own >= numbers.start) & (self.own < numbers.stop))
        _, first, inverse = np.unique(self.name[near], return_index=True, return_inverse=True)
        holder = self.holder[near]
        once = holder == holder[first][inverse]  # a block may lie in several sets
        total = np.bincount(inverse[once], self.shared[near][once], len(first))
        order = np.argsort(first)
        chosen = near[first[order[np.argsort(total[order], kind="stable")[-_MOST_JUDGED:]]]]
        return list(zip(self.holder[chosen].tolist(), self.number[chosen].tolist(), strict=True))


def _few(of: Integers, shared: Integers, sizes: Integers, others: Integers, least: int) -> Flags:
    """Whether each set, less those others of a partition that leave fewest of its rows, is of a few rows.

    Args:
        of: Number of a set, for each pair of a set and another that share rows, (p,).
        shared: How many each pair shares, (p,).
        sizes: Of the sets.
        others: Sizes of the other one of each pair, (p,).
        least: Fewest rows.
    """
    best = np.bincount(of, np.minimum(shared, others - shared), len(sizes))
    left = best + sizes - np.bincount(of, shared, len(sizes))
    return np.asarray((left > 0) & (left < least))
