"""CSV files into tables: a fast reading by Arrow for files without surprises, and a careful one that finds faults.

Arrow reads a file of one line per row many times faster than Python's csv module, but cannot say where a fault is. So
whenever it fails, or the file has more lines than rows (quoted line breaks, blank lines), the csv module reads the file
again, and its reading counts.
"""

from __future__ import annotations

import codecs
import csv
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from kernfed.tables.arrow import distinct
from kernfed.tables.cells import (
    EXACT,
    blank_missing,
    merge_labels,
    missing_numbers,
    plain_numbers,
    read_distinct,
    read_number,
)
from kernfed.tables.columns import locate_header, locate_own
from kernfed.tables.raw_table import Faults, RawTable, Source, TextTable
from kernfed.tables.records import RecordDigests, group_words

_MARKS = {"utf-16": b"\xff\xfe", "utf-32": b"\xff\xfe\0\0"}
"""Byte order marks of little-endian text; reversed: of big-endian."""
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
    source.require_room(2 * source.file.path.stat().st_size)
    with _open(source) as (encoding, header, records):
        places = locate_header(source, header)
        names = [name.strip() for name in header]
        group = None if source.group is None else locate_own(source, names, source.group, "group", "group")
        table = None
        if encoding in _ONE_BYTE_NEWLINE and group not in places:
            table = _read_fast(source, encoding, names, places, group)
        return table or _read_carefully(source, records, names, places, group)


def read_csv_with_text(source: Source) -> tuple[TextTable, RawTable]:
    """Read every column as text, and those that the job uses as `read_csv` does; the file may be a pipe.

    Raises:
        DataError: Names file, column, line and remedy.
    """
    with _open(source) as (_, header, records):
        if twice := sorted(name for name, count in Counter(header).items() if count > 1):
            source.refuse(f"column {twice[0]!r} stands {header.count(twice[0])} times; rename or remove all but one")
        places = locate_header(source, header)
        numbered = list(records)
    table = _read_carefully(source, numbered, header, places)
    return TextTable(tuple(header), [record for _, record in numbered]), table


def read_own_columns(source: Source, places: Callable[[Sequence[str]], Sequence[int]]) -> list[list[str]]:
    """Columns as text, each with a cell for every row.

    Args:
        source: The file.
        places: Finds the columns among the names in the header.

    Raises:
        DataError: Names file, column, line and remedy.
    """
    with _open(source) as (_, header, records):
        found = places([name.strip() for name in header])
        rows = [record for _, record in records]
    return [[row[place] for row in rows] for place in found]


@contextmanager
def _open(source: Source) -> Iterator[tuple[str, list[str], Iterator[tuple[int, list[str]]]]]:
    """The encoding, the header, and the records below it, each with the number of its first line."""
    with source.file.path.open("rb") as file:
        start = file.peek(4096)[:4096]
        encoding = _encoding(source, start)
        _refuse_binary(source, encoding, start)
        try:
            text = TextIOWrapper(file, encoding, newline="")
        except LookupError:
            source.refuse(f"not an encoding of text; correct {source.key('encoding')}, e.g. utf-8 or latin-1")
        records = _records(source, text, encoding)
        _, header = next(records, (0, []))
        if not header:
            source.refuse("holds no header line; the first line must name the columns")
        yield encoding, header, _complete(source, records, len(header))


def _encoding(source: Source, start: bytes) -> str:
    try:
        name = codecs.lookup(source.file.encoding).name
    except LookupError:
        source.refuse(f"unknown encoding; correct {source.key('encoding')}, e.g. utf-8 or latin-1")
    if name.startswith(("utf-16-", "utf-32-")):
        little = _MARKS[name[:6]]
        own, other = (little, little[::-1]) if name.endswith("le") else (little[::-1], little)
        if start.startswith(own):
            return name[:6]  # reads the mark, and goes by it
        if start.startswith(other):
            remedy = source.remedy("save it anew", ", or set {} to " + f'"{name[:6]}"', "encoding")
            source.refuse(f"begins with the mark of the other order of bytes than {source.file.encoding}; {remedy}")
    # utf-8-sig reads files with and without a byte order mark.
    return "utf-8-sig" if name == "utf-8" else name


def _refuse_binary(source: Source, encoding: str, start: bytes) -> None:
    other = source.remedy("name another file", ", or correct {}", "format")
    for magic, kind in _MAGIC.items():
        if start.startswith(magic):
            source.refuse(f"is not CSV but {kind}; {other}")
    if encoding.startswith(("utf-16", "utf-32")):
        return
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        remedy = source.remedy("save it as UTF-8", ', or set {} to "utf-16"', "encoding")
        source.refuse(f"is UTF-16 text; {remedy}")
    if b"\0" in start:
        source.refuse(f"is not text but binary; {other}")


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
                'a quote inside of a quoted cell is written twice ("")',
                public="malformed quotes, or a quote that is never closed",
            )
        except UnicodeError:  # not only of decoding: UTF-16 without a mark, and codecs that are none of text
            at = _undecodable_line(source.file.path, encoding)
            remedy = source.remedy("save the file as UTF-8", " or correct {}, e.g. to latin-1", "encoding")
            source.refuse(
                f"{at}bytes that are not {source.file.encoding} text; {remedy}",
                public="bytes that are not text of the declared encoding",
            )
        if record is None:
            return
        if record:
            yield line, record
        line = reader.line_num + 1


def _undecodable_line(path: Path, encoding: str) -> str:
    if encoding.startswith(("utf-16", "utf-32")) or not path.is_file():
        return ""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode(encoding)
            except UnicodeError:
                return f"line {number}: "
    return ""


