"""Streams of rows for online learning: a table replayed in its order, or a folder to which rows keep being added.

A position says how far a stream was read. It is a small JSON value that is kept with what was learned, so a client that
was killed goes on at the same row: none is lost, none counts twice. Reading never waits; there are rows now, or not.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import structlog

from kernfed.arrays import GREATEST, Floats
from kernfed.errors import DataError
from kernfed.federation.messages.data import DataSchema
from kernfed.jobs.client_file import StreamFile
from kernfed.tables.cells import class_name, label_text, read_value
from kernfed.tables.raw_table import Source, locate_columns
from kernfed_client.data.partition_data import PartitionData, partition_source

log = structlog.get_logger(__name__)

Position = Mapping[str, Any]
"""JSON values; empty: the beginning."""

_CHUNK = 1 << 18
_MAX_LINE = 1 << 24
_TEXT_SUFFIXES = frozenset({".csv", ".tsv", ".txt"})
_LINES_SUFFIXES = frozenset({".jsonl", ".ndjson"})
_PARQUET_SUFFIXES = frozenset({".parquet", ".pq"})


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a stream, in the data's units."""

    x: Floats | None
    """Features, (P,), finite; None: this is the target of a row that came before."""
    y: float | None
    """Target, or 0/1 for the class; None: it comes later."""
    key: str | None
    """Key that connects a row with a target that comes later."""
    number: int
    """Which row of a table that is replayed, from 0; -1: of a live stream."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows that were read."""

    rows: tuple[Row, ...]
    position: Position
    """Behind these rows."""
    num_skipped: int
    """Rows between the positions that were left out for a fault."""


class Stream(Protocol):
    """Source of rows."""

    live: bool
    """Whether rows may come after the last one there is now."""
    num_rows: int
    """Rows of a stream that ends; 0 of a live one."""

    def read(self, position: Position, max_rows: int) -> Chunk:
        """At most `max_rows` rows behind a position; none where there are none now."""
        ...

    def ended(self, position: Position) -> bool:
        """Whether there will never be a row behind a position."""
        ...


class TableStream:
    """Rows of a checked table, in their order."""

    live = False

    def __init__(self, table: PartitionData, classes: tuple[str, ...] = ()) -> None:
        self.x = table.x
        self.num_rows = table.num_rows
        if table.y is not None:
            self._y = table.y
        else:
            index = {name: float(i) for i, name in enumerate(classes)}
            self._y = np.array([index[label] for label in table.labels or ()])

    def read(self, position: Position, max_rows: int) -> Chunk:
        """See `Stream.read`."""
        start = int(position.get("row", 0))
        stop = min(start + max_rows, self.num_rows)
        rows = tuple(Row(self.x[i], float(self._y[i]), None, i) for i in range(start, stop))
        return Chunk(rows, {"row": stop}, 0)

    def ended(self, position: Position) -> bool:
        """See `Stream.ended`."""
        return int(position.get("row", 0)) >= self.num_rows


