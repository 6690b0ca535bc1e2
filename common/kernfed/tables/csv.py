"""CSV files into tables: a fast reading by Arrow for files without surprises, and a careful one that finds faults.

Arrow reads a file of one line per row many times faster than Python's csv module, but cannot say where a fault is. So
whenever it fails, or the file has more lines than rows (quoted line breaks, blank lines), the csv module reads the file
again, and its reading counts.
"""

from __future__ import annotations

import codecs
import csv
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from kernfed.tables.raw_table import NOT_FINITE, TEXT, Faults, RawTable, Source, locate_columns, merge_labels

_CHUNK = 1 << 20
_ONE_BYTE_NEWLINE = {"utf-8-sig", "ascii", "iso8859-1", "iso8859-15", "cp1252"}
"""Encodings whose lines can be counted in bytes, which the fast reading needs."""
_MAGIC = {b"PAR1": "Parquet", b"PK\x03\x04": "a zip or NPZ archive", b"\x1f\x8b": "compressed by gzip"}


def read_csv(source: Source) -> RawTable:
    """Read the columns that the job uses.

    Args:
        source: The file, with its declared encoding, delimiter and missing tokens; the first line names the columns.

    Raises:
        DataError: Names file, column, line and remedy.
    """
    encoding = _encoding(source)
    _refuse_binary(source, encoding)
    with _open(source, encoding) as text:
        records = _records(source, text, encoding)
        _, header = next(records, (0, []))
        if not header:
            source.refuse("holds no header line; the first line must name the columns")
        wanted = [*source.schema.features, source.schema.target]
        places = _locate(source, [name.strip() for name in header], wanted)
        table = None
        if encoding in _ONE_BYTE_NEWLINE:
            table = _read_fast(source, encoding, len(header), places)
        return table or _read_carefully(source, records, len(header), places)


def _encoding(source: Source) -> str:
    try:
        name = codecs.lookup(source.file.encoding).name
    except LookupError:
        source.refuse(f"unknown encoding; correct {source.key('encoding')}, e.g. utf-8 or latin-1")
    # utf-8-sig reads files with and without a byte order mark.
    return "utf-8-sig" if name == "utf-8" else name


def _open(source: Source, encoding: str) -> TextIO:
    try:
        return source.file.path.open(encoding=encoding, newline="")
    except LookupError:
        source.refuse(f"not an encoding of text; correct {source.key('encoding')}, e.g. utf-8 or latin-1")


def _refuse_binary(source: Source, encoding: str) -> None:
    with source.file.path.open("rb") as file:
        start = file.read(4096)
    for magic, kind in _MAGIC.items():
        if start.startswith(magic):
            source.refuse(f"is not CSV but {kind}; correct `path` or {source.key('format')}")
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) and not encoding.startswith(("utf-16", "utf-32")):
        source.refuse(f'is UTF-16 text; set {source.key("encoding")} to "utf-16"')
    if b"\0" in start and not encoding.startswith(("utf-16", "utf-32")):
        source.refuse(f"is not text but binary; correct `path` or {source.key('format')}")


def _records(source: Source, text: TextIO, encoding: str) -> Iterator[tuple[int, list[str]]]:
    """Records that are not blank, each with the number of its first line."""
    if source.file.delimiter in '"\r\n':
        source.refuse(f"this character cannot separate columns; correct {source.key('delimiter')}")
    reader = csv.reader(text, delimiter=source.file.delimiter, strict=True)
    line = 1
    while True:
        try:
            record = next(reader, None)
        except csv.Error:
            source.refuse(
                f"line {line}: malformed quotes, or a quote that is never closed; "
                'a quote inside of a quoted cell is written twice ("")'
            )
        except UnicodeDecodeError:
            at = _undecodable_line(source.file.path, encoding)
            source.refuse(
                f"{at}bytes that are not {source.file.encoding} text; "
                f"save the file as UTF-8 or correct {source.key('encoding')}, e.g. to latin-1"
            )
        if record is None:
            return
        if record:
            yield line, record
        line = reader.line_num + 1


def _undecodable_line(path: Path, encoding: str) -> str:
    if encoding.startswith(("utf-16", "utf-32")):
        return ""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode(encoding)
            except UnicodeDecodeError:
                return f"line {number}: "
    return ""


def _locate(source: Source, header: list[str], wanted: list[str]) -> list[int]:
    if len(header) == 1 and len(wanted) > 1:
        other = next((d for d in ";\t,|" if d != source.file.delimiter and d in header[0]), None)
        if other is not None:
            name = {"\t": "a tab"}.get(other, repr(other))
            source.refuse(
                f"line 1 is one column, but holds {name}; if that separates columns, set {source.key('delimiter')}"
            )
    return locate_columns(source, header, wanted)


