"""Blocks of a client's rows over all of its jobs: what jobs tell together bounds itself, however many there are.

A job's answers tell sums over the blocks of its rows. Were each set of rows dealt into blocks of its own, a dozen sets
that differ by enough rows would tell each row by a system of linear equations. So the client remembers how it dealt
every set that something was told of. The rows of a new set stay in their blocks where these are whole in it. The others
are dealt anew, into fewer blocks the more sets there are, and all blocks together never number more than
(n + n / least) / 2 for n rows: half of what the first blocks leave unknown stays unknown. Nor may blocks add up to a
few rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from kernfed.arrays import Integers
from kernfed.errors import PolicyError
from kernfed.rng import Words
from kernfed_client.data.guards.adding_up import add_up_to_few
from kernfed_client.data.guards.dealt import Dealt, dealt_sets
from kernfed_client.data.guards.joined_blocks import joined_blocks
from kernfed_client.data.guards.kept_sets import keep_set
from kernfed_client.data.guards.records import told_apart
from kernfed_client.data.guards.split import belonging, blocks_of, digest_words
from kernfed_client.data.reading.partition_data import PartitionData

FOLDER = "row-blocks"
_SHARE_OF_LEFT = 4
"""A set takes at most one in so many of the blocks that are left."""
_SMALL = 4
"""Blocks of fewer than so many times the least number of rows are taken before larger ones."""


@dataclass
class Dealing:
    """Deals the sets of rows of one job, beside those of earlier jobs."""

    state: Path
    """The client's state folder."""
    least: int
    """Fewest rows of a block."""
    begun: bool = False
    """Whether the job goes on: nothing is refused then."""
    as_before: bool = False
    """Whether its blocks are of rules that knew no earlier jobs: they are only written down."""
    larger: bool = False
    """Whether a set was dealt into fewer blocks than it has alone."""
    refusal: PolicyError | None = None
    """Why the job is to be refused, where no other guard has a reason."""
    _new: list[Dealt] = field(default_factory=list)
    _written: list[tuple[Path, int, Dealt]] = field(default_factory=list)

    @cached_property
    def _kept(self) -> list[Dealt]:
        return dealt_sets(self.state / FOLDER)

    def of_parts(
        self, train: PartitionData, test: PartitionData, columns: Sequence[str], first: Integers, least_groups: int
    ) -> Integers:
        """Number each training row's block, (n,); of test rows sums over all are told.

        Args:
            train: n rows.
            test: Rows to test on.
            columns: Names of the feature columns.
            first: Blocks of the training rows as if no job had been before, (n,).
            least_groups: Fewest groups of a block, where rows have groups.
        """
        if train.num_rows < self.least:  # the policy refuses so few
            return first
        try:
            found = self.of_rows(train, columns, first, least_groups)
            if test.num_rows:
                places = np.arange(test.num_rows)
                self.deal(_words(test, columns), places, lambda some: np.zeros_like(some), whole=True)
        except PolicyError as err:
            self.refusal = err
            return first
        self.larger = int(found.max()) < int(first.max())
        return found

    def of_rows(self, rows: PartitionData, columns: Sequence[str], first: Integers, least_groups: int = 1) -> Integers:
        """Number each row's block, (n,).

        Args:
            rows: n rows.
            columns: Names of the feature columns.
            first: Blocks as if no job had been before, (n,).
            least_groups: Fewest groups of a block, where rows have groups.

        Raises:
            PolicyError: As of `deal`.
        """
        units = None if rows.group is None else np.unique(rows.group, return_inverse=True, return_counts=True)[1:]

        def fresh(places: Integers) -> Integers:
            if len(places) == len(first):
                return first
            return blocks_of(rows.take(places), columns, self.least, least_groups).of_rows

        def allowed(places: Integers) -> bool:
            if units is None:
                return True
            groups = np.unique(units[0][places])
            return len(groups) >= least_groups and int(units[1][groups].sum()) == len(places)

        return self.deal(_words(rows, columns), belonging(rows), fresh, allowed)

    def deal(
        self,
        words: Words,
        unit: Integers,
        fresh: Callable[[Integers], Integers],
        allowed: Callable[[Integers], bool] = lambda _: True,
        *,
        whole: bool = False,
    ) -> Integers:
        """Number each row's block, (n,).

        Args:
            words: What tells rows apart, (n,), all different.
            unit: Rows of one number lie in one block, (n,), numbers from 0 on.
            fresh: Deals some of the rows, by their places, as if there were no others.
            allowed: Whether some rows, by their places, may be a block of this job.
            whole: Whether sums over all rows alone are told.

        Raises:
            PolicyError: So many sets were dealt that one more would tell too much, or blocks would tell about few rows.
        """
        mine = Dealt.of(words, np.arange(len(words)))
        known = [kept for kept in self._kept if (whole or not kept.whole) and np.array_equal(kept.words, mine.words)]
        if known and not self.as_before:
            dealt = np.empty(len(words), dtype=np.int64)
            dealt[mine.block] = known[-1].block
            found = joined_blocks(dealt, lambda places: len(places) >= self.least and allowed(places))
        elif self._kept and not self.begun and not self.as_before:
            found = self._beside(words, unit, fresh, allowed)
        else:
            found = fresh(np.arange(len(words)))
        self._new.append(Dealt.of(words, found, whole=whole))
        return found

    def check(self) -> None:
        """Raise the PolicyError of a job whose blocks, with those of earlier jobs, would tell about few rows."""
        if self.refusal is not None:
            raise self.refusal

    def keep(self) -> None:
        """Remember what was dealt; raises as `check`."""
        self.check()
        for dealt in self._new:
            words = {"words": dealt.words}
            path = keep_set(self.state / FOLDER, words if dealt.whole else words | {"block": dealt.block})
            if path is not None and not dealt.whole:
                self._written.append((path, path.lstat().st_mtime_ns, dealt))
        self._new.clear()
        self.__dict__.pop("_kept", None)

    def release(self) -> None:
        """Forget blocks that were dealt for this job first, and that no other job took since.

        For a job of which nothing was told but sums over all of its rows: the set itself stays remembered.
        """
        for path, when, dealt in self._written:
            with contextlib.suppress(FileNotFoundError):
                if path.lstat().st_mtime_ns == when:
                    keep_set(self.state / FOLDER, {"words": dealt.words})
                    path.unlink()
        self.spend()

    @property
    def unspent(self) -> bool:
        """Whether there are such blocks."""
        return bool(self._written)

    def spend(self) -> None:
        """Keep the blocks for good: something was told of them."""
        self._written.clear()

    def _beside(
        self,
        words: Words,
        unit: Integers,
        fresh: Callable[[Integers], Integers],
        allowed: Callable[[Integers], bool],
    ) -> Integers:
        before: Words = np.unique(np.concatenate([kept.words for kept in self._kept]))
        undealt = ~np.isin(before, np.concatenate([words[:0], *(k.words for k in self._kept if not k.whole)]))
        num_told = len(np.unique(np.concatenate([kept.named for kept in self._kept])))
        left = (len(before) + len(before) // self.least) // 2 - num_told - int(undealt.sum()) // self.least
        is_new = ~np.isin(words, before)
        is_first = is_new | np.isin(words, before[undealt])
        for most in (_SMALL * self.least, len(words) + 1):
            found = self._whole(words, unit, most, allowed)
            rest = np.flatnonzero(found < 0)
            num_first = int(is_first[rest].sum())
            num = max(num_first // self.least + left // _SHARE_OF_LEFT, 1) if left > 0 else 0
            if left <= 0 and (num_new := int(is_new[rest].sum())):
                num = max(num_new // self.least, 1)
            if num > 1:
                break
        if not len(rest):
            return found
        if not num:
            raise PolicyError(
                "earlier jobs took this client's rows in so many sets that one more would tell about fewer rows than "
                "policy.min_rows; use the target, features, ranges, rule for gaps and test fraction of an earlier job, "
                'or let this client\'s administrator set policy.near_jobs = "allow"'
            )
        own, first = fresh(rest), int(found.max(initial=-1)) + 1
        size = int(own.max()) + 1
        num = min(num, size)
        while num:
            joined = own * num // size
            if not add_up_to_few(words[rest], joined, is_new[rest], self._kept, self.least):
                found[rest] = first + joined
                return found
            num //= 2
        raise PolicyError(
            "sums over the rows of this job and over blocks of earlier jobs' rows add up, some added and some "
            "subtracted, to fewer rows than policy.min_rows, so the jobs together would tell about these; use the "
            "target, features, ranges, rule for gaps and test fraction of an earlier job, or let this client's "
            'administrator set policy.near_jobs = "allow"'
        )

    def _whole(self, words: Words, unit: Integers, most: int, allowed: Callable[[Integers], bool]) -> Integers:
        """Number of each row's earlier block where that is whole here, (n,), and -1; at least so many rows are left."""
        blocks: list[Integers] = []
        dealt = [kept for kept in self._kept if not kept.whole]
        covers = [self._of_whole(kept.blocks_of(words), np.bincount(kept.block), unit, most) for kept in dealt]
        found, number = np.full(len(words), -1, dtype=np.int64), 0
        for block in sorted(covers, key=lambda cover: -int((cover >= 0).sum())):
            taken = np.isin(block, block[(found >= 0) & (block >= 0)])
            block = np.where(taken, -1, block)
            order = np.argsort(block, kind="stable")
            order = order[block[order] >= 0]
            for rows in np.split(order, np.flatnonzero(np.diff(block[order])) + 1) if len(order) else []:
                if allowed(rows):
                    found[rows], number = number, number + 1
                    blocks.append(rows)
        while blocks and (found < 0).sum() > 0 and not self._enough(found, allowed):
            found[blocks.pop()] = -1
        return found

    def _enough(self, found: Integers, allowed: Callable[[Integers], bool]) -> bool:
        rest = np.flatnonzero(found < 0)
        return len(rest) >= self.least and allowed(rest)

    def _of_whole(self, block: Integers, sizes: Integers, unit: Integers, most: int) -> Integers:
        """Blocks that are whole, of rows and of units, and neither too small nor too large; of other rows -1."""
        here = np.bincount(block[block >= 0], minlength=len(sizes))
        usable = (here == sizes) & (sizes >= self.least) & (sizes < most)
        low, high = np.full(int(unit.max(initial=-1)) + 1, len(sizes)), np.full(int(unit.max(initial=-1)) + 1, -1)
        np.minimum.at(low, unit, block)
        np.maximum.at(high, unit, block)
        split = low[unit] != high[unit]
        usable[block[split & (block >= 0)]] = False
        return np.where((block >= 0) & usable[block], block, -1)


def _words(rows: PartitionData, columns: Sequence[str]) -> Words:
    return told_apart(digest_words(rows, columns)) if rows.word is None else rows.word
