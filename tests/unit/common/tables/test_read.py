"""Files of any format: typed ones mean what a CSV file means, and what is no file is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kernfed.errors import DataError
from kernfed.federation.messages.data import MissingRule
from kernfed.tables import csv as csv_reader
from kernfed_testing.partitions import GOOD, read, read_csv, regression, schema


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (pd.Series([0, 1], dtype="int64"), ["0", "1"]),
        (pd.Series([0.0, 1.0]), ["0", "1"]),
        (pd.Series([False, True]), ["false", "true"]),
        (pd.Series(["007", " 7 "]), ["007", "7"]),
        (pd.Series(["n", "y"], dtype="category"), ["n", "y"]),
        (pd.Series([0.5, 1.5]), ["0.5", "1.5"]),
    ],
    ids=["int", "float", "bool", "text", "category", "fraction"],
)
def test_labels_of_typed_files_become_text(tmp_path: Path, values: pd.Series[Any], labels: list[str]) -> None:
    """Labels of Parquet and npz files of any type become the text that a CSV would hold."""
    wanted = schema(classes=())
    frame = pd.DataFrame({"y": values, "b": [2, 4], "extra": ["p", "q"], "a": [1.0, 3.0]})
    frame.to_parquet(tmp_path / "site.parquet")
    data = read(tmp_path / "site.parquet", wanted)
    assert (data.labels, data.x.tolist()) == (labels, [[1.0, 2.0], [3.0, 4.0]])
    y = values.to_numpy(str if values.dtype in ("category", "str", object) else None)
    np.savez(tmp_path / "site.npz", x=[[2, 1], [4, 3]], y=y, columns=np.array(["b", "a"]))
    data = read(tmp_path / "site.npz", wanted)
    assert (data.labels, data.x.tolist()) == (labels, [[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize("suffix", ["parquet", "npz"])
def test_nan_and_null_mean_no_value_in_typed_files(tmp_path: Path, suffix: str) -> None:
    """NaN and null in a typed file are gaps, dropped or refused by their place."""
    a, b, y = np.array([1.0, np.nan, 3.0, 4.0]), np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.5, 1.5, np.nan, 3.5])
    path = tmp_path / f"site.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.table({"a": pa.array(a), "b": b, "y": pa.array(y, from_pandas=True)}), path)
    else:
        np.savez(path, x=np.stack([a, b], axis=1), y=y, columns=np.array(["a", "b"]))
    data = read(path, regression(missing=MissingRule.DROP_ROWS))
    assert (data.row_numbers.tolist(), data.num_dropped_rows) == ([1, 4], 2)
    with pytest.raises(DataError, match=r"column 'a', row 2: no value(.|\n)*column 'y', row 3: no value"):
        read(path, regression())


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda p: None, "no such file"),
        (lambda p: p.mkdir(), "is a folder"),
        (lambda p: os.mkfifo(p), "not a regular file"),
    ],
)
def test_what_is_no_file_is_refused(tmp_path: Path, make: Any, expected: str) -> None:
    """A missing path, a folder and a pipe are refused as what they are."""
    make(tmp_path / "site.csv")
    with pytest.raises(DataError, match=expected):
        read(tmp_path / "site.csv")


def test_an_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without permission to read is refused as such."""
    (tmp_path / "site.csv").write_text(GOOD)
    (tmp_path / "site.csv").chmod(0)
    if os.geteuid() == 0:  # root reads everything: let the question be answered as for another user
        monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(DataError, match="permission denied"):
        read(tmp_path / "site.csv")


def test_an_unknown_suffix_needs_a_format(tmp_path: Path) -> None:
    """A file with another suffix is read once the client file names its format."""
    (tmp_path / "site.data").write_text(GOOD)
    with pytest.raises(DataError, match="`format`"):
        read(tmp_path / "site.data")
    assert read(tmp_path / "site.data", format="csv").num_rows == 2


def test_running_out_of_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that does not fit in memory is a fault of the data."""

    def full(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(csv_reader, "_records", full)
    with pytest.raises(DataError, match="memory"):
        read_csv(tmp_path, GOOD)
