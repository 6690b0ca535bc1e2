"""Shared parts of the readers of CSV, Parquet and NPZ files: the table they fill and the faults they collect.

Every fault is told with file, column, row and remedy. The text may cross the wire to an operator, so it never holds the
content of a cell; the names of columns are the most that it tells about a file.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from kernfed.arrays import GREATEST, Floats, Integers
from kernfed.errors import DataError
from kernfed.jobs.client_file import PartitionFile

Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

MAX_LISTED = 12
"""Most columns or faults that a message lists."""


def _no_setting(name: str) -> None:
    del name


@dataclass(frozen=True, slots=True)
class Source:
    """A file, the columns that are wanted of it, and the words of messages about it."""

    file: PartitionFile
    where: str
    """Beginning of messages."""
    features: tuple[str, ...]
    target: str | None = None
    """None: none is wanted."""
    has_labels: bool = False
    """Whether the target is a class and not a number."""
    setting: Callable[[str], str | None] = _no_setting
    """What the reader of a message calls a setting of the file; None where it cannot be set."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Features, then the target where one is wanted."""
        return self.features if self.target is None else (*self.features, self.target)

    def key(self, name: str) -> str:
        """Name a setting of this file as the reader of a message finds it."""
        return self.setting(name) or f"`{name}`"

    def remedy(self, plain: str, by_setting: str, name: str) -> str:
        """A remedy, and behind it another by a setting, `{}` in its text, where that can be set."""
        key = self.setting(name)
        return plain if key is None else plain + by_setting.format(key)

    @property
    def not_finite(self) -> str:
        """Problem of a cell that is infinite or not a number."""
        return f"infinite or not a number; {self.remedy('correct it', ' or leave the cell empty', 'missing')}"

    def refuse(self, problem: str) -> NoReturn:
        """Raise a DataError about the file."""
        raise DataError(f"{self.where}: {problem}")

    def in_file(self, column: str) -> str:
        """Name in the file of a column of the job."""
        return self.file.columns.get(column, column)

    def shown(self, column: str) -> str:
        """Name of a column for messages: the job's, and the file's where it differs."""
        name = self.in_file(column)
        return f"column {column!r}" + (f" ({name!r} in the file)" if name != column else "")


@dataclass(frozen=True, slots=True)
class RawTable:
    """The columns that a job uses, as read. n rows, P feature columns."""

    x: Floats
    """Features, (n, P); NaN: no value."""
    y: Floats | None
    """Numeric target, (n,); NaN: no value. None where the target is a class, or not wanted."""
    codes: Integers | None
    """Class of each row as an index into `names`, (n,); -1: no value."""
    names: tuple[str, ...]
    row_numbers: Integers
    """Position of each row in the file, (n,), from 1: lines for CSV."""
    row_word: str
    """`line` or `row`."""

    @property
    def absent_targets(self) -> Flags:
        """Rows whose target has no value, (n,)."""
        if self.y is not None:
            return np.isnan(self.y)
        return np.zeros(len(self.x), dtype=np.bool_) if self.codes is None else self.codes < 0

    @property
    def absent(self) -> Flags:
        """Rows that lack a value, (n,)."""
        return np.isnan(self.x).any(axis=1) | self.absent_targets


