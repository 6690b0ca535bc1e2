"""The meaning of a cell, the same for files of text, typed files and streams: a number, a class label, or no value.

A number is written as Python writes one, in ASCII: a sign, digits, a point, an exponent. `1_000`, digits of other
scripts and no-break spaces are text. `true` and `false`, in any case, are 1 and 0, as booleans are. An integer beyond
2^53 is refused, for a float cannot tell it from its neighbours: such columns hold names of things. NaN and null are no
value, and so is whatever equals a token of `missing`, as text or as a number.
"""

from __future__ import annotations

import enum
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from kernfed.arrays import Floats, Integers
from kernfed.jobs.client_file import PartitionFile
from kernfed.tables.raw_table import Faults, Source

EXACT = 2**53
"""Greatest integer up to which every integer is a float64."""

_INTEGER = re.compile(r"[+-]?[0-9]+")
_COMMA = re.compile(r"[+-]?[0-9][0-9.]*(,[0-9.]+)+")
_TRUTH = {"true": 1.0, "false": 0.0}


class Misread(enum.Enum):
    """Why a cell is not a number."""

    TEXT = "text where a number is needed"
    COMMA = "a comma in a number; write a decimal point, and nothing between thousands, or say how it is written"
    NAN = "nan"
    INTEGER = "an integer beyond 2^53, which would be rounded; leave the column out, or write a number with an exponent"


def plain_numbers(cells: Sequence[str]) -> list[float] | None:
    """All cells as numbers; None where one of them is not plainly one, and has to be looked at by itself."""
    try:
        values = [float(cell) for cell in cells]
    except ValueError:
        return None
    # float() also takes "nan", 1_000, digits of other scripts, and integers that it rounds.
    text = "".join(cells)
    odd = any(v != v or abs(v) >= EXACT for v in values)
    return None if odd or "_" in text or not text.isascii() else values


def number(cell: str) -> float | None:
    """A cell as a number, infinite ones included; None where it is not plainly one."""
    value = _read_text(cell)
    return value if isinstance(value, float) else None


def _read_text(cell: str) -> float | Misread:
    text = cell.strip(" \t\r\n\f\v")
    if text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    if _INTEGER.fullmatch(text):
        return float(text) if len(text) < 16 or (len(text) < 400 and abs(int(text)) <= EXACT) else Misread.INTEGER
    if not text.isascii() or "_" in text:
        return Misread.TEXT
    try:
        value = float(text)
    except ValueError:
        return Misread.COMMA if _COMMA.fullmatch(text) else Misread.TEXT
    return Misread.NAN if value != value else value


def read_value(value: object, file: PartitionFile) -> float | Misread:
    """A cell of text, JSON or a typed column as a number; NaN: no value.

    Args:
        value: None: no value.
        file: Says which tokens mean that there is none.
    """
    found: float | Misread
    if value is None:
        return math.nan
    if isinstance(value, str):
        if value in file.missing or value.strip() in file.missing:
            return math.nan
        found = _read_text(value)
    elif isinstance(value, bool):
        found = float(value)
    elif isinstance(value, int):
        found = float(value) if abs(value) <= EXACT else Misread.INTEGER
    elif isinstance(value, Decimal):
        whole = value.is_finite() and value == value.to_integral_value()
        found = Misread.INTEGER if whole and abs(value) > EXACT else float(value)
    elif isinstance(value, float):
        found = value
    else:
        found = Misread.TEXT
    return math.nan if isinstance(found, float) and found in missing_numbers(file) else found


def missing_numbers(file: PartitionFile) -> frozenset[float]:
    """The numbers among the tokens that mean that there is no value, e.g. -999."""
    return frozenset(value for token in file.missing if (value := number(token)) is not None)


def blank_missing(values: Floats, file: PartitionFile) -> Floats:
    """Values with NaN in place of the numbers that mean that there is none; the same array where there are none."""
    tokens = missing_numbers(file)
    return np.where(np.isin(values, sorted(tokens)), np.nan, values) if tokens else values


def read_numbers(values: Any, source: Source, faults: Faults, column: str) -> Floats:
    """A typed column of booleans, integers or floats, (n,), as numbers; integers beyond 2^53 are noted as faults."""
    if values.dtype.kind in "iu":
        beyond = (values > EXACT) | (values < -EXACT if values.dtype.kind == "i" else False)
        faults.add_rows(column, np.flatnonzero(beyond) + 1, Misread.INTEGER.value)
    with np.errstate(over="ignore"):
        return blank_missing(values.astype(np.float64), source.file)