def _read_fast(source: Source, encoding: str, width: int, places: Sequence[int]) -> RawTable | None:
    """Read by Arrow; None where only the careful reading can tell what the file means."""
    num_lines = _count_lines(source.file.path)
    if num_lines is None:
        return None
    names = [str(i) for i in range(width)]
    used = [names[i] for i in places]
    types = dict.fromkeys(used, pa.float64())
    if source.has_labels:
        types[used[-1]] = pa.dictionary(pa.int32(), pa.string())
    try:
        table = arrow_csv.read_csv(
            str(source.file.path),
            read_options=arrow_csv.ReadOptions(
                column_names=names, skip_rows=1, encoding="utf8" if encoding == "utf-8-sig" else encoding
            ),
            parse_options=arrow_csv.ParseOptions(delimiter=source.file.delimiter),
            convert_options=arrow_csv.ConvertOptions(
                column_types=types,
                include_columns=used,
                null_values=source.file.missing,
                strings_can_be_null=True,
            ),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
        return None
    n = table.num_rows
    if num_lines != n + 1:
        return None
    x = np.empty((n, len(used) - 1))
    for j, name in enumerate(used[:-1]):
        if pc.any(pc.is_nan(table[name])).as_py():
            return None  # the text "nan" is not among the missing tokens
        x[:, j] = table[name].to_numpy()
    y = codes = None
    labels: tuple[str, ...] = ()
    target = table[used[-1]]
    if source.has_labels:
        encoded = target.unify_dictionaries().combine_chunks()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.chunk(0) if encoded.num_chunks else encoded.type.wrap_array(pa.array([]))
        missing = frozenset(source.file.missing)
        values = [v if v.strip() not in missing else None for v in encoded.dictionary.to_pylist()]
        codes, labels = merge_labels(values, encoded.indices.fill_null(-1).to_numpy().astype(np.int64))
    else:
        if pc.any(pc.is_nan(target)).as_py():
            return None
        y = target.to_numpy().astype(np.float64)
    return RawTable(x, y, codes, labels, np.arange(2, n + 2), "line")


def _count_lines(path: Path) -> int | None:
    """Lines of a file whose lines all end alike, in LF or CRLF, and whose quotes come in pairs; else None."""
    feeds = returns = quotes = 0
    last = b""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            feeds += chunk.count(b"\n")
            returns += chunk.count(b"\r")
            quotes += chunk.count(b'"')
            last = chunk[-1:]
    if returns not in (0, feeds) or quotes % 2:
        return None
    return feeds + (last != b"\n")


def _read_carefully(
    source: Source, records: Iterator[tuple[int, list[str]]], width: int, places: Sequence[int]
) -> RawTable:
    numeric = list(places[:-1] if source.has_labels else places)
    names = [*source.schema.features, source.schema.target][: len(numeric)]
    missing = frozenset(source.file.missing)
    # A token such as -999 reads as a number, so that every cell has to be looked at.
    plain = not any(_number(token) is not None for token in missing)
    numbers, codes, lines = array("d"), array("q"), array("q")
    labels: dict[str, int] = {}
    faults = Faults(source, "line")
    for line, record in records:
        if len(record) != width:
            source.refuse(
                f"line {line} has {len(record)} cells but the header has {width}; "
                "add or remove cells, or quote those that hold the delimiter"
            )
        lines.append(line)
        cells = [record[place] for place in numeric]
        values = _plain_numbers(cells) if plain else None
        if values is None:
            values = [_cell(cell, missing, faults, name, line) for cell, name in zip(cells, names, strict=True)]
        numbers.extend(values)
        if source.has_labels:
            label = record[places[-1]]
            absent = label in missing or label.strip() in missing
            codes.append(-1 if absent else labels.setdefault(label, len(labels)))
    faults.raise_if_any()
    table = np.array(numbers, dtype=np.float64).reshape(len(lines), len(numeric))
    row_numbers = np.array(lines, dtype=np.int64)
    if not source.has_labels:
        return RawTable(table[:, :-1], table[:, -1], None, (), row_numbers, "line")
    merged, classes = merge_labels(list(labels), np.array(codes, dtype=np.int64))
    return RawTable(table, None, merged, classes, row_numbers, "line")


def _plain_numbers(cells: Sequence[str]) -> list[float] | None:
    """All cells as numbers; None where one of them is not plainly a number."""
    try:
        values = [float(cell) for cell in cells]
    except ValueError:
        return None
    # float() also takes "nan", 1_000 and the digits of other scripts.
    text = "".join(cells)
    return None if any(v != v for v in values) or "_" in text or not text.isascii() else values


def _number(cell: str) -> float | None:
    values = _plain_numbers([cell])
    return values[0] if values else None


def _cell(cell: str, missing: frozenset[str], faults: Faults, column: str, line: int) -> float:
    if cell in missing or cell.strip() in missing:
        return float("nan")
    value = _number(cell)
    if value is None:
        faults.add(column, line, NOT_FINITE if cell.strip().lower().lstrip("+-") == "nan" else TEXT)
        return float("nan")
    return value
