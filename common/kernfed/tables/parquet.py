"""Parquet files, and tables of Arrow in memory, into tables. Null and NaN mean that there is no value."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kernfed.arrays import Integers
from kernfed.rng import Words
from kernfed.tables.arrow import distinct, is_text, plain, times_as_text
from kernfed.tables.cells import EXACT, Misread, blank_missing, merge_labels, read_distinct, read_number, read_value
from kernfed.tables.columns import locate_columns, locate_own
from kernfed.tables.raw_table import Faults, RawTable, Source, TextTable
from kernfed.tables.records import RecordDigests, group_words, may_count


def read_parquet(source: Source) -> RawTable:
    """Read the columns that the job uses; row numbers count from 1.

    Raises:
        DataError: Names file, column and remedy.
    """
    try:
        with open_parquet(source.file.path) as file:
            names = file.schema_arrow.names
            present = [names[i] for i in locate_columns(source, names, source.columns)]
            if source.group is not None:
                locate_own(source, names, source.group, "group", "group")
            used = [*present, *(() if source.group in (None, *present) else (source.group,))]
            require_room(source, file, used)
            table = file.read(columns=used)
            records = _records(source, file) if source.with_records else None
    except OSError as err:
        if err.errno is not None:
            raise
        source.refuse("is a damaged Parquet file; write it again")
    except (pa.ArrowException, UnicodeDecodeError):
        remedy = source.remedy("write it again", ", or correct {}", "format")
        source.refuse(f"is not a sound Parquet file; {remedy}")
    return _columns_of(source, present, table, records)


def read_arrow(source: Source, table: pa.Table) -> RawTable:
    """Read the columns that the job uses of a table in memory, as those of a Parquet file.

    Raises:
        DataError: Names column, row and remedy.
    """
    names = table.column_names
    present = [names[i] for i in locate_columns(source, names, source.columns)]
    if source.group is not None:
        locate_own(source, names, source.group, "group", "group")
    records = None
    if source.with_records:
        digests = RecordDigests(source)
        counted = [name for name in names if may_count(plain(table.schema.field(name).type))]
        digests.add(counted, [table[name] for name in counted], table.num_rows)
        records = digests.words
    return _columns_of(source, present, table, records)


def _columns_of(source: Source, present: Sequence[str], table: pa.Table, records: Words | None) -> RawTable:
    """The columns that the job uses, of a table whose columns have the names `present` for them."""
    n = table.num_rows
    faults = Faults(source, "row")
    x = np.empty((n, len(source.features)))
    for j, (column, name) in enumerate(zip(source.features, present, strict=False)):
        x[:, j] = _numbers(source, faults, column, table[name])
    y = codes = None
    labels: tuple[str, ...] = ()
    if source.target is not None:
        target = table[present[-1]]
        if not source.has_labels:
            y = _numbers(source, faults, source.target, target)
        elif (encoded := _labels(target, source.file.missing)) is not None:
            codes, labels = encoded
        else:
            problem = f"type {target.type} cannot name classes; store text, integers or booleans"
            faults.add(source.target, 1, problem, n)
    faults.raise_if_any()
    rows = np.arange(1, n + 1)
    group = None if source.group is None else _groups(source, table[source.group], rows)
    return RawTable(x, y, codes, labels, rows, "row", records, group)


def _records(source: Source, file: pq.ParquetFile) -> Words:
    digests = RecordDigests(source)
    names = [field.name for field in file.schema_arrow if may_count(plain(field.type))]
    meta = file.metadata
    source.require_room(max((meta.row_group(i).total_byte_size for i in range(meta.num_row_groups)), default=0))
    for batch in file.iter_batches(columns=names):
        digests.add(batch.schema.names, batch.columns, batch.num_rows)
    return digests.words


def _groups(source: Source, column: Any, rows: Integers) -> Integers:
    column = times_as_text(column)
    if not may_count(plain(column.type)):
        source.refuse(
            f"column {source.group!r}, the group, is of type {column.type}, which names nothing; store text or numbers",
            public="its groups are no numbers or text",
        )
    if is_text(plain(column.type)):
        return group_words(source, *distinct(column), rows, "row")
    return group_words(source, column.to_pylist(), rows - 1, rows, "row")


def read_parquet_with_text(source: Source) -> tuple[TextTable, RawTable]:
    """Read every column as text, and those that the job uses as `read_parquet` does.

    Raises:
        DataError: Names file, column and remedy.
    """
    table = read_parquet(source)
    with open_parquet(source.file.path) as file:
        names = file.schema_arrow.names
        if twice := sorted(name for name in names if names.count(name) > 1):
            source.refuse(f"column {twice[0]!r} stands {names.count(twice[0])} times; rename or remove all but one")
        require_room(source, file, names)
        return _as_text(source, file.read()), table


def read_arrow_with_text(source: Source, table: pa.Table) -> tuple[TextTable, RawTable]:
    """A table in memory as `read_parquet_with_text` reads one of a file.

    Raises:
        DataError: Names column and remedy.
    """
    found = read_arrow(source, table)
    return _as_text(source, table), found


def _as_text(source: Source, table: pa.Table) -> TextTable:
    columns = [text_cells(source, column) for column in table.columns]
    rows = [["" if cell is None else str(cell) for cell in row] for row in zip(*columns, strict=True)]
    return TextTable(tuple(table.column_names), rows)


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a file so that text is read once for all rows that hold the same: a kilobyte may repeat a megabyte."""
    with pq.ParquetFile(path) as file:
        text = [field.name for field in file.schema_arrow if is_text(field.type)]
    return pq.ParquetFile(path, read_dictionary=text)


