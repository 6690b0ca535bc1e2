"""Blocks of rows, joined until in none of them a few rows stand out: a sum over a block is told as it is.

All blocks of a job's rows, in their order, are halved, and each half again, for as long as in both halves no column,
and no class, has fewer than `policy.min_rows` rows apart. So the blocks of all jobs on the same rows lie in one
another, whatever columns each job takes: sums over blocks, added and subtracted, are sums over those of a job on one
column.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernfed.arrays import Array, Integers
from kernfed.jobs.client_file import PolicySection
from kernfed.maths.few.combinations import Combinations, combinations_of
from kernfed.maths.few.rows import columns_of_few
from kernfed.maths.few.sums import rows_of_sums
from kernfed_client.data.guards.few_in_columns import fewest_alike
from kernfed_client.data.guards.split import RULES, SUMS_RULES
from kernfed_client.data.reading.partition_data import PartitionData


def joined_blocks(block: Integers, allowed: Callable[[Integers], bool]) -> Integers:
    """Number of each row's block after some were joined, (n,), in the order of the blocks.

    Args:
        block: Number of each row's block, (n,).
        allowed: Whether some rows, by their places, may be a block.
    """
    order = np.argsort(block, kind="stable")
    starts = np.append(np.flatnonzero(np.diff(block[order], prepend=-1)), len(order))
    found, number, left = np.empty_like(block), 0, [(0, len(starts) - 1)]
    while left:
        low, high = left.pop()
        middle = (low + high) // 2
        halves = ((low, middle), (middle, high))
        if high - low > 1 and all(allowed(order[starts[first] : starts[last]]) for first, last in halves):
            left.extend(reversed(halves))
        else:
            found[order[starts[low] : starts[high]]] = number
            number += 1
    return found


class FewStandOut:
    """Judges whether fewer rows than the policy's least stand out in a column, a sum of columns, a target or a class.

    Or have one of few combinations of values, where each of them has enough of all rows: else no functions of such
    columns are told.
    """

    def __init__(self, rows: PartitionData, policy: PolicySection, rules: int = RULES) -> None:
        """Take n rows of P columns, in a job by one of `kernfed_client.data.guards.split.RULES`."""
        self._least = policy.min_rows
        self._columns: list[Array] = []
        self._of_sums: Array | None = None
        if policy.sparse_columns != "allow":
            self._columns = [rows.x, *([] if rows.y is None else [rows.y[:, None]])]
            if rules >= SUMS_RULES and self._least > 1:
                self._sums, self._of_sums = rows_of_sums(rows.x, self._least)
        self._codes: Array | None = None
        if rows.labels is not None and policy.rare_classes != "allow":
            self._codes = np.unique(rows.labels, return_inverse=True)[1]
        self._alike: Combinations | None = None
        if fewest_alike(policy, rules) > 1 and (found := combinations_of(rows.x)):
            self._alike = None if found.rare(self._least).any() else found
        self.blamed = np.zeros(rows.x.shape[1] + 1, dtype=np.bool_)
        """Columns, and last the target, for which some rows were no block, (P + 1,)."""

    def allows(self, rows: Integers) -> bool:
        """Whether some rows, by their places, may be a block."""
        few = np.zeros_like(self.blamed)
        if self._columns:
            found = np.concatenate([columns_of_few(columns[rows], self._least) for columns in self._columns])
            few[: len(found)] = found
        if self._of_sums is not None:
            few[:-1] |= self._of_sums[columns_of_few(self._sums[rows].astype(np.float64), self._least)].any(axis=0)
        if self._codes is not None:
            counts = np.bincount(self._codes[rows])
            few[-1] |= bool(((counts > 0) & (counts < self._least)).any())
        if self._alike is not None and self._alike.rare(self._least, rows).any():
            few[self._alike.columns] = True
        self.blamed |= few
        return not few.any()
