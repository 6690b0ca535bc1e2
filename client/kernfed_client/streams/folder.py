"""A folder to which rows and files keep being added, as a stream."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import structlog

from kernfed.errors import DataError
from kernfed.federation.messages.data import DataSchema
from kernfed.jobs.client_file import StreamFile
from kernfed_client.data.guards.row_marks import RECENT, RowMarks, mark_at
from kernfed_client.data.reading.partition_data import partition_source
from kernfed_client.streams.faults import MEANING, FileChange, RowFault
from kernfed_client.streams.notices import NOTICES
from kernfed_client.streams.place import (
    Finished,
    Inode,
    Place,
    inode_of,
    mark_in,
    mark_of,
    moved,
    open_file,
    rotated_after,
)
from kernfed_client.streams.rows import Header, RowReader
from kernfed_client.streams.streams import Chunk, Position, Row

log = structlog.get_logger(__name__)

_MAX_LINE = 1 << 24
_KEPT_FINISHED = 16
"""Renamed files that a position remembers."""
_TEXT_SUFFIXES = frozenset({".csv", ".tsv", ".txt"})
_LINES_SUFFIXES = frozenset({".jsonl", ".ndjson"})
_PARQUET_SUFFIXES = frozenset({".parquet", ".pq"})


@dataclass
class _Read:
    """Rows of one call, and what was met."""

    rows: list[Row] = field(default_factory=list)
    faults: Counter[RowFault] = field(default_factory=Counter)
    changes: Counter[FileChange] = field(default_factory=Counter)
    lost: list[int] = field(default_factory=list)

    @property
    def seen(self) -> int:
        return len(self.rows) + self.faults.total() + self.changes.total()


@dataclass
class FolderStream:
    """A folder that grows: files in the order of their names, and lines at the end of the last of them.

    CSV files (each with its header) and JSON lines are read as far as they have whole lines; one that is not the last
    by name is taken to be complete. Parquet files are read once they are whole: write them under a name that begins
    with a dot, then rename them. A file whose name sorts before one that was read already is not read.
    A file that was renamed or copied within the folder is read to its end before the one that has its name now; a file
    that shrank, or became another, is read from its beginning. A row with a fault is left out and counted, for a stream
    cannot be written again.

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
    marked: bool = True
    num_rows: int = 0
    _names: list[str] = field(default_factory=list)
    _hidden: tuple[tuple[Finished, ...], frozenset[str]] = ((), frozenset())
    """Files with the names of streams that were read to their end under another name."""
    _header: tuple[Inode | None, int, Header] | None = None
    _table: tuple[Inode | None, int, Any] | None = None
    _marks: tuple[Inode | None, int, RowMarks] | None = None
    """Behind which offset of a file, and the lines before it."""
    _moved: Path | None = None
    """Where the file of the place was found last."""
    _told: set[str] = field(default_factory=set)

    def ended(self, position: Position) -> bool:
        """See `Stream.ended`."""
        del position
        return False

    def read(self, position: Position, max_rows: int) -> Chunk:
        """See `Stream.read`.

        Raises:
            DataError: The folder or a file cannot be read, or a file lacks a column of the job.
        """
        read = _Read()
        place = Place.of(position)
        while len(read.rows) < max_rows:
            if not place.file:
                name = self._after("", place, look=True)
                if not name:
                    break
                place = self._begin(name, place)
            before = read.seen
            path, place = self._resolve(place, read)
            following = self._following(place, path, look=False)
            if path is not None:
                done = self._read_file(path, place, max_rows, read, last=not following)
                if done is None:  # it was renamed or removed just now
                    continue
                place = done
            if read.seen == before:
                if not following:
                    if not self._following(place, path, look=True):
                        break
                    continue  # it is complete only now, and its last line may lack a line break
                place = self._next(place, path, following, read)
        NOTICES.read(self.folder, len(read.rows))
        waits = bool(NOTICES.waits(self.folder))
        return Chunk(tuple(read.rows), place.position(), dict(read.faults), dict(read.changes), waits, tuple(read.lost))

    def leave_out(self, fault: RowFault, where: str) -> None:
        """See `Stream.leave_out`."""
        if NOTICES.left_out(self.folder, fault, where):
            log.warning("rows of a stream are left out", why=MEANING[fault], dataset=self.dataset, first=where)

    def _begin(self, name: str, place: Place) -> Place:
        self._header = self._moved = None
        return Place(name, inode=inode_of(self.folder / name), finished=place.finished)

    def _resolve(self, place: Place, read: _Read) -> tuple[Path | None, Place]:
        """Where the file of a place is now; None: it is gone, and no other has its name."""
        path = self.folder / place.file
        if place.inode is None:
            return self._adopt(path, place, read)
        if place.is_in(path, same_inode=True):
            return path, place
        if self._moved is not None and place.is_in(self._moved, same_inode=True):
            return self._moved, place
        found = moved(self.folder, place)
        if found is not None and inode_of(found) != place.inode and place.is_in(path, same_inode=False):
            found = None
        if found is not None:
            self._tell(place.file, f"a file of a stream is now called {found.name}, and read to its end first")
            self._moved = found
            return found, replace(place, inode=inode_of(found))
        inode = inode_of(path)
        if inode is None:
            self._tell(place.file, "file of a stream is gone; going on with the next")
            return None, place
        if place.is_in(path, same_inode=False):  # written anew with the same rows, e.g. by a copy from elsewhere
            return path, replace(place, inode=inode)
        return path, self._replaced(place, read)

    def _adopt(self, path: Path, place: Place, read: _Read) -> tuple[Path | None, Place]:
        """The file of a place that an earlier release kept, which knew name and offset alone."""
        inode = inode_of(path)
        if inode is None:
            self._tell(place.file, "file of a stream is gone; going on with the next")
            return None, place
        size = path.stat().st_size
        known = size if _is_parquet(place.file) else place.offset
        if size < known:
            return path, self._replaced(place, read)
        return path, replace(place, inode=inode, size=known, mark=mark_of(path, known))

    def _replaced(self, place: Place, read: _Read) -> Place:
        if place.offset:
            read.changes[FileChange.REPLACED] += 1
            log.warning(
                "a file of a stream was cut off or replaced, and the former one is not in the folder: it is read from "
                "its beginning; rows at the end of the former one may be missing",
                dataset=self.dataset,
                file=place.file,
            )
        self._told.clear()
        return self._begin(place.file, place)

    def _following(self, place: Place, path: Path | None, *, look: bool) -> str:
        """The file that comes after the one of a place; empty: none yet, so that this one may grow."""
        if path is None or path.name == place.file:
            return self._after(place.file, place, look=look)
        try:
            # Before its first byte, whoever writes may still hold the former file open.
            begun = (self.folder / place.file).stat().st_size > 0
        except OSError:
            begun = False
        return place.file if begun else self._after(place.file, place, look=look, but=path.name)

    def _next(self, place: Place, path: Path | None, following: str, read: _Read) -> Place:
        """The beginning of the next file; `path` is complete, and read."""
        if path is None or path.name == place.file or place.inode is None:
            return self._begin(following, place)
        read.changes[FileChange.ROTATED] += 1
        log.info("a file of a stream was rotated", dataset=self.dataset, file=place.file, now=path.name)
        finished = (*place.finished, Finished(place.inode, place.size, place.mark))[-_KEPT_FINISHED:]
        between = rotated_after(self.folder, place, path)
        place = self._begin(following if between is None else place.file, replace(place, finished=finished))
        if between is not None:
            self._moved = between
            place = replace(place, inode=inode_of(between))
        self._told.clear()
        return place

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
        self._hidden = (), frozenset()

    def _after(self, name: str, place: Place, *, look: bool, but: str = "") -> str:
        """The next file by name; `look`: into the folder, where none is known."""
        for again in (False, True):
            if again:
                if not look:
                    break
                self._list()
            if self._hidden[0] != place.finished:
                hidden = (n for n in self._names if any(f.is_in(self.folder / n) for f in place.finished))
                self._hidden = place.finished, frozenset(hidden)
            found = next((n for n in self._names if n > name and n != but and n not in self._hidden[1]), "")
            if found:
                return found
        return ""

    def _read_file(self, path: Path, place: Place, max_rows: int, read: _Read, *, last: bool) -> Place | None:
        """The place behind what was read; None: the file has no longer this name."""
        try:
            if _is_parquet(place.file):
                return self._read_parquet(path, place, max_rows, read, last=last)
            return self._read_lines(path, place, max_rows, read, last=last)
        except FileNotFoundError:
            return None
        except OSError as err:
            why = err.strerror or "input/output error"
            raise DataError(
                f"data set {self.dataset}, stream: {path.name} cannot be read ({why}); let the client's user read it, "
                "or move it out of the folder",
                public=f"data set {self.dataset}: a file of its stream cannot be read; the client's log says which",
            ) from err

    def _read_lines(self, path: Path, place: Place, max_rows: int, read: _Read, *, last: bool) -> Place:
        reader = self._reader(place.file)
        with open_file(path) as file:
            header = None
            if Path(place.file).suffix.lower() not in _LINES_SUFFIXES:
                header = self._header_at(reader, file, place, last=last)
                if header is None:
                    return place
            offset, line, header_at = place.offset, place.line, place.header
            if line < 0:
                line = _count_lines(file, offset)
            if header is not None and not offset:
                offset, line = header.start, 1
            marks = self._marks_at(file, place.inode, offset)
            file.seek(offset)
            while len(read.rows) < max_rows:
                raw = file.readline(_MAX_LINE)
                if not raw or (last and not raw.endswith(b"\n")):
                    break
                offset, line = offset + len(raw), line + 1
                text = reader.line(raw, of_cells=header is not None)
                if not text:
                    continue
                mark = marks.add(raw)
                cells = None if header is None else reader.cells(text)
                row = reader.json_row(text) if header is None else reader.csv_row(cells, header)
                if not isinstance(row, RowFault):
                    where = "" if row.key is None else f"{path.name}, line {line}"
                    read.rows.append(replace(row, where=where, mark=mark))
                elif header is not None and (names := reader.names_again(text)) is not None:
                    header_at, former = offset - len(raw), header
                    header = reader.header(names, len(raw))
                    self._header = place.inode, header_at, header
                    log.info("a line of a stream names the columns again", file=path.name, line=line)
                    if replace(former, start=0) != replace(header, start=0):
                        read.changes[FileChange.HEADER] += 1
                else:
                    read.faults[row] += 1
                    read.lost.append(mark)
                    self.leave_out(row, f"{path.name}, line {line}")
            if offset == place.offset:
                return place
            self._marks = place.inode, offset, marks
            return replace(place, offset=offset, line=line, header=header_at, size=offset, mark=mark_in(file, offset))

    def _marks_at(self, file: BinaryIO, inode: Inode | None, offset: int) -> RowMarks:
        """What marks the lines behind a place."""
        if self._marks is not None and self._marks[:2] == (inode, offset):
            return self._marks[2].copy()
        marks = RowMarks()
        for line in _last_lines(file, offset):
            marks.add(line)
        return marks

    def _reader(self, name: str) -> RowReader:
        file = self.file.model_copy(update={"path": self.folder / name})
        source = partition_source(file, self.schema, self.dataset, "stream")
        return RowReader(source, file, self.classes, self.schema.columns)

    def _header_at(self, reader: RowReader, file: BinaryIO, place: Place, *, last: bool) -> Header | None:
        """The header that holds at a place; None: it is still being written."""
        if self._header is not None and self._header[:2] == (place.inode, place.header):
            return self._header[2]
        file.seek(place.header)
        head = file.readline(_MAX_LINE)
        if not head.endswith(b"\n") and last:
            return None
        cells = reader.cells(head.decode(self.file.encoding, errors="replace").removeprefix("\ufeff"))
        if cells is None:
            reader.source.refuse("the header cannot be read; save the file with ordinary line ends")
        header = reader.header(cells, len(head))
        self._header = place.inode, place.header, header
        return header

    def _read_parquet(self, path: Path, place: Place, max_rows: int, read: _Read, *, last: bool) -> Place:
        reader = self._reader(place.file)
        size = path.stat().st_size
        records = self._parquet(reader, path, place, size, last=last)
        offset = place.offset
        if records is None or offset >= len(records):
            return place
        content = mark_of(path, size)
        while offset < len(records) and len(read.rows) < max_rows:
            row = reader.record_row(records[offset])
            offset += 1
            mark = mark_at(content.encode(), offset)
            if isinstance(row, RowFault):
                read.faults[row] += 1
                read.lost.append(mark)
                self.leave_out(row, f"{path.name}, row {offset}")
            else:
                where = "" if row.key is None else f"{path.name}, row {offset}"
                read.rows.append(replace(row, where=where, mark=mark))
        return replace(place, offset=offset, line=offset + 1, size=size, mark=content)

    def _parquet(
        self, reader: RowReader, path: Path, place: Place, size: int, *, last: bool
    ) -> list[dict[str, Any]] | None:
        if self._table is None or self._table[:2] != (place.inode, size):
            with open_file(path) as content:
                try:
                    with pq.ParquetFile(content) as file:
                        reader.header(file.schema_arrow.names, 0)
                        self._table = place.inode, size, file.read(columns=reader.names).to_pylist()
                except (pa.ArrowException, UnicodeDecodeError, OSError):
                    if not last:
                        self._tell(path.name, "Parquet file of a stream is damaged; going on with the next")
                    return None  # it is still being written
        records: list[dict[str, Any]] = self._table[2]
        return records

    def _tell(self, name: str, event: str) -> None:
        if (said := f"{name}: {event}") not in self._told:
            self._told.add(said)
            log.warning(event, dataset=self.dataset, file=name)


def _is_parquet(name: str) -> bool:
    return Path(name).suffix.lower() in _PARQUET_SUFFIXES


def _count_lines(file: BinaryIO, size: int) -> int:
    file.seek(0)
    lines = 0
    while size > 0 and (part := file.read(min(size, 1 << 20))):
        lines += part.count(b"\n")
        size -= len(part)
    return lines


def _last_lines(file: BinaryIO, size: int) -> list[bytes]:
    """The last lines with content of the first bytes of a file, as many as marks look at."""
    part = 1 << 14
    while True:
        start = max(0, size - part)
        file.seek(start)
        lines = file.read(size - start).split(b"\n")
        found = [line for line in lines[start > 0 :] if line.strip()]
        if not start or len(found) >= RECENT:
            return found[-RECENT:]
        part *= 4