@dataclass(slots=True)
class Faults:
    """Faults found in cells, gathered so that one reading of a file tells all of them."""

    source: Source
    row_word: str
    _found: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def add(self, column: str, row: int, problem: str, count: int = 1) -> None:
        """Note `count` cells of a column with the same problem, the first of them in `row`."""
        seen = self._found.setdefault((column, problem), [row, 0])
        seen[0] = min(seen[0], row)
        seen[1] += count

    def add_rows(self, column: str, rows: Integers, problem: str) -> None:
        """Note one faulty cell in each of `rows`; none where `rows` is empty."""
        if rows.size:
            self.add(column, int(rows.min()), problem, int(rows.size))

    def add_infinite(self, table: RawTable) -> None:
        """Note the values of a table that are infinite, or too large to be used."""
        columns = [(name, table.x[:, j]) for j, name in enumerate(self.source.features)]
        if table.y is not None and self.source.target is not None:
            columns.append((self.source.target, table.y))
        for name, values in columns:
            infinite = np.isinf(values)
            self.add_rows(name, table.row_numbers[infinite], self.source.not_finite)
            beyond = table.row_numbers[(np.abs(values) > GREATEST) & ~infinite]
            self.add_rows(name, beyond, f"a number beyond {GREATEST:g}; correct it, or divide the column everywhere")

    def add_gaps(self, table: RawTable, remedy: str) -> None:
        """Note the values that a table lacks."""
        problem = f"no value; {remedy}"
        for j, name in enumerate(self.source.features):
            self.add_rows(name, table.row_numbers[np.isnan(table.x[:, j])], problem)
        if self.source.target is not None:
            self.add_rows(self.source.target, table.row_numbers[table.absent_targets], problem)

    def raise_if_any(self) -> None:
        """Raise one DataError for everything found, in the order of rows.

        Raises:
            DataError: One line per column and problem.
        """
        if not self._found:
            return
        lines = []
        for (column, problem), (row, count) in sorted(self._found.items(), key=lambda item: item[1]):
            more = f" (the first of {count:,} {self.row_word}s)" if count > 1 else ""
            lines.append(f"{self.source.where}: {self.source.shown(column)}, {self.row_word} {row}{more}: {problem}")
        if len(lines) > MAX_LISTED:
            lines[MAX_LISTED:] = [f"{self.source.where}: and {len(lines) - MAX_LISTED} more faults"]
        raise DataError("\n".join(lines))


def locate_columns(source: Source, present: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Find the job's columns among those of a file; order does not matter and other columns are ignored.

    Args:
        source: The file; its `columns` mapping gives the names used in it.
        present: Names in the file, in order.
        wanted: Names in the job.

    Returns:
        For each wanted column its place in `present`.

    Raises:
        DataError: A column is missing, stands twice in the file, or two of the job's columns read the same one.
    """
    places: dict[str, list[int]] = {}
    for i, name in enumerate(present):
        places.setdefault(name, []).append(i)
    found: list[int] = []
    problems: list[str] = []
    takers: dict[str, str] = {}
    for column in wanted:
        name = source.in_file(column)
        at = places.get(name, [])
        if name in takers:
            problems.append(
                f"columns {takers[name]!r} and {column!r} of the job are both read from {name!r}; "
                f"correct {source.key('columns')}"
            )
        elif not at:
            close = difflib.get_close_matches(name.casefold(), [p.casefold() for p in places], n=1, cutoff=0.7)
            near = [p for p in places if close and p.casefold() == close[0]]
            hint = f"; did you mean {near[0]!r}?" if near else ""
            problems.append(f"{source.shown(column)} is missing{hint}")
        elif len(at) > 1:
            problems.append(f"{source.shown(column)} stands {len(at)} times; rename or remove all but one")
        takers.setdefault(name, column)
        found.extend(at[:1])
    if problems:
        if any("is missing" in p for p in problems):
            problems.append(_listing(source, present, bool(found)))
        source.refuse(f"\n{source.where}: ".join(problems))
    return found


def _listing(source: Source, present: Sequence[str], some_found: bool) -> str:
    # Without a header the "names" are the cells of the first row, which must not leave the site.
    if not some_found or any(_is_number(name) for name in present):
        return (
            f"the file has {len(present)} columns, but what stands in place of their names does not look like names; "
            "the first line must name the columns"
            if source.file.format != "npz"
            else f"x has {len(present)} columns; "
            + source.remedy("name them in an array `columns`", ", or in {}", "x_columns")
        )
    listed = ", ".join(present[:MAX_LISTED])
    more = f" and {len(present) - MAX_LISTED} more" if len(present) > MAX_LISTED else ""
    remedy = source.remedy("rename there", ", or say which is which in {}", "columns")
    return f"the file has the columns {listed}{more}; {remedy}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
