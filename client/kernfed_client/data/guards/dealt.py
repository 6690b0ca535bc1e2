"""A set of rows that was dealt into blocks, and those that a client remembers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernfed.arrays import Integers
from kernfed.rng import Words
from kernfed.tables.records import mixed
from kernfed_client.data.guards.kept_sets import kept_sets


@dataclass(frozen=True, slots=True)
class Dealt:
    """A set of rows that was dealt into blocks, n of them."""

    words: Words
    """What tells the rows apart, rising, (n,)."""
    block: Integers
    """Number of each one's block, (n,)."""
    whole: bool = False
    """Whether sums over all of them alone are told: they are one block, and may be dealt later."""

    @classmethod
    def of(cls, words: Words, block: Integers, *, whole: bool = False) -> Dealt:
        """Put rows into the order of their words."""
        order = np.argsort(words)
        return cls(words[order], block[order], whole and not block.any())

    @property
    def named(self) -> Words:
        """A word for each block, the same for the same rows."""
        order = np.argsort(self.block, kind="stable")
        starts = np.flatnonzero(np.diff(self.block[order], prepend=-1))
        found: Words = np.add.reduceat(mixed(self.words[order]), starts)
        return found

    def blocks_of(self, words: Words) -> Integers:
        """Block of each of some rows, (m,); -1: the set has none."""
        if not len(self.words):
            return np.full(len(words), -1, dtype=np.int64)
        place = np.minimum(np.searchsorted(self.words, words), len(self.words) - 1)
        return np.where(self.words[place] == words, self.block[place], -1)


def dealt_sets(folder: Path) -> list[Dealt]:
    """The sets of a folder, in their order; one that was told of as a whole and dealt later stands once, as dealt."""
    found: list[Dealt] = []
    for kept in kept_sets(folder):
        if {*kept} == {"words", "block"} and len(kept["words"]) == len(kept["block"]) > 0:
            found.append(Dealt(kept["words"].astype(np.uint64), kept["block"].astype(np.int64)))
        elif {*kept} == {"words"} and len(kept["words"]):
            words = kept["words"].astype(np.uint64)
            found.append(Dealt(words, np.zeros(len(words), dtype=np.int64), whole=True))
    dealt = [its.words for its in found if not its.whole]
    return [its for its in found if not (its.whole and any(np.array_equal(its.words, words) for words in dealt))]
