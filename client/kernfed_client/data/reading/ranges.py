"""Rows that hold a value which the job calls impossible: `data.ranges`. They are left out everywhere, and counted.

Two jobs could find single rows by ranges that differ a little. So where the policy wants numbers to stand for several
rows, the rows that a limit leaves out are none, or a multiple of that: those next to the limit go with them. Rows that
lack a value are no rows of a job that drops them, so they do not count.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernfed.arrays import Array, Flags, Floats
from kernfed.errors import DataError
from kernfed.federation.messages.data import DataSchema
from kernfed.maths.few.limits import whole_limit


def outside_ranges(
    schema: DataSchema,
    x: Array,
    y: Array | None,
    least: int = 1,
    complete: Flags | slice = slice(None),
    names: Sequence[str] = (),
) -> Flags:
    """Tell which rows a range leaves out, shape (n, R) for R ranges; no value (NaN) is not outside.

    Args:
        schema: With ranges of feature columns, and of the target of a regression.
        x: Feature columns in the data's units, (n, P).
        y: Numeric targets, (n,); None where there are none.
        least: Each limit leaves out a multiple of so many rows, the outermost, and all that equal the last of them.
        complete: Which rows count for that, (n,); unset: all.
        names: Of the columns of `x`; unset: those of the schema's features.
    """
    found = np.zeros((len(x), len(schema.ranges)), dtype=np.bool_)
    place = {name: j for j, name in enumerate(names or schema.features)}
    for i, given in enumerate(schema.ranges):
        values: Floats | None = x[:, place[given.column]] if given.column in place else y
        if values is not None:
            counted = values[complete]
            low, high = whole_limit(counted, given.low, least), whole_limit(-counted, -given.high, least)
            found[:, i] = (values < low) | (-values < high)
    return found


def row_outside(schema: DataSchema, x: Array | None, y: float | None) -> bool:
    """Tell whether a row of a stream lies outside of a range.

    Args:
        schema: As for `outside_ranges`.
        x: Feature columns, (P,); None: they came before.
        y: Target; None: it comes later, or is a class.
    """
    if not schema.ranges:
        return False
    row = np.full(len(schema.features), np.nan) if x is None else np.asarray(x)
    return bool(outside_ranges(schema, row[None], None if y is None else np.array([y])).any())


def refuse_all_outside(schema: DataSchema, found: Flags, where: str) -> None:
    """Refuse rows of which none lies within the ranges.

    Raises:
        DataError: Names the range that most rows are outside of.
    """
    if len(found) and found.any(axis=1).all():
        most = schema.ranges[int(found.sum(axis=0).argmax())]
        raise DataError(
            f"{where}: all {len(found):,} rows hold a value outside of data.ranges of the job, most of them in column "
            f"{most.column!r}, which is to be {most.low:g} to {most.high:g}; correct the ranges, or the column's units"
        )


def counts(schema: DataSchema, found: Flags) -> tuple[int, ...]:
    """Rows outside of each range, R of them; a row may be outside of several."""
    return tuple(int(n) for n in found.sum(axis=0)) if len(schema.ranges) else ()


def added(parts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Sums of `counts`; those that are empty count nothing."""
    return tuple(sum(column) for column in zip(*(p for p in parts if p), strict=True))