def require_room(source: Source, file: pq.ParquetFile, names: Sequence[str]) -> None:
    """Refuse a file whose columns of these names do not fit into memory.

    Raises:
        DataError: States what they take.
    """
    meta, kinds = file.metadata, file.schema_arrow
    # Not by the columns' own statements: pyarrow ends the process where one of these is damaged.
    pages = sum(meta.row_group(group).total_byte_size for group in range(meta.num_row_groups))
    has_text = any(is_text(plain(kinds.field(i).type)) for i, name in enumerate(kinds.names) if name in names)
    source.require_room(3 * 8 * meta.num_rows * len(names) + (2 * pages if has_text else 0))


def text_cells(source: Source, column: pa.ChunkedArray) -> list[object]:
    """A column's cells; those of equal text are one object.

    Raises:
        DataError: Written out, they do not fit into memory.
    """
    if not is_text(plain(column.type)):
        return list(column.to_pylist())
    values, codes = distinct(column)
    lengths = np.array([*(len(value or "") for value in values), 0], dtype=np.int64)
    source.require_room(3 * int(lengths[codes].sum()))
    cells = [*values, None]
    return [cells[code] for code in codes.tolist()]


def _numbers(source: Source, faults: Faults, name: str, column: Any) -> Any:
    """A column as float64 (n,), null as NaN; text that is a number counts as one, as in a CSV file."""
    if name in source.readers and not pa.types.is_nested(plain(column.type)):
        return read_distinct(*_distinct_cells(times_as_text(column)), source, faults, name)
    kind = plain(column.type)
    if is_text(kind):
        return _numbers_of_text(source, faults, name, column)
    if pa.types.is_dictionary(column.type):
        column = column.cast(kind)
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_decimal(kind) or pa.types.is_integer(kind):
        found = column.cast(pa.float64(), safe=False).to_numpy().astype(np.float64)
        if (np.abs(found) >= EXACT).any():
            return _one_by_one(source, faults, name, column)
    elif not pa.types.is_floating(kind):
        problem = f"type {column.type} where a number is needed; store the column as integers or floats"
        faults.add(name, 1, problem, len(column))
        return np.full(len(column), np.nan)
    return blank_missing(column.cast(pa.float64(), safe=False).to_numpy().astype(np.float64), source.file)


def _numbers_of_text(source: Source, faults: Faults, name: str, column: pa.ChunkedArray) -> Any:
    """Each different text is read once; those that are no numbers are noted with the rows that hold them."""
    values, codes = distinct(column)
    read = [*(read_value(text, source.file) for text in values), np.nan]
    faulty = np.array([isinstance(value, Misread) for value in read])
    rows = np.flatnonzero(faulty[codes])
    for code, first, count in zip(*np.unique(codes[rows], return_index=True, return_counts=True), strict=True):
        read_number(values[code], source, faults, name, int(rows[first]) + 1, int(count))
    return np.array([np.nan if isinstance(value, Misread) else value for value in read])[codes]


def _distinct_cells(column: pa.ChunkedArray) -> tuple[list[Any], Integers]:
    """The different cells of a column of any type, and for each row which one it holds, (n,); -1: null."""
    kind = plain(column.type)
    if is_text(kind):
        values, codes = distinct(column)
        return list(values), codes
    places: dict[Any, int] = {}
    cells = column.cast(kind).to_pylist()
    found = [-1 if c is None or c != c else places.setdefault(c, len(places)) for c in cells]
    return list(places), np.array(found, dtype=np.int64)


def _one_by_one(source: Source, faults: Faults, name: str, column: Any) -> Any:
    return np.array([read_number(c, source, faults, name, row) for row, c in enumerate(column.to_pylist(), start=1)])


def _labels(column: Any, missing: Sequence[str]) -> tuple[Integers, tuple[str, ...]] | None:
    """Codes and names of a column of classes; None where its type cannot name classes."""
    kind = plain(column.type)
    if is_text(kind):
        values, codes = distinct(column)
        return merge_labels(values, codes, missing)
    if pa.types.is_dictionary(column.type):
        column = column.cast(kind)
    if pa.types.is_null(kind):
        return np.full(len(column), -1, dtype=np.int64), ()
    if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_floating(kind)):
        return None
    if pa.types.is_float16(kind):
        column = column.cast(pa.float64())
    encoded = pa.concat_arrays(column.chunks).dictionary_encode() if column.num_chunks else None
    if encoded is None:
        return np.empty(0, dtype=np.int64), ()
    indices = encoded.indices.fill_null(-1).to_numpy().astype(np.int64)
    return merge_labels(encoded.dictionary.to_pylist(), indices, missing)
