"""Rows that a person hands to a model, brought into the order of its columns."""

from __future__ import annotations

import collections
import numbers
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from kernfed.arrays import Flags, Floats
from kernfed.columns.expand import expand
from kernfed.columns.plan import ColumnPlan, columns_of
from kernfed.errors import DataError
from kernfed.jobs.client_file import PartitionFile
from kernfed.tables import typed_cells

if TYPE_CHECKING:
    import pandas as pd


def ordered(rows: pd.DataFrame | npt.ArrayLike, names: tuple[str, ...], plans: tuple[ColumnPlan, ...] = ()) -> Floats:
    """Check rows and bring their columns into order, float64, shape (n, d), row-major.

    Args:
        rows: A data frame (columns by name, in any order, more than needed is fine), or numbers of shape (n, d).
        names: The d columns wanted.
        plans: How they are made of a data frame's columns; empty: they are these. Numbers are the d columns always.

    Raises:
        DataError: A column is missing, doubled or not numeric, or a value is missing or infinite; names them.
    """
    if hasattr(rows, "columns"):  # a data frame, told without loading pandas
        x = expand(plans, _frame_columns(cast("pd.DataFrame", rows), columns_of(plans, names), plans))
    else:
        try:
            x = np.asarray(rows, dtype=np.float64, order="C")
        except (TypeError, ValueError, OverflowError) as err:
            raise DataError(f"rows are not numbers: {err}") from err
        if x.ndim != 2 or x.shape[1] != len(names):
            raise DataError(
                f"rows have shape {x.shape}, want (rows, {len(names)}): columns {', '.join(names)}, in this order; or "
                "give a data frame, whose columns have names"
            )
    _refuse_first(~np.isfinite(x), names, "missing or infinite")
    return x


def standardised(x: Floats, mean: Floats, deviation: Floats) -> Floats:
    """(x - mean) / deviation of rows (n, d); infinite where that is beyond float64, which `finite` tells later."""
    with np.errstate(over="ignore"):
        return (x - mean) / deviation


def finite(scores: Floats) -> Floats:
    """Refuse rows whose numbers are so large that a score of them is none.

    Args:
        scores: Of the rows, (n, C).

    Returns:
        The scores.

    Raises:
        DataError: One is NaN or infinite; names the row.
    """
    faulty = ~np.isfinite(scores).all(axis=1)
    if faulty.any():
        raise DataError(
            f"row {int(faulty.argmax()) + 1} (counted from 1): its numbers are too far from those of the training rows "
            "to be predicted; correct them or leave the row out"
        )
    return scores


def _refuse_first(faulty: Flags, names: Sequence[str], what: str) -> None:
    if faulty.any():
        row, column = (int(i) for i in np.argwhere(faulty)[0])
        raise DataError(
            f"column {names[column]!r}, row {row + 1} (counted from 1): the value is {what}; fill it in or leave the "
            "row out"
        )


def _frame_columns(frame: pd.DataFrame, names: tuple[str, ...], plans: tuple[ColumnPlan, ...]) -> Floats:
    counts = collections.Counter(frame.columns)
    file = PartitionFile(path=Path("-"))
    readers = {plan.name: typed_cells.CellReader(plan, file, None, lambda _: None) for plan in plans}
    x = np.empty((len(frame), len(names)))
    for i, name in enumerate(names):
        if counts[name] != 1:
            what = f"is there {counts[name]} times" if counts[name] else "is missing"
            raise DataError(f"column {name!r} {what}; the model needs the columns {', '.join(names)}, each once")
        column = frame[name]
        plain = column.dtype.kind in "biuf" and (not plans or typed_cells.is_plain(plans[i]))
        if not plain and (reader := readers.get(name)) is not None:
            x[:, i] = _typed(name, column, reader)
            continue
        if column.dtype.kind not in "biuf":
            _check_numbers(name, column)
        x[:, i] = column.to_numpy(dtype=np.float64, na_value=np.nan)
    _refuse_first(np.isinf(x), names, "infinite")  # limits of a column would make a number of it
    return x


def _typed(name: str, column: pd.Series[Any], reader: typed_cells.CellReader) -> list[float]:
    found = []
    for row, value in enumerate(column.astype(object).where(column.notna(), None)):
        number = reader.read(value)
        if not isinstance(number, float):
            raise DataError(f"column {name!r}, row {row + 1} (counted from 1): {number}")
        found.append(number)
    return found


def _check_numbers(name: str, column: pd.Series[Any]) -> None:
    present = column.notna()
    for row, value in enumerate(column):
        if present.iloc[row] and not _is_number(value):
            raise DataError(
                f"column {name!r}, row {row + 1} (counted from 1): the value is not a number; correct it, or read the "
                "column as numbers"
            )


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, numbers.Real) and isinstance(float(value), float)
    except OverflowError:  # an integer beyond 1e308
        return False
