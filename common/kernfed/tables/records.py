"""What tells the records of a file apart: a digest of all cells of each, also of columns that no job uses.

A cell counts as what it means (`kernfed.tables.cells`), so a file has the same digests as CSV and as Parquet, and
whatever columns a job takes as numbers. Neither the order of columns nor that of rows counts; names of columns do, and
a gap is as if the column were not there. A day counts as CSV files have it, a moment as Parquet writes it in UTC.
Columns of lists, structures and bytes do not count. No column is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kernfed.arrays import Floats, Integers
from kernfed.rng import Words
from kernfed.tables.arrow import distinct, is_text, plain
from kernfed.tables.cells import EXACT, blank_missing, read_label, read_value
from kernfed.tables.raw_table import Source

_BATCH = 4096
"""Records of text that are digested at once."""


class RecordDigests:
    """64 bits of a digest of each record of a file, which come batch after batch.

    The digest of a record is a sum over its cells of digests of 64 bits, each of the column's name and the cell, mixed
    by the finaliser of SplitMix64: G. Steele, D. Lea and C. Flood, *Fast splittable pseudorandom number generators*,
    OOPSLA 2014.
    """

    def __init__(self, source: Source) -> None:
        """Begin with no record.

        Args:
            source: Says which cells are gaps, and which column does not count.
        """
        self._file, self._apart = source.file, source.apart
        self._parts: list[Words] = []

    def add(self, names: Sequence[str], columns: Iterable[Any], num_rows: int) -> None:
        """Digest the next records.

        Args:
            names: Of the columns, in the file.
            columns: Each an Arrow or a numpy array of `num_rows` cells.
            num_rows: Number of these records.
        """
        total = np.zeros(num_rows, dtype=np.uint64)
        for name, column in zip(names, columns, strict=True):
            if name == self._apart:
                continue
            if isinstance(column, np.ndarray):
                column = pa.array(column, from_pandas=True)
            total += self._cells(_salt(name), column)
        self._parts.append(mixed(total))

    def passing(
        self, names: Sequence[str], records: Iterable[tuple[int, list[str]]]
    ) -> Iterator[tuple[int, list[str]]]:
        """Digest records of text, each a cell for every name, as somebody reads them."""
        batch: list[list[str]] = []
        for line, record in records:
            batch.append(record)
            if len(batch) == _BATCH:
                self._add_text(names, batch)
                batch = []
            yield line, record
        self._add_text(names, batch)

    @property
    def words(self) -> Words:
        """Of all records so far, in the order of the file, (N,)."""
        return np.concatenate([np.empty(0, dtype=np.uint64), *self._parts])

    def _add_text(self, names: Sequence[str], batch: list[list[str]]) -> None:
        if batch:
            self.add(names, (pa.array(cells, pa.large_string()) for cells in zip(*batch, strict=True)), len(batch))

    def _cells(self, salt: np.uint64, column: Any) -> Words:
        kind = plain(column.type)
        if _has_time(kind):
            if pa.types.is_timestamp(kind):  # without its zone, which this machine may not know
                column = column.cast(pa.timestamp(kind.unit))
            column, kind = column.cast(pa.string()), pa.string()
        if is_text(kind):
            numbers = None if pa.types.is_dictionary(column.type) else self._plain_numbers(column)
            return self._by_value(salt, column) if numbers is None else _of_numbers(salt, numbers)
        if pa.types.is_dictionary(column.type):
            column = column.cast(kind)
        if pa.types.is_boolean(kind):
            return _of_numbers(salt, _floats(column.cast(pa.int8())))
        if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
            numbers = _floats(column)
            if (np.abs(numbers) >= EXACT).any():
                return self._of_values(salt, column.to_pylist())
            return _of_numbers(salt, blank_missing(numbers, self._file))
        if pa.types.is_floating(kind):
            return _of_numbers(salt, blank_missing(_floats(column), self._file))
        return np.zeros(len(column), dtype=np.uint64)

    def _plain_numbers(self, column: Any) -> Floats | None:
        """Cells of text as numbers where all are plainly numbers or gaps."""
        tokens = pa.array(self._file.missing, type=column.type)
        kept = pc.if_else(pc.is_in(column, value_set=tokens), None, column)
        try:
            numbers = _floats(kept)
        except pa.ArrowInvalid:
            return None
        plainly = np.isnan(numbers).sum() == kept.null_count and not (np.abs(numbers) >= EXACT).any()
        return blank_missing(numbers, self._file) if plainly else None

    def _by_value(self, salt: np.uint64, column: Any) -> Words:
        values, codes = distinct(column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column]))
        return self._of_values(salt, [*values, None])[codes]

    def _of_values(self, salt: np.uint64, values: Sequence[Any]) -> Words:
        numbers, texts = np.full(len(values), np.nan), np.zeros(len(values), dtype=np.uint64)
        for i, value in enumerate(values):
            number = read_value(value, self._file)
            if isinstance(number, float):
                numbers[i] = number
            elif (label := read_label(value, self._file.missing)) is not None:
                texts[i] = mixed(np.array([_salt("\0" + label) ^ salt], dtype=np.uint64))[0]
        return _of_numbers(salt, numbers) + texts


def whole_words(records: Iterable[bytes]) -> Words:
    """64 bits of a digest of each record, (N,), where records are no cells of a table but bytes, as images are."""
    found = [hashlib.blake2b(record, digest_size=8).digest() for record in records]
    return np.frombuffer(b"".join(found), dtype=">u8").astype(np.uint64)


def group_words(source: Source, values: Sequence[object], codes: Integers, rows: Integers, row_word: str) -> Integers:
    """Number the groups of rows, (N,): 64 bits of a digest of the group's name, the same in every file.

    Args:
        source: The file.
        values: Different cells of the group's column.
        codes: For each row an index into `values`, (N,); negative: no value.
        rows: Position of each row in the file, (N,).
        row_word: `line` or `row`.

    Raises:
        DataError: A row has no group; names it.
    """
    labels = [read_label(value, source.file.missing) for value in values]
    absent = np.array([*(label is None for label in labels), True])
    if (gaps := rows[absent[codes]]).size:
        more = f" (the first of {gaps.size:,} {row_word}s)" if gaps.size > 1 else ""
        source.refuse(
            f"column {source.group!r}, the group, {row_word} {gaps[0]}{more}: no value; name each row's group, or "
            f"remove {source.key('group')}",
            public="a row lacks its group",
        )
    words = np.array([*(_salt(label or "") for label in labels), 0], dtype=np.uint64)
    return words[codes].view(np.int64)


def mixed(words: Words) -> Words:
    """Words of which every bit depends on all bits of the given ones, which differ where these do."""
    found = words + np.uint64(0x9E3779B97F4A7C15)
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(found ^ (found >> np.uint64(31)), dtype=np.uint64)


def _of_numbers(salt: np.uint64, values: Floats) -> Words:
    words = mixed((values + 0.0).view(np.uint64) ^ salt)
    words[np.isnan(values)] = 0
    return words


def _floats(column: Any) -> Floats:
    """Numbers, or text that is plainly numbers, as float64; null as NaN."""
    found = column.cast(pa.float64(), safe=False)
    return np.array(found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found]), dtype=np.float64)


def may_count(kind: pa.DataType) -> bool:
    """Whether the cells of a column of this type are digested."""
    return bool(is_text(kind) or pa.types.is_primitive(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind))


def _has_time(kind: Any) -> bool:
    return bool(pa.types.is_temporal(kind) and not pa.types.is_interval(kind))


def _salt(name: str) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()))
