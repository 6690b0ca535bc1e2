"""Training rows that stand far out in a column: what the site is told of them, and where few of them are taken.

Jobs differ in whether they take such rows as they are (`data.standardise`, `data.scales`), so two jobs on the same rows
would tell of a single one what it adds to every sum. Where they are fewer than `policy.min_rows`, all jobs take them
at the farthest of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.maths.clipping import clip_rows
from kernfed.wording import listed
from kernfed_client.data.reading.partition_data import PartitionData, in_file

_MAX_COLUMNS = 40
"""That get a note of a kind."""


def far_notes(
    columns: Floats, moved: Floats, names: Sequence[str], row_numbers: Array, end: str = ""
) -> tuple[str, ...]:
    """One note per column in which rows stand far out, with the values.

    Args:
        columns: Rows as they are, (n, P).
        moved: Those that stand far out taken elsewhere, (n, P).
        names: Of the columns, P.
        row_numbers: Places in the file, (n,).
        end: How each note ends.
    """
    notes = []
    apart = moved != columns
    for j in np.flatnonzero(apart.any(axis=0))[:_MAX_COLUMNS]:
        rows = apart[:, j]
        values = listed(sorted({f"{value:.6g}" for value in columns[rows, j]}), 5, more=", ...")
        num = int(rows.sum())
        what = "a training row stands" if num == 1 else f"{num} training rows stand"
        notes.append(
            f"column {names[j]!r}: {what} far out ({values}; {in_file(row_numbers[rows])}); correct the value, or mark "
            f"it as missing{end}"
        )
    return tuple(notes)


def without_few_far(
    rows: PartitionData, features: Sequence[str], least: int
) -> tuple[PartitionData, tuple[str, ...], tuple[str, ...]]:
    """Take rows that stand far out at the farthest of the others, in columns where fewer than `least` do.

    Returns:
        The rows; the names of the columns in which some were taken elsewhere; notes for the site, which name rows.
    """
    if not 1 < least <= rows.num_rows:
        return rows, (), ()
    moved, counts = clip_rows(rows.x)
    few = (counts > 0) & (counts < least)
    if not few.any():
        return rows, (), ()
    x = np.where(few, moved, rows.x)
    end = ". They are fewer than policy.min_rows, so all jobs take them at the farthest of the others"
    notes = far_notes(rows.x, x, features, rows.row_numbers, end)
    return replace(rows, x=x), tuple(features[int(j)] for j in np.flatnonzero(few)), notes
