"""Columns of Arrow: their kinds, and the different cells of a column of text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kernfed.arrays import Integers


def plain(kind: pa.DataType) -> pa.DataType:
    """Type of the cells of a column, also of one that keeps each different cell once."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_text(kind: Any) -> bool:
    """Whether a type is one of text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def times_as_text(column: Any) -> Any:
    """A column of dates or times as text, as a CSV file has them; any other column as it is."""
    kind = plain(column.type)
    if not pa.types.is_temporal(kind) or pa.types.is_interval(kind):
        return column
    if pa.types.is_timestamp(kind):  # without its zone, which this machine may not know
        column = column.cast(pa.timestamp(kind.unit))
    text = pc.replace_substring_regex(column.cast(pa.string()), r"(\.\d*?)0+$", r"\1")
    return pc.replace_substring_regex(text, r"\.$", "")


def distinct(column: pa.ChunkedArray) -> tuple[list[str | None], Integers]:
    """The different cells of a column of text, and for each row which one it holds, (n,); -1: null."""
    if not column.num_chunks:
        return [], np.empty(0, dtype=np.int64)
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    encoded = pa.concat_arrays(column.unify_dictionaries().chunks)
    return encoded.dictionary.to_pylist(), encoded.indices.fill_null(-1).to_numpy().astype(np.int64)
