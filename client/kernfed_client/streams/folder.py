"""A folder to which rows and files keep being added, as a stream."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import structlog

from kernfed.errors import DataError
from kernfed.federation.messages.data import DataSchema
from kernfed.jobs.client_file import StreamFile
from kernfed_client.data.partition_data import partition_source
from kernfed_client.streams.rows import Header, RowReader
from kernfed_client.streams.streams import Chunk, Position, Row

log = structlog.get_logger(__name__)

_MAX_LINE = 1 << 24
_TEXT_SUFFIXES = frozenset({".csv", ".tsv", ".txt"})
_LINES_SUFFIXES = frozenset({".jsonl", ".ndjson"})
_PARQUET_SUFFIXES = frozenset({".parquet", ".pq"})
_LEFT_OUT = "rows of a stream are left out: a value is missing or not a number"


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
    _headers: dict[str, Header] = field(default_factory=dict)
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
        reader = self._reader(path.name)
        with path.open("rb") as file:
            header = self._header(reader, path.name, file, last=last) if not json_lines else None
            if header is None and not json_lines:
                return [], offset, 0
            if header is not None:
                offset = max(offset, header.start)
            file.seek(offset)
            while len(rows) < max_rows:
                line = file.readline(_MAX_LINE)
                if not line or (last and not line.endswith(b"\n")):
                    break
                offset += len(line)
                text = line.decode(self.file.encoding, errors="replace").strip()
                if not text:
                    continue
                row = reader.json_row(text) if header is None else reader.csv_row(text, header)
                if row is None:
                    skipped += 1
                    self._tell(path.name, _LEFT_OUT)
                else:
                    rows.append(row)
        return rows, offset, skipped

    def _reader(self, name: str) -> RowReader:
        file = self.file.model_copy(update={"path": self.folder / name})
        return RowReader(partition_source(file, self.schema, self.dataset, "stream"), file, self.classes)

    def _header(self, reader: RowReader, name: str, file: io.BufferedReader, *, last: bool) -> Header | None:
        if (known := self._headers.get(name)) is not None:
            return known
        head = file.readline(_MAX_LINE)
        if not head.endswith(b"\n") and last:
            return None  # the header is still being written
        cells = reader.cells(head.decode(self.file.encoding, errors="replace").lstrip("\ufeff"))
        if cells is None:
            reader.source.refuse("the header cannot be read; save the file with ordinary line ends")
        header = self._headers[name] = reader.header(cells, len(head))
        return header

    def _read_parquet(self, path: Path, offset: int, max_rows: int, *, last: bool) -> tuple[list[Row], int, int]:
        reader = self._reader(path.name)
        records = self._parquet(reader, path, last=last)
        if records is None:
            return [], offset, 0
        rows: list[Row] = []
        skipped = 0
        while offset < len(records) and len(rows) < max_rows:
            row = reader.record_row(records[offset])
            offset += 1
            if row is None:
                skipped += 1
                self._tell(path.name, _LEFT_OUT)
            else:
                rows.append(row)
        return rows, offset, skipped

    def _parquet(self, reader: RowReader, path: Path, *, last: bool) -> list[dict[str, Any]] | None:
        if self._table is None or self._table[0] != path.name:
            try:
                with pq.ParquetFile(path) as file:
                    reader.header(file.schema_arrow.names, 0)
                    self._table = path.name, file.read(columns=reader.names).to_pylist()
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