def _complete(source: Source, records: Iterator[tuple[int, list[str]]], width: int) -> Iterator[tuple[int, list[str]]]:
    for line, record in records:
        if len(record) != width:
            source.refuse(
                f"line {line} has {len(record)} cells but the header has {width}; "
                "add or remove cells, or quote those that hold the delimiter",
                public="a line has another number of cells than the header",
            )
        yield line, record


def _read_fast(
    source: Source, encoding: str, header: Sequence[str], places: Sequence[int], group: int | None
) -> RawTable | None:
    """Read by Arrow; None where only the careful reading can tell what the file means."""
    num_lines = _count_lines(source.file.path)
    if num_lines is None:
        return None
    names = [str(i) for i in range(len(header))]
    used = [names[i] for i in places]
    text = pa.dictionary(pa.int32(), pa.string())
    types = dict.fromkeys(used, pa.float64())
    typed = {name for name, column in zip(used, source.columns, strict=True) if column in source.readers}
    types |= dict.fromkeys(typed, text)
    if source.has_labels:
        types[used[-1]] = text
    records = None
    try:
        options = {
            "read_options": arrow_csv.ReadOptions(
                column_names=names, skip_rows=1, encoding="utf8" if encoding == "utf-8-sig" else encoding
            ),
            "parse_options": arrow_csv.ParseOptions(delimiter=source.file.delimiter),
        }
        table = arrow_csv.read_csv(
            str(source.file.path),
            **options,
            convert_options=arrow_csv.ConvertOptions(
                column_types=types if group is None else {**types, names[group]: text},
                include_columns=[*used, *(() if group is None else (names[group],))],
                null_values=source.file.missing,
                strings_can_be_null=True,
            ),
        )
        if source.with_records:
            plain = arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
            digests = RecordDigests(source)
            with arrow_csv.open_csv(str(source.file.path), **options, convert_options=plain) as batches:
                for batch in batches:
                    digests.add(header, batch.columns, batch.num_rows)
            records = digests.words
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
        return None
    n = table.num_rows
    if num_lines != n + 1:
        return None
    num_features = len(source.features)
    x = np.empty((n, num_features))
    faults = Faults(source, "line")
    for j, name in enumerate(used[:num_features]):
        if name in typed:
            x[:, j] = read_distinct(*distinct(table[name]), source, faults, source.features[j], 2)
            continue
        if pc.any(pc.is_nan(table[name])).as_py():
            return None  # the text "nan" is not among the missing tokens
        x[:, j] = table[name].to_numpy()
    y = codes = None
    labels: tuple[str, ...] = ()
    target = None if source.target is None else table[used[-1]]
    if target is not None and source.has_labels:
        values, indices = distinct(target)
        codes, labels = merge_labels(values, indices, source.file.missing)
    elif target is not None and source.target is not None and source.target in source.readers:
        y = read_distinct(*distinct(target), source, faults, source.target, 2)
    elif target is not None:
        if pc.any(pc.is_nan(target)).as_py():
            return None
        y = target.to_numpy().astype(np.float64)
    faults.raise_if_any()
    # Readers of typed columns look at each cell themselves.
    plain = slice(None) if not typed else [j for j in range(num_features) if used[j] not in typed]
    read_y = y is not None and source.target in source.readers
    for numbers in (x[:, plain], None if read_y else y):
        if numbers is not None and (np.abs(numbers) >= EXACT).any():
            return None  # perhaps an integer that was rounded
    if missing_numbers(source.file):
        x[:, plain] = blank_missing(x[:, plain], source.file)
        y = y if y is None or read_y else blank_missing(y, source.file)
    lines = np.arange(2, n + 2)
    groups = None if group is None else group_words(source, *distinct(table[names[group]]), lines, "line")
    return RawTable(x, y, codes, labels, lines, "line", records, groups)


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
    source: Source,
    records: Iterable[tuple[int, list[str]]],
    header: Sequence[str],
    places: Sequence[int],
    group: int | None = None,
) -> RawTable:
    digests = RecordDigests(source) if source.with_records else None
    records = records if digests is None else digests.passing(header, records)
    names = source.features if source.has_labels else source.columns
    numeric = places[: len(names)]
    # A token such as -999 reads as a number, so that every cell has to be looked at.
    plain = not missing_numbers(source.file) and source.readers.keys().isdisjoint(names)
    numbers, codes, lines = array("d"), array("q"), array("q")
    labels: dict[str, int] = {}
    groups: list[str] = []
    faults = Faults(source, "line")
    for line, record in records:
        lines.append(line)
        cells = [record[place] for place in numeric]
        values = plain_numbers(cells) if plain else None
        if values is None:
            values = [read_number(cell, source, faults, name, line) for cell, name in zip(cells, names, strict=True)]
        numbers.extend(values)
        if source.has_labels:
            codes.append(labels.setdefault(record[places[-1]], len(labels)))
        if group is not None:
            groups.append(record[group])
    faults.raise_if_any()
    table = np.array(numbers, dtype=np.float64).reshape(len(lines), len(numeric))
    row_numbers = np.array(lines, dtype=np.int64)
    of_file = (
        None if digests is None else digests.words,
        None if group is None else group_words(source, groups, np.arange(len(lines)), row_numbers, "line"),
    )
    if source.has_labels:
        merged, classes = merge_labels(list(labels), np.array(codes, dtype=np.int64), source.file.missing)
        return RawTable(table, None, merged, classes, row_numbers, "line", *of_file)
    y = None if source.target is None else table[:, -1]
    return RawTable(table[:, : len(source.features)], y, None, (), row_numbers, "line", *of_file)
