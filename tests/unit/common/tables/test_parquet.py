"""Parquet files: the right reading, or a refusal that names file, column and row and no content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kernfed.errors import DataError
from kernfed.federation.messages.data import MissingRule
from kernfed_testing.partitions import SECRET, read, regression


def test_numbers_that_parquet_holds_as_text_are_numbers(tmp_path: Path) -> None:
    """Text of a Parquet file means what the same cells of a CSV mean: numbers, and gaps by their tokens."""
    columns = {
        "a": pa.array([" 1.5", "NA", None]),
        "b": pa.array(["-2e3", "1", "2"]).dictionary_encode(),
        "y": [1, 2, 3],
    }
    pq.write_table(pa.table(columns), tmp_path / "site.parquet")
    data = read(tmp_path / "site.parquet", regression(missing=MissingRule.DROP_ROWS))
    assert (data.x.tolist(), data.row_numbers.tolist()) == ([[1.5, -2000.0]], [1])


BAD_PARQUET: dict[str, tuple[Any, list[str]]] = {
    "text": ({"a": ["1", SECRET], "b": [1, 2], "y": [0, 1]}, ["column 'a', row 2", "text where a number is needed"]),
    "infinity": ({"a": [1.0, np.inf], "b": [1, 2], "y": [0, 1]}, ["column 'a', row 2", "infinite"]),
    "no value": ({"a": [1.0, None], "b": [1, 2], "y": [0, 1]}, ["column 'a', row 2: no value"]),
    "missing column": ({"a": [1], "y": [0]}, ["column 'b' is missing", "columns a, y"]),
    "unknown class": ({"a": [1, 2], "b": [1, 2], "y": ["0", SECRET]}, ["column 'y', row 2", "does not know"]),
    "list": ({"a": [[1], [2]], "b": [1, 2], "y": [0, 1]}, ["column 'a', row 1", "type list"]),
    "classes of dates": (
        {"a": [1], "b": [1], "y": pa.array([0], pa.timestamp("s"))}, ["column 'y'", "cannot name classes"]
    ),
    "no rows": ({"a": pa.array([], pa.float64()), "b": pa.array([], pa.float64()), "y": pa.array([], pa.string())},
                ["has no rows"]),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_PARQUET)
def test_bad_parquet_is_refused_by_place_without_content(tmp_path: Path, case: str) -> None:
    """A fault in a Parquet file is told by column and row, without the content of a cell."""
    columns, expected = BAD_PARQUET[case]
    pq.write_table(pa.table(columns), tmp_path / "site.parquet")
    with pytest.raises(DataError) as caught:
        read(tmp_path / "site.parquet")
    for part in ["data set heart, train (site.parquet)", *expected]:
        assert part in str(caught.value)
    assert SECRET not in str(caught.value)


def test_duplicated_parquet_columns_are_refused(tmp_path: Path) -> None:
    """A column that stands twice in a Parquet file is refused."""
    table = pa.Table.from_arrays([pa.array([1])] * 4, names=["a", "b", "a", "y"])
    pq.write_table(table, tmp_path / "site.parquet")
    with pytest.raises(DataError, match="column 'a' stands 2 times"):
        read(tmp_path / "site.parquet")


def test_damaged_parquet_is_refused(tmp_path: Path) -> None:
    """A cut, overwritten or wrongly named Parquet file is refused."""
    path = tmp_path / "site.parquet"
    pd.DataFrame({"a": np.arange(9.0), "b": 1.0, "y": 0}).to_parquet(path)
    content = path.read_bytes()
    for damaged in (content[:-1], content[:40] + b"\xff" * 60 + content[100:], b"a,b,y\n1,2,0\n"):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="Parquet file"):
            read(path)
