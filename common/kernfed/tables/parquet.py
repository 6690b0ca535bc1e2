"""Parquet files into tables. Null and NaN mean that there is no value; infinity is a fault."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kernfed.arrays import Integers
from kernfed.tables.raw_table import Faults, RawTable, Source, label_text, locate_columns, merge_labels


def read_parquet(source: Source) -> RawTable:
    """Read the columns that the job uses; row numbers count from 1.

    Raises:
        DataError: Names file, column and remedy.
    """
    wanted = [*source.schema.features, source.schema.target]
    try:
        with pq.ParquetFile(source.file.path) as file:
            names = file.schema_arrow.names
            present = [names[i] for i in locate_columns(source, names, wanted)]
            table = file.read(columns=present)
    except OSError as err:
        if err.errno is not None:
            raise
        source.refuse("is a damaged Parquet file; write it again")
    except (pa.ArrowException, UnicodeDecodeError):
        source.refuse(f"is not a sound Parquet file; write it again, or correct {source.key('format')}")
    n = table.num_rows
    faults = Faults(source, "row")
    x = np.empty((n, len(present) - 1))
    for j, name in enumerate(present[:-1]):
        values = _numbers(table[name])
        if values is None:
            faults.add(wanted[j], 1, _not_numeric(table[name].type), n)
        else:
            x[:, j] = values
    rows = np.arange(1, n + 1)
    target = table[present[-1]]
    y = codes = None
    labels: tuple[str, ...] = ()
    if source.has_labels:
        encoded = _labels(target)
        if encoded is None:
            problem = f"type {target.type} cannot name classes; store text, integers or booleans"
            faults.add(wanted[-1], 1, problem, n)
        else:
            codes, labels = encoded
    else:
        y = _numbers(target)
        if y is None:
            faults.add(wanted[-1], 1, _not_numeric(target.type), n)
    faults.raise_if_any()
    return RawTable(x, y, codes, labels, rows, "row")


def _not_numeric(type_: Any) -> str:
    return f"type {type_} where a number is needed; store the column as integers or floats"


def _numbers(column: Any) -> Any:
    """A column as float64 (n,), null as NaN; None where its type is not numeric."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if not (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    ):
        return None
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    return column.cast(pa.float64(), safe=False).to_numpy().astype(np.float64)


def _labels(column: Any) -> tuple[Integers, tuple[str, ...]] | None:
    """Codes and names of a column of classes; None where its type cannot name classes."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    if pa.types.is_null(kind):
        return np.full(len(column), -1, dtype=np.int64), ()
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if not (text or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_floating(kind)):
        return None
    if pa.types.is_string_view(kind):
        column = column.cast(pa.large_string())
    if pa.types.is_float16(kind):
        column = column.cast(pa.float64())
    encoded = pa.concat_arrays(column.chunks).dictionary_encode() if column.num_chunks else None
    if encoded is None:
        return np.empty(0, dtype=np.int64), ()
    values = [label_text(value) for value in encoded.dictionary.to_pylist()]
    return merge_labels(values, encoded.indices.fill_null(-1).to_numpy().astype(np.int64))
