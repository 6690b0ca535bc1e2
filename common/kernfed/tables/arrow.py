"""Columns of Arrow: their kinds, and the different cells of a column of text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from kernfed.arrays import Integers


def plain(kind: pa.DataType) -> pa.DataType:
    """Type of the cells of a column, also of one that keeps each different cell once."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_text(kind: Any) -> bool:
    """Whether a type is one of text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


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
