"""Records and lines of a stream into rows: the meaning of cells is that of files, a row with a fault is no row."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernfed.arrays import GREATEST
from kernfed.columns.expand import expand
from kernfed.columns.plan import ColumnPlan
from kernfed.jobs.client_file import StreamFile
from kernfed.tables.cells import class_name, number, read_label, read_value
from kernfed.tables.columns import locate_header, locate_own
from kernfed.tables.raw_table import Source
from kernfed_client.streams.faults import RowFault
from kernfed_client.streams.streams import Row


@dataclass(frozen=True, slots=True)
class Header:
    """Places of the columns of a CSV file."""

    features: tuple[int, ...]
    target: int
    key: int | None
    start: int
    """Bytes of the header."""
    width: int
    """Cells of a line."""


class RowReader:
    """Reads the rows of one file of a stream."""

    def __init__(
        self, source: Source, file: StreamFile, classes: tuple[str, ...], plans: Sequence[ColumnPlan] = ()
    ) -> None:
        """Begin.

        Args:
            source: The file, and the columns of the job.
            file: How the client file says that rows are written.
            classes: Of a binary task: negative, positive; empty for numbers.
            plans: What becomes of the columns.
        """
        self.source, self._file, self._classes, self._plans = source, file, classes, plans
        self.names = [source.in_file(column) for column in source.columns]
        """In the file, of the features and the target, and of the key where there is one."""
        if file.key is not None:
            self.names.append(file.key)
        self._tells_headers = any(number(name) is None for name in self.names[: len(source.features)])

    def header(self, cells: Sequence[str], num_bytes: int) -> Header:
        """Place the columns below a line that names them.

        Raises:
            DataError: A column is missing, or stands twice.
        """
        places = locate_header(self.source, cells)
        key = self._file.key
        at = None if key is None else locate_own(self.source, [c.strip() for c in cells], key, "key", "key")
        return Header(tuple(places[:-1]), places[-1], at, num_bytes, len(cells))

    def line(self, raw: bytes, *, of_cells: bool) -> str:
        """A line as text; empty: it is none. Blanks at its ends are of its cells, where it has cells, as in files."""
        return raw.decode(self._file.encoding, errors="replace").strip("\r\n" if of_cells else " \t\r\n\f\v")

    def cells(self, text: str) -> list[str] | None:
        """The cells of a line; None where it is none, e.g. for a field without end."""
        try:
            return next(csv.reader([text], delimiter=self._file.delimiter), [])
        except csv.Error:
            return None

    def names_again(self, text: str) -> list[str] | None:
        """The cells of a line that is no row, but names the columns again, in any order; None: it does not.

        It may begin with a mark of the order of bytes, as files do that were put together; no row does. Where all
        features are called by numbers, no line can be told from a row.
        """
        cells = self.cells(text.removeprefix("\ufeff")) if self._tells_headers else None
        names = [cell.strip() for cell in cells or ()]
        return cells if all(names.count(name) == 1 for name in self.names) else None

    def csv_row(self, cells: Sequence[str] | None, header: Header) -> Row | RowFault:
        """A line of a CSV file, as cells, or its fault."""
        if cells is None:
            return RowFault.TEXT
        if len(cells) != header.width:
            return RowFault.WIDTH
        key = None if header.key is None else read_label(cells[header.key], ())
        return self._row([cells[place] for place in header.features], cells[header.target], key)

    def json_row(self, text: str) -> Row | RowFault:
        """A line with a JSON object, or its fault."""
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            return RowFault.TEXT
        return self.record_row(record) if isinstance(record, dict) else RowFault.TEXT

    def record_row(self, record: Mapping[str, Any]) -> Row | RowFault:
        """A record by names of the file, or its fault."""
        num_features = len(self.source.features)
        values = [record.get(name) for name in self.names]
        key = None if self._file.key is None else read_label(values[-1], ())
        return self._row(values[:num_features], values[num_features], key)

    def _row(self, cells: Sequence[object], target: object, key: str | None) -> Row | RowFault:
        names = self.source.features
        values = [self._number(cell, name) for cell, name in zip(cells, names, strict=True)]
        y = self._target(target)
        if y is not None and not math.isfinite(y):
            return RowFault.TEXT
        if all(v is None for v in values):
            return Row(None, y, key, -1) if key is not None and y is not None else RowFault.GAP
        if any(v is not None and not math.isfinite(v) for v in values):
            return RowFault.TEXT
        x = expand(self._plans, np.array([values], dtype=np.float64))[0]
        if np.isnan(x).any() or (y is None and key is None):
            return RowFault.GAP
        return Row(x, y, key, -1)

    def _number(self, cell: object, name: str) -> float | None:
        """A cell as a number; None: no value; NaN: not usable."""
        reader = self.source.readers.get(name)
        value = read_value(cell, self._file) if reader is None else reader.read(cell)
        if not isinstance(value, float) or abs(value) > GREATEST:
            return math.nan
        return None if math.isnan(value) else value

    def _target(self, cell: object) -> float | None:
        """Target as a number or 0/1; None: not there; NaN: not usable."""
        if not self._classes:
            return self._number(cell, self.source.target or "")
        label = read_label(cell, self._file.missing)
        if label is None:
            return None
        name = class_name(label, self._file.labels, self._classes)
        return float(self._classes.index(name)) if name in self._classes else math.nan
