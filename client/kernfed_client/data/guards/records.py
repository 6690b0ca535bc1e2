"""The order of a file's records, by which rows are held out: every job that drops the same gaps finds the same one.

A job's own columns, target and ranges decide which rows it has, and never where a row stands. Which rows lack a value
does: two jobs that drop other rows and hold out the same others would differ by few, and tell about these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from kernfed.arrays import Integers
from kernfed.rng import Words
from kernfed.tables.raw_table import RawTable
from kernfed.tables.records import mixed

_OTHER = np.uint64(0x5851F42D4C957F2D)
_MANY, _MANY_SHARE = 20, 0.1
"""So many different rows, or this share of the rows, are enough for equal rows to be copies of one another."""


def are_copies(num_different: int, num: int) -> bool:
    """Whether equal rows are copies of one another, and not alike by their nature, as in a table of a few classes."""
    return num_different >= min(_MANY, _MANY_SHARE * num)


@dataclass(frozen=True, slots=True)
class Records:
    """Rows of a file, n of them, in the order of all of its N records. Those of a group, and copies, stand as one."""

    word: Words
    """What a row is ordered by, (n,): of its record, or of its group."""
    known: Words
    """The different words of the file, rising, (U,)."""
    ends: Integers
    """Records of the file up to each of `known`, (U,)."""
    group: Integers | None = None
    """Number of each row's group, (n,); None: rows have none."""

    @classmethod
    def of_table(cls, table: RawTable) -> Self | None:
        """All rows of a file; None where neither records nor groups were asked for."""
        word = table.records if table.group is None else mixed(table.group.view(np.uint64))
        if word is None:
            return None
        lost = word[table.absent]
        return cls.of_words(_anew(word, lost) if lost.size else word, table.group)

    @classmethod
    def of_words(cls, word: Words, group: Integers | None = None) -> Self:
        """Rows that are all there are; equal ones of few different ones, without groups, stand one by one."""
        known, counts = np.unique(word, return_counts=True)
        if group is None and not are_copies(len(known), len(word)):
            word = told_apart(word)
            known, counts = np.unique(word, return_counts=True)
        return cls(word, known, np.cumsum(counts).astype(np.int64), group)

    def take(self, rows: Integers) -> Self:
        """Some rows, which stand where they stood."""
        return type(self)(self.word[rows], self.known, self.ends, None if self.group is None else self.group[rows])

    def anew(self, by: Words) -> Self:
        """The same rows and records in an order of their own, which words decide, whatever their order, (k,)."""
        known = _anew(self.known, by)
        order = np.argsort(known)
        counts = np.diff(self.ends, prepend=0)[order]
        return type(self)(_anew(self.word, by), known[order], np.cumsum(counts).astype(np.int64), self.group)

    def by_themselves(self) -> Self:
        """The same rows, as if the file had no others."""
        return self.of_words(self.word, self.group)

    def of_units(self, unit: Integers) -> Words:
        """One word for each unit's rows, (n,): that of one of them, which has nothing to do with the order.

        The least of them would put units of many rows first.

        Args:
            unit: Number of each row's unit from 0 on, (n,).
        """
        order = np.lexsort((mixed(self.word ^ _OTHER), unit))
        _, first = np.unique(unit[order], return_index=True)
        found: Words = self.word[order[first]][unit]
        return found

    def behind(self, nums: Integers) -> Words:
        """The first word behind so many records of the file, for each of some of `ends` but the last, (k,)."""
        found: Words = self.known[np.searchsorted(self.ends, nums, side="right")]
        return found


def told_apart(word: Words) -> Words:
    """Other words of rows, (n,), of which equal ones differ by how many of them come before."""
    _, place, counts = np.unique(word, return_inverse=True, return_counts=True)
    before = np.empty(len(word), dtype=np.uint64)
    before[np.argsort(place, kind="stable")] = np.arange(len(word)) - np.repeat(np.cumsum(counts) - counts, counts)
    return mixed(word + before)


def _anew(words: Words, by: Words) -> Words:
    return mixed(words ^ np.add.reduce(mixed(by)))
