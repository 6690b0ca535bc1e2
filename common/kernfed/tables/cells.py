"""The meaning of a cell, the same for files of text and for typed ones: a number, a class label, or no value."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kernfed.arrays import Integers
from kernfed.tables.raw_table import Faults, Source


def plain_numbers(cells: Sequence[str]) -> list[float] | None:
    """All cells as numbers; None where one of them is not plainly a number."""
    try:
        values = [float(cell) for cell in cells]
    except ValueError:
        return None
    # float() also takes "nan", 1_000 and the digits of other scripts.
    text = "".join(cells)
    return None if any(v != v for v in values) or "_" in text or not text.isascii() else values


def number(cell: str) -> float | None:
    """A cell as a number, infinite ones included; None where it is not plainly one."""
    values = plain_numbers([cell.strip()])
    return values[0] if values else None


def read_number(cell: str, source: Source, faults: Faults, column: str, row: int) -> float:
    """A cell as a number; NaN: no value, or a fault that is noted."""
    if cell in source.file.missing or cell.strip() in source.file.missing:
        return float("nan")
    value = number(cell)
    if value is None:
        nan = cell.strip().lower().lstrip("+-") == "nan"
        faults.add(column, row, source.not_finite if nan else _text_problem(source))
        return float("nan")
    return value


def _text_problem(source: Source) -> str:
    remedy = "correct it"
    if source.file.value_in_effect("format") == "csv":
        remedy = source.remedy(remedy, ", or, if it means that there is no value, add it to {}", "missing")
    return f"text where a number is needed; {remedy}"


def means_none(value: str | float, missing: Sequence[str]) -> bool:
    """Whether a value that is stored as such stands for no value: as text, or as the number that a token writes."""
    if isinstance(value, str):
        return value in missing or value.strip() in missing
    return any(number(token) == value for token in missing)


def label_text(value: str | float | bool | None) -> str | None:
    """Text of a class label that is stored as a value: 7 and 7.0 are `7`, True is `true`, NaN is None (no value)."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return None
    return str(int(value)) if value.is_integer() else repr(value)


def merge_labels(values: Sequence[str | None], codes: Integers) -> tuple[Integers, tuple[str, ...]]:
    """Strip the distinct labels of a column, and give labels that are then equal one code.

    Args:
        values: Distinct values as read; None or blank: no value.
        codes: For each row an index into `values`, (n,); negative: no value.

    Returns:
        Codes (n,), -1 for no value, and the distinct labels that they index, sorted.
    """
    stripped = [(value or "").strip() for value in values]
    names = tuple(sorted({s for s in stripped if s}))
    index = {name: i for i, name in enumerate(names)}
    table = np.array([*(index.get(s, -1) for s in stripped), -1], dtype=np.int64)
    return table[np.where(codes < 0, len(stripped), codes)], names
