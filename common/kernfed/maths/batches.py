"""Batches of rows that an epoch visits in a drawn order, of whole blocks where rows lie in blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernfed.arrays import Integers
from kernfed.rng import Stream


def batches(
    order: Stream, num_rows: int, batch_size: int, block: Integers | None = None, least: int = 1
) -> Iterator[Integers]:
    """Draw batches without end: epoch after epoch over all rows, each in a new order.

    Args:
        order: Draws the orders.
        num_rows: n, above `batch_size`.
        batch_size: Rows per batch, at least 1. The last batch of an epoch may be smaller.
        block: Number of each row's block, (n,): a batch is whole blocks, the fewest that hold `batch_size` rows,
            and what is left at an epoch's end goes with its last batch. Unset: rows are drawn one by one.
        least: A last batch of fewer rows goes with the one before it.
    """
    if block is None:
        starts = list(range(0, num_rows, batch_size))
        if len(starts) > 1 and num_rows - starts[-1] < min(least, batch_size):
            del starts[-1]
        while True:
            drawn = order.permutation(num_rows)
            yield from (drawn[start:end] for start, end in zip(starts, [*starts[1:], num_rows], strict=True))
    _, counts = np.unique(block, return_counts=True)
    members = np.split(np.argsort(block, kind="stable"), np.cumsum(counts)[:-1])
    while True:
        gathered: list[Integers] = []
        for number in order.permutation(len(members)):
            if gathered and len(gathered[-1]) < batch_size:
                gathered[-1] = np.concatenate([gathered[-1], members[number]])
            else:
                gathered.append(members[number])
        if len(gathered) > 1 and len(gathered[-1]) < batch_size:
            gathered[-2:] = [np.concatenate(gathered[-2:])]
        yield from gathered
