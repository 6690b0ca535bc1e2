"""Shared parts of all readers of tables: the file and what is wanted of it, the table, and the faults of its cells.

Every fault is told with file, column, row and remedy. The text may cross the wire to an operator, so it never holds the
content of a cell; the names of columns are the most that it tells about a file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn, Protocol

import numpy as np

from kernfed.arrays import GREATEST, Flags, Floats, Integers
from kernfed.errors import DataError
from kernfed.jobs.client_file import PartitionFile
from kernfed.memory import available_bytes
from kernfed.rng import Words

MAX_LISTED = 12
"""Most columns or faults that a message lists."""


_SMALL = 64 << 20
"""Bytes that are not worth a look at the memory."""


class ReadsCells(Protocol):
    """Reads the cells of one column: `kernfed.tables.typed_cells.CellReader`."""

    levels: dict[str, int]
    """Level to its place."""

    def read(self, value: object) -> float | str:
        """The number of a cell, NaN for a gap; or its problem, in words."""
        ...


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
    group: str | None = None
    """Column of the file that names each row's group; None: rows have none."""
    with_records: bool = False
    """Whether whole records are digested, with the columns that are not wanted."""
    readers: Mapping[str, ReadsCells] = field(default_factory=dict)
    """Of the columns that are no plain numbers, by their names in the job."""
    apart: str | None = None
    """Column that deals rows out to clients and is no part of their records; None: there is none."""

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

    def refuse(self, problem: str, *, public: str | None = None) -> NoReturn:
        """Raise a DataError about the file.

        Args:
            problem: In words, with the remedy.
            public: The same without what tells others of the file: lines, and names of columns that are not the job's.
        """
        raise DataError(f"{self.where}: {problem}", public=None if public is None else self.for_others(public))

    def require_room(self, needed: int) -> None:
        """Refuse a file that is larger than the memory once it is unpacked; its size on the disk may be a thousandth.

        Args:
            needed: Bytes that reading it takes at once.
        """
        if needed > _SMALL and needed > (limit := available_bytes() * 9 // 10):
            self.refuse(
                f"takes about {needed / 2**30:.1f} GiB once it is unpacked, and {limit / 2**30:.1f} GiB may be used "
                "here; use fewer rows, or a larger machine"
            )

    def for_others(self, problem: str) -> str:
        """A problem in words for whoever does not sit at this machine."""
        return f"{self.where}: {problem} (this client's log says more)"

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
    records: Words | None = None
    """Of the whole record behind each row, (n,), as of `RecordDigests`; None: they were not asked for."""
    group: Integers | None = None
    """Number of each row's group, (n,), as of `group_words`; None: rows have none."""
    may_lack: Flags | None = None
    """Columns whose gaps a rule of the job fills, (P,); None: there are none."""

    def take(self, rows: Integers) -> RawTable:
        """Some rows, as a file of these alone would have them."""
        return replace(
            self,
            x=self.x[rows],
            y=None if self.y is None else self.y[rows],
            codes=None if self.codes is None else self.codes[rows],
            row_numbers=self.row_numbers[rows],
            records=None if self.records is None else self.records[rows],
            group=None if self.group is None else self.group[rows],
        )

    @property
    def absent_targets(self) -> Flags:
        """Rows whose target has no value, (n,)."""
        if self.y is not None:
            return np.isnan(self.y)
        return np.zeros(len(self.x), dtype=np.bool_) if self.codes is None else self.codes < 0

    @property
    def useless(self) -> Flags:
        """Rows that lack a value of a feature, or have one that is infinite or too large, (n,)."""
        beyond = self._gaps | (np.abs(self.x) > GREATEST)
        found: Flags = np.logical_or.reduce(beyond, axis=1)
        return found

    @property
    def absent(self) -> Flags:
        """Rows that lack a value, (n,)."""
        return self._gaps.any(axis=1) | self.absent_targets

    @property
    def _gaps(self) -> Flags:
        gaps: Flags = np.isnan(self.x)
        return gaps if self.may_lack is None else gaps & ~self.may_lack


@dataclass(frozen=True, slots=True)
class TextTable:
    """All columns of a file as they were written, so that codes such as 007 go out as they came in."""

    names: tuple[str, ...]
    rows: list[list[str]]
    """A cell for each name."""


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

    def add_gaps(self, table: RawTable, remedy: str, columns: Collection[str] | None = None) -> None:
        """Note the values that a table lacks, and no rule fills; in some columns alone where these are named."""
        problem = f"no value; {remedy}"
        for j, name in enumerate(self.source.features):
            filled = table.may_lack is not None and table.may_lack[j]
            if not filled and (columns is None or name in columns):
                self.add_rows(name, table.row_numbers[np.isnan(table.x[:, j])], problem)
        if self.source.target is not None and (columns is None or self.source.target in columns):
            self.add_rows(self.source.target, table.row_numbers[table.absent_targets], problem)

    def raise_if_any(self) -> None:
        """Raise one DataError for everything found, in the order of rows.

        Raises:
            DataError: One line per column and problem.
        """
        if not self._found:
            return
        public = [self.source.for_others(f"column {column!r}: {problem}") for (column, problem), _ in self._sorted()]
        raise DataError("\n".join(self.lines()), public="\n".join(public[:MAX_LISTED]))

    def lines(self) -> list[str]:
        """What was found, a line per column and problem, in the order of rows."""
        lines = []
        for (column, problem), (row, count) in self._sorted():
            more = f" (the first of {count:,} {self.row_word}s)" if count > 1 else ""
            lines.append(f"{self.source.where}: {self.source.shown(column)}, {self.row_word} {row}{more}: {problem}")
        if len(lines) > MAX_LISTED:
            lines[MAX_LISTED:] = [f"{self.source.where}: and {len(lines) - MAX_LISTED} more faults"]
        return lines

    def _sorted(self) -> list[tuple[tuple[str, str], list[int]]]:
        return sorted(self._found.items(), key=lambda item: item[1])