@dataclass
class FolderStream:
    """A folder that grows: files in the order of their names, and lines at the end of the last of them.

    CSV files (each with its header) and JSON lines are read as far as they have whole lines; one that is not the last
    by name is taken to be complete. Parquet files are read once they are whole: write them under a name that begins
    with a dot, then rename them. A file whose name sorts before one that was read already is not read.
    A row with a fault is left out and counted, for a stream cannot be written again.

    Attributes:
        folder: Where the files are.
        file: How to read them.
        schema: What the job expects.
        dataset: Name of the data set, for messages.
        classes: Of a binary task: negative, positive.
    """

    folder: Path
    file: StreamFile
    schema: DataSchema
    dataset: str
    classes: tuple[str, ...] = ()
    live: bool = True
    num_rows: int = 0
    _names: list[str] = field(default_factory=list)
    _headers: dict[str, _Columns] = field(default_factory=dict)
    _table: tuple[str, Any] | None = None
    _told: set[str] = field(default_factory=set)

    def ended(self, position: Position) -> bool:
        """See `Stream.ended`."""
        del position
        return False

    def read(self, position: Position, max_rows: int) -> Chunk:
        """See `Stream.read`.

        Raises:
            DataError: The folder cannot be read, or a file lacks a column of the job.
        """
        rows: list[Row] = []
        skipped = 0
        name, offset = str(position.get("file", "")), int(position.get("offset", 0))
        while len(rows) < max_rows:
            if not name:
                name = self._after("")
                if not name:
                    break
            last = not self._has_after(name)
            found, offset, faults = self._read_file(name, offset, max_rows - len(rows), last=last)
            rows += found
            skipped += faults
            if not found and not faults:
                following = self._after(name)
                if not following:
                    break
                if not last:  # else it is complete only now, and its last line may lack a line break
                    name, offset = following, 0
                    self._headers.clear()
        return Chunk(tuple(rows), {"file": name, "offset": offset} if name else {}, skipped)

    def _list(self) -> None:
        try:
            names = [p.name for p in self.folder.iterdir() if not p.name.startswith(".")]
        except OSError as err:
            raise DataError(
                f"data set {self.dataset}, stream: the folder {self.folder.name} cannot be read ({err.strerror}); "
                f"make it, or correct `path` of [datasets.{self.dataset}.stream] in the client file"
            ) from err
        known = _TEXT_SUFFIXES | _LINES_SUFFIXES | _PARQUET_SUFFIXES
        self._names = sorted(n for n in names if Path(n).suffix.lower() in known)

    def _after(self, name: str) -> str:
        if not any(n > name for n in self._names):
            self._list()
        return next((n for n in self._names if n > name), "")

    def _has_after(self, name: str) -> bool:
        return bool(self._names) and self._names[-1] > name

    def _read_file(self, name: str, offset: int, max_rows: int, *, last: bool) -> tuple[list[Row], int, int]:
        path = self.folder / name
        suffix = path.suffix.lower()
        try:
            if suffix in _PARQUET_SUFFIXES:
                return self._read_parquet(path, offset, max_rows, last=last)
            return self._read_lines(path, offset, max_rows, last=last, json_lines=suffix in _LINES_SUFFIXES)
        except FileNotFoundError:
            self._tell(name, "file of a stream is gone; going on with the next")
            return [], offset, 0

    def _read_lines(
        self, path: Path, offset: int, max_rows: int, *, last: bool, json_lines: bool
    ) -> tuple[list[Row], int, int]:
        rows: list[Row] = []
        skipped = 0
        with path.open("rb") as file:
            columns = self._columns(path.name, file, last=last) if not json_lines else None
            if columns is None and not json_lines:
                return [], offset, 0
            if columns is not None:
                offset = max(offset, columns.start)
            file.seek(offset)
            while len(rows) < max_rows:
                line = file.readline(_MAX_LINE)
                if not line or (last and not line.endswith(b"\n")):
                    break
                offset += len(line)
                text = line.decode(self.file.encoding, errors="replace").strip()
                if not text:
                    continue
                row = self._json_row(text) if columns is None else self._csv_row(text, columns)
                if row is None:
                    skipped += 1
                    self._tell(path.name, "rows of a stream are left out: a value is missing or not a number")
                else:
                    rows.append(row)
        return rows, offset, skipped

    def _columns(self, name: str, file: io.BufferedReader, *, last: bool) -> _Columns | None:
        if (known := self._headers.get(name)) is not None:
            return known
        head = file.readline(_MAX_LINE)
        if not head.endswith(b"\n") and last:
            return None  # the header is still being written
        text = head.decode(self.file.encoding, errors="replace").lstrip("\ufeff")
        try:
            present = [c.strip() for c in next(csv.reader([text], delimiter=self.file.delimiter), [])]
        except csv.Error as err:
            self._source(name).refuse(f"the header cannot be read: {err}; save the file with ordinary line ends")
        columns = self._headers[name] = self._place(name, present, len(head))
        return columns

    def _source(self, name: str) -> Source:
        file = self.file.model_copy(update={"path": self.folder / name})
        return partition_source(file, self.schema, self.dataset, "stream")

    def _place(self, name: str, present: list[str], start: int) -> _Columns:
        source = self._source(name)
        places = locate_columns(source, present, source.columns)
        key = self.file.key
        if key is not None and key not in present:
            source.refuse(f"column {key!r}, the key, is missing; correct {source.key('key')}")
        return _Columns(
            tuple(places[:-1]), places[-1], None if key is None else present.index(key), start, len(present)
        )

    def _csv_row(self, text: str, columns: _Columns) -> Row | None:
        try:
            cells = next(csv.reader([text], delimiter=self.file.delimiter), [])
        except csv.Error:  # a bare carriage return, or a field without end
            return None
        if len(cells) != columns.width:
            return None
        values = [self._number(cells[place]) for place in columns.features]
        key = None if columns.key is None else cells[columns.key].strip() or None
        return self._row(values, self._target(cells[columns.target]), key)

    def _json_row(self, text: str) -> Row | None:
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return self._record_row(record) if isinstance(record, dict) else None

    def _record_row(self, record: Mapping[str, Any]) -> Row | None:
        mapped = self.file.columns
        values = [self._number(record.get(mapped.get(name, name))) for name in self.schema.features]
        target = record.get(mapped.get(self.schema.target, self.schema.target))
        key = record.get(self.file.key) if self.file.key is not None else None
        text = None if key is None else label_text(key) if isinstance(key, str | int | float | bool) else None
        return self._row(values, self._target(target), text)

    def _number(self, cell: object) -> float | None:
        """A cell as a number; None: no value; NaN: not usable."""
        value = read_value(cell, self.file)
        if not isinstance(value, float) or abs(value) > GREATEST:
            return math.nan
        return None if math.isnan(value) else value

    def _target(self, value: object) -> float | None:
        """Target as a number or 0/1; None: not there; NaN: not usable."""
        if value is None:
            return None
        if self.classes:
            text = label_text(value) if isinstance(value, str | int | float | bool) else None
            text = (text or "").strip()
            if not text or text in self.file.missing:
                return None
            name = class_name(text, self.file.labels, self.classes)
            return float(self.classes.index(name)) if name in self.classes else math.nan
        return self._number(value)

    def _row(self, values: list[float | None], y: float | None, key: str | None) -> Row | None:
        if y is not None and not math.isfinite(y):
            return None
        if all(v is None for v in values):
            return Row(None, y, key, -1) if key is not None and y is not None else None
        if any(v is None or not math.isfinite(v) for v in values) or (y is None and key is None):
            return None
        return Row(np.array(values, dtype=np.float64), y, key, -1)

    def _read_parquet(self, path: Path, offset: int, max_rows: int, *, last: bool) -> tuple[list[Row], int, int]:
        records = self._parquet(path, last=last)
        if records is None:
            return [], offset, 0
        rows: list[Row] = []
        skipped = 0
        while offset < len(records) and len(rows) < max_rows:
            row = self._record_row(records[offset])
            offset += 1
            if row is None:
                skipped += 1
                self._tell(path.name, "rows of a stream are left out: a value is missing or not a number")
            else:
                rows.append(row)
        return rows, offset, skipped

    def _parquet(self, path: Path, *, last: bool) -> list[dict[str, Any]] | None:
        if self._table is None or self._table[0] != path.name:
            try:
                with pq.ParquetFile(path) as file:
                    self._place(path.name, file.schema_arrow.names, 0)
                    mapped = self.file.columns
                    wanted = [mapped.get(n, n) for n in (*self.schema.features, self.schema.target)]
                    wanted += [self.file.key] if self.file.key is not None else []
                    self._table = path.name, file.read(columns=wanted).to_pylist()
            except (pa.ArrowException, UnicodeDecodeError, OSError) as err:
                if isinstance(err, FileNotFoundError):
                    raise
                if not last:
                    self._tell(path.name, "Parquet file of a stream is damaged; going on with the next")
                return None  # it is still being written
        assert self._table is not None  # noqa: S101  # made above
        records: list[dict[str, Any]] = self._table[1]
        return records

    def _tell(self, name: str, event: str) -> None:
        if (said := f"{name}: {event}") not in self._told:
            self._told.add(said)
            log.warning(event, dataset=self.dataset, file=name)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Positions of the columns of a CSV file."""

    features: tuple[int, ...]
    target: int
    key: int | None
    start: int
    """Bytes of the header."""
    width: int


def spool_folder(state: Path, dataset: str) -> Path:
    """Folder to which rows that come by socket or standard input are written before they are used."""
    return state / "streams" / dataset