def read_number(cell: object, source: Source, faults: Faults, column: str, row: int, count: int = 1) -> float:
    """A cell as a number; NaN: no value, or a fault that is noted, for `count` cells that hold the same."""
    if (reader := source.readers.get(column)) is not None:
        found = reader.read(cell)
        if isinstance(found, float):
            return found
        faults.add(column, row, found, count)
        return math.nan
    value = read_value(cell, source.file)
    if isinstance(value, float):
        return value
    problems = {Misread.NAN: source.not_finite, Misread.TEXT: _text_problem(source, column)}
    faults.add(column, row, problems.get(value, value.value), count)
    return math.nan


def read_distinct(
    values: Sequence[object], codes: Integers, source: Source, faults: Faults, column: str, first: int = 1
) -> Floats:
    """A column as numbers, (n,), of which each different cell is read once; faults are noted.

    Args:
        values: Different cells.
        codes: For each row an index into `values`, (n,); negative: no value.
        source: The file.
        faults: Takes the rows of cells that are no numbers.
        column: Name in the job.
        first: Number of the first row.
    """
    table = np.full(len(values) + 1, np.nan)
    rows, counts = np.full(len(values) + 1, -1), np.bincount(codes + 1, minlength=len(values) + 1)
    rows[codes[::-1]] = np.arange(len(codes))[::-1]  # the first row that holds each
    for i, value in enumerate([*values, None]):
        if rows[i] >= 0:
            table[i] = read_number(
                value, source, faults, column, int(rows[i]) + first, int(counts[(i + 1) % len(table)])
            )
    return table[codes]


def _text_problem(source: Source, column: str) -> str:
    remedy = "correct it"
    if source.file.value_in_effect("format") == "csv":
        remedy = source.remedy(remedy, ", or, if it means that there is no value, add it to {}", "missing")
    if column in source.features:
        words = "; if the column holds words, leave it out of the features, or write a number for each word"
        remedy = source.remedy(remedy, words, "missing")
    return f"{Misread.TEXT.value}; {remedy}"


def label_text(value: str | float | bool | None) -> str | None:
    """Text of a class label: 7 and 7.0 are `7`, True and the text `True` are `true`, NaN is None (no value)."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.lower() if value.strip() in ("True", "False") else value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return None
    return str(int(value)) if value.is_integer() else repr(value)


def read_label(value: object, missing: Sequence[str]) -> str | None:
    """A cell of text, JSON or a typed column as a class label, without blanks around it; None: no value.

    Args:
        value: None: no value; neither is what cannot name a class, e.g. a list.
        missing: Tokens that mean that there is no value.
    """
    text = label_text(value) if isinstance(value, str | float | bool | int) else None
    label = (text or "").strip()
    return label if label and text not in missing and label not in missing else None


def bare_label(label: str) -> str:
    """A label without what spellings of one name differ by: case, blanks, width, decimals of a whole number."""
    bare = " ".join(unicodedata.normalize("NFKC", label).casefold().split())
    return re.sub(r"^([+-]?\d+)\.0*$", r"\1", bare).removeprefix("+")


def class_name(label: str, labels: Mapping[str, str], classes: Sequence[str]) -> str:
    """The job's class of a label.

    Args:
        label: As `label_text` gives it.
        labels: Labels of the file, each with the class of the job.
        classes: Of the job; empty: it names none. A job, and `labels`, may write booleans as Python does.
    """
    python = label.capitalize() if label in _TRUTH else label
    found = labels.get(label, labels.get(python, label))
    return found.capitalize() if found in _TRUTH and found not in classes and found.capitalize() in classes else found


def merge_labels(
    values: Sequence[str | float | bool | None], codes: Integers, missing: Sequence[str] = ()
) -> tuple[Integers, tuple[str, ...]]:
    """Strip the distinct labels of a column, and give labels that are then equal one code.

    Args:
        values: Distinct values as read; None, blank, or a token of `missing`: no value.
        codes: For each row an index into `values`, (n,); negative: no value.
        missing: Tokens that mean that there is no value.

    Returns:
        Codes (n,), -1 for no value, and the distinct labels that they index, sorted.
    """
    labels = [read_label(value, missing) for value in values]
    names = tuple(sorted({label for label in labels if label is not None}))
    index: dict[str | None, int] = {name: i for i, name in enumerate(names)}
    table = np.array([*(index.get(label, -1) for label in labels), -1], dtype=np.int64)
    return table[np.where(codes < 0, len(labels), codes)], names
