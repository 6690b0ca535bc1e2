"""Reading partitions: the right reading, or a refusal that names file, column and row and no content."""

from __future__ import annotations

import csv
import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernfed.errors import DataError
from kernfed.federation.messages.data import DataSchema, LearningTask, MissingRule
from kernfed.jobs.client_file import ClientFile, DatasetSection, PartitionFile
from kernfed.tables import csv as csv_reader
from kernfed.tables.cells import label_text
from kernfed_client.data.partition_data import PartitionData
from kernfed_client.data.partitions import held_out_rows, load_local_data, read_partition
from kernfed_testing.properties import examples

SECRET = "s3cr3t-31337"
GOOD = "a,b,y\n1,2,0\n3,4,1\n"


def schema(**changes: Any) -> DataSchema:
    facts: dict[str, Any] = {
        "task": LearningTask.BINARY,
        "target": "y",
        "features": ("a", "b"),
        "classes": ("0", "1"),
        "missing": MissingRule.REFUSE,
        "test_fraction": 0.25,
        "seed": 1,
    }
    return DataSchema(**(facts | changes))


def regression(**changes: Any) -> DataSchema:
    return schema(task=LearningTask.REGRESSION, classes=(), **changes)


def read(path: Path, wanted: DataSchema | None = None, **file: Any) -> PartitionData:
    return read_partition(PartitionFile(path=path, **file), wanted or schema(), "heart", "train")


def read_csv(tmp_path: Path, text: str | bytes, wanted: DataSchema | None = None, **file: Any) -> PartitionData:
    path = tmp_path / "site.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read(path, wanted, **file)


# The right reading


@pytest.mark.parametrize(
    ("text", "file"),
    [
        (GOOD, {}),
        (GOOD.replace("\n", "\r\n"), {}),
        (GOOD.replace("\n", "\r"), {}),
        (GOOD.rstrip("\n"), {}),
        ("\ufeff" + GOOD, {}),
        (GOOD + "\n\n", {}),
        ("\n" + GOOD, {}),
        ("y,other,b,a\n0,x,2,1\n1,,4,3\n", {}),
        ('a,note,b,y\n1,"one, two",2,0\n3,x,4,1\n', {}),
        ('a,note,b,y\n1,"line\nline, ""quoted""",2,0\n3,x,4,1\n', {}),
        (' a , b,y \n 1 ,2 , 0\n3, 4,1 \n', {}),
        ("a;b;y\n1;2;0\n3;4;1\n", {"delimiter": ";"}),
        ("a§b§y\n1§2§0\n3§4§1\n", {"delimiter": "§"}),
        ("a\tb\ty\n1\t2\t0\n3\t4\t1\n", {"delimiter": "\t"}),
        ("\u00e4,b,y\n1,2,0\n3,4,1\n".encode("latin-1"), {"encoding": "latin-1", "columns": {"a": "\u00e4"}}),
        (GOOD.encode("utf-16"), {"encoding": "utf-16"}),
        ("Alter,b,krank\n1,2,nein\n3,4,ja\n", {
            "columns": {"a": "Alter", "y": "krank"}, "labels": {"nein": "0", "ja": "1"}
        }),
    ],
    ids=["plain", "crlf", "cr", "no-last-newline", "bom", "blank-end", "blank-start", "order-and-extra",
         "quoted-comma", "quoted-newline", "spaces", "semicolons", "non-ascii", "tabs", "latin-1", "utf-16", "mapped"],
)  # fmt: skip
def test_csv_dialects_read_alike(tmp_path: Path, text: str | bytes, file: dict[str, Any]) -> None:
    """The same rows in any dialect of CSV give the same data."""
    data = read_csv(tmp_path, text, **file)
    assert data.x.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert data.labels == ["0", "1"]
    assert data.y is None
    assert data.num_dropped_rows == 0


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (GOOD, [2, 3]),
        ('a,b,n,y\n1,2,"x\ny\nz",0\n\n3,4,x,1\n', [2, 6]),
        ("\ufeffa,b,y\r\n1,2,0\r\n\r\n3,4,1\r\n", [2, 4]),
    ],
)
def test_row_numbers_are_lines_of_the_file(tmp_path: Path, text: str, rows: list[int]) -> None:
    """A row has the number of the line on which it begins."""
    assert read_csv(tmp_path, text).row_numbers.tolist() == rows


@pytest.mark.parametrize("line_end", ["\n", "\n\n"], ids=["fast", "careful"])
def test_codes_stay_text_where_they_are_classes(tmp_path: Path, line_end: str) -> None:
    """Labels that look like numbers keep their zeros and points."""
    text = line_end.join(["a,b,y", "1,2,007", "3,4,7", "5,6,7.0", ""])
    data = read_csv(tmp_path, text, schema(task=LearningTask.CLASSIFICATION, classes=()))
    assert data.labels == ["007", "7", "7.0"]


def test_missing_tokens_are_those_declared(tmp_path: Path) -> None:
    """A cell is missing where it holds a token that the client file declares."""
    text = "a,b,y\n-999,2,0\n 3 ,4,1\n5,.,1\n6,7,\n"
    data = read_csv(tmp_path, text, schema(missing=MissingRule.DROP_ROWS), missing=["", ".", "-999"])
    assert data.x.tolist() == [[3.0, 4.0]]
    assert (data.labels, data.num_dropped_rows, data.row_numbers.tolist()) == (["1"], 3, [3])


def test_gaps_in_unused_columns_do_not_count(tmp_path: Path) -> None:
    """A gap in a column that the job does not use drops no row."""
    assert read_csv(tmp_path, "a,b,z,y\n1,2,,0\n3,4,NA,1\n").num_rows == 2


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


def test_npz_columns_by_position_or_by_the_client_file(tmp_path: Path) -> None:
    """Columns of an npz file without names go by position, or by the names in the client file."""
    np.savez(tmp_path / "site.npz", x=np.array([[1, 2, 3.5]]), y=np.array([4.5]))
    assert read(tmp_path / "site.npz", regression(features=("x2", "x0"))).x.tolist() == [[3.5, 1.0]]
    data = read(tmp_path / "site.npz", regression(), x_columns=["b", "c", "a"])
    assert data.x.tolist() == [[3.5, 1.0]]
    assert data.y is not None
    assert data.y.tolist() == [4.5]


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


# Refusals

BAD_CSV: dict[str, tuple[str | bytes, dict[str, Any], list[str]]] = {
    "header-only": ("a,b,y\n", {}, ["has no rows"]),
    "0 bytes": ("", {}, ["empty (0 bytes)"]),
    "blank": ("\n\n", {}, ["no header line"]),
    "missing column": ("a,B ,y\n1,2,0\n", {}, ["column 'b' is missing", "did you mean 'B'", "a, B, y"]),
    "mapped column missing": ("a,b,y\n1,2,0\n", {"columns": {"b": "bb"}}, ["'b' ('bb' in the file) is missing"]),
    "duplicated column": ("a,b,a,y\n1,2,3,0\n", {}, ["column 'a' stands 2 times"]),
    "one column for two": ("a,b,y\n1,2,0\n", {"columns": {"b": "a"}}, ["'a' and 'b'", "both read from 'a'"]),
    "no header": (f"11,{SECRET},0\n1,2,0\n", {}, ["3 columns", "first line must name"]),
    "semicolons": ("a;b;y\n1;2;0\n", {}, ["holds ';'", "`delimiter`"]),
    "text": (f"a,b,y\n1,2,0\n1,{SECRET},0\n2,{SECRET},1\n", {}, ["column 'b', line 3", "first of 2 lines", "text"]),
    "text below quotes": (f'a,b,n,y\n1,2,"x\ny",0\n1,{SECRET},z,0\n', {}, ["column 'b', line 4"]),
    "decimal comma": ("a;b;y\n1,5;2;0\n", {"delimiter": ";"}, ["column 'a', line 2", "text"]),
    "underscore": ("a,b,y\n1_000,2,0\n", {}, ["column 'a', line 2", "text"]),
    "infinity": ("a,b,y\n1,2,0\n1,inf,0\n", {}, ["column 'b', line 3", "infinite"]),
    "too large": ("a,b,y\n1,1e999,0\n", {}, ["column 'b', line 2", "infinite"]),
    "undeclared nan": ("a,b,y\n1,nan,0\n", {"missing": [""]}, ["column 'b', line 2", "not a number"]),
    "no value": ("a,b,y\n1,2,0\n1,,0\n,,1\n", {}, ["'b', line 3 (the first of 2 lines): no value", "'a', line 4"]),
    "no target": ("a,b,y\n1,2,0\n1,2,\n", {}, ["column 'y', line 3: no value"]),
    "unknown class": (f"a,b,y\n1,2,0\n1,2,{SECRET}\n", {}, ["column 'y', line 3", "does not know", "0, 1", "`labels`"]),
    "007": ("a,b,y\n1,2,0\n1,2,01\n", {}, ["column 'y', line 3", "does not know"]),
    "long class": (f"a,b,y\n1,2,{SECRET * 30}\n", {}, ["column 'y', line 2", "256 characters"]),
    "short row": (f"a,b,y\n1,2,0\n{SECRET},2\n", {}, ["line 3 has 2 cells but the header has 3"]),
    "long row": (f"a,b,y\n1,2,0,{SECRET}\n", {}, ["line 2 has 4 cells"]),
    "not utf-8": (b"a,b,y\n1,2,0\n\xff\xfe\xe4,2,0\n", {}, ["line 3: bytes that are not utf-8", "`encoding`"]),
    "utf-16": (GOOD.encode("utf-16"), {}, ["UTF-16", "`encoding`"]),
    "unknown encoding": (GOOD, {"encoding": "klingon"}, ["unknown encoding", "`encoding`"]),
    "not a text encoding": (GOOD, {"encoding": "base64"}, ["not an encoding of text", "`encoding`"]),
    "open quote": (f'a,b,y\n1,2,0\n1,2,"{SECRET}\n', {}, ["line 3: malformed quotes"]),
    "open quote, last column unused": (f'a,b,y,n\n1,2,0,"{SECRET}\n1,2,1,x\n', {}, ["line 2: malformed quotes"]),
    "huge cell": ("a,b,y\n1,2," + "9" * 200_000 + "\n\n", {}, ["line 2: malformed quotes"]),
    "newline as delimiter": (GOOD, {"delimiter": "\n"}, ["cannot separate columns", "`delimiter`"]),
    "quote as delimiter": (GOOD, {"delimiter": '"'}, ["cannot separate columns"]),
    "binary": (b"\x00\x01\x02" * 99, {}, ["not text but binary", "`format`"]),
    "parquet": (b"PAR1" + b"\0" * 9, {}, ["Parquet", "`format`"]),
    "npz": (b"PK\x03\x04" + b"\0" * 9, {}, ["zip or NPZ", "`format`"]),
    "gzip": (b"\x1f\x8b" + b"\0" * 9, {}, ["gzip"]),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_CSV)
def test_bad_csv_is_refused_by_place_without_content(tmp_path: Path, case: str) -> None:
    """A fault in a CSV is told by file, column and line, without the content of a cell."""
    text, file, expected = BAD_CSV[case]
    with pytest.raises(DataError) as caught:
        read_csv(tmp_path, text, **file)
    message = str(caught.value)
    for part in ["data set heart, train (site.csv)", *expected]:
        assert part in message
    assert SECRET not in message
    assert str(tmp_path) not in message, "folders of the site are not told"
    assert caught.value.__cause__ is None or SECRET not in str(caught.value.__cause__)


def test_all_faults_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    """A file with two faults is refused with both."""
    with pytest.raises(DataError) as caught:
        read_csv(tmp_path, "a,b,y\nx,2,0\n1,x,0\n1,2,0\n")
    assert [line.split(": ")[1] for line in str(caught.value).splitlines()] == [
        "column 'a', line 2",
        "column 'b', line 3",
    ]


def test_dropping_every_row_is_refused(tmp_path: Path) -> None:
    """A file in which every row has a gap is refused."""
    with pytest.raises(DataError, match="all 2 rows lack a value"):
        read_csv(tmp_path, "a,b,y\n1,,0\n,2,1\n", schema(missing=MissingRule.DROP_ROWS))


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


X = np.array([[1.0, 2.0], [3.0, 4.0]])
Y = np.array([0, 1])
BAD_NPZ: dict[str, tuple[dict[str, Any], list[str]]] = {
    "objects": ({"x": np.array([[1, SECRET]], dtype=object), "y": Y}, ["array 'x'", "Python objects"]),
    "object labels": ({"x": X, "y": np.array([0, SECRET], dtype=object)}, ["array 'y'", "Python objects"]),
    "unequal": ({"x": X, "y": np.array([0, 1, 1])}, ["'y' has shape (3,)", "2 rows"]),
    "two-dimensional y": ({"x": X, "y": Y[:, None]}, ["'y' has shape (2, 1)"]),
    "one-dimensional x": ({"x": X[0], "y": Y}, ["'x' has shape (2,)"]),
    "text x": ({"x": np.array([["1", SECRET]]), "y": Y[:1]}, ["type <U"]),
    "complex x": ({"x": X.astype(complex), "y": Y}, ["type complex128"]),
    "no y": ({"x": X, "target": Y}, ["no array 'y' but columns, x, target", "`y_key`"]),
    "no rows": ({"x": X[:0], "y": Y[:0]}, ["has no rows"]),
    "infinity": ({"x": np.array([[1, 2], [np.inf, 4]]), "y": Y}, ["column 'a', row 2", "infinite"]),
    "NaN": ({"x": np.array([[1, 2], [np.nan, 4]]), "y": Y}, ["column 'a', row 2: no value"]),
    "unknown class": ({"x": X, "y": np.array(["0", SECRET])}, ["column 'y', row 2", "does not know"]),
    "too few names": ({"x": X, "y": Y, "columns": np.array(["a"])}, ["1 column names for the 2 columns"]),
    "other names": ({"x": X, "y": Y, "columns": np.array(["a", "c"])}, ["column 'b' is missing"]),
    "names of a wrong type": ({"x": X, "y": Y, "columns": np.array([1, 2])}, ["'columns' must be text"]),
    "dates": ({"x": X, "y": Y.astype("datetime64[s]")}, ["cannot name classes"]),
    "bytes": ({"x": X, "y": np.array([b"0", b"\xff"])}, ["not UTF-8"]),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_NPZ)
def test_bad_npz_is_refused_by_place_without_content(tmp_path: Path, case: str) -> None:
    """A fault in an npz file is told by array and row, without the content of a cell."""
    arrays, expected = BAD_NPZ[case]
    np.savez(tmp_path / "site.npz", **({"columns": np.array(["a", "b"])} | arrays))
    message = ""
    with pytest.raises(DataError) as caught:
        read(tmp_path / "site.npz")
    message = str(caught.value)
    for part in ["data set heart, train (site.npz)", *expected]:
        assert part in message.replace("<U12", "<U")
    assert SECRET not in message


def test_files_that_only_claim_to_be_npz_are_refused(tmp_path: Path) -> None:
    """Text, damaged archives, single arrays and impossible sizes are refused under the name of the file."""
    path = tmp_path / "site.npz"
    np.savez(path, x=X, y=Y)
    content = path.read_bytes()
    for damaged in (b"a,b,y\n", content[:-30], b"\x80\x04.", content[:60] + b"\xff" * 60 + content[120:]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"site\.npz"):
            read(path)
    with path.open("wb") as file:
        np.save(file, X)
    with pytest.raises(DataError, match="single array"):
        read(path)
    with zipfile.ZipFile(path, "w") as archive:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**13, 2)})
        archive.writestr("x.npy", header.getvalue())
    with pytest.raises(DataError, match=r"memory|damaged"):
        read(path)


# Classes and the split


def local(tmp_path: Path, text: str, wanted: DataSchema, test: str | None = None) -> Any:
    (tmp_path / "train.csv").write_text(text)
    (tmp_path / "test.csv").write_text(test or "")
    section = DatasetSection(
        train=PartitionFile(path=tmp_path / "train.csv"),
        test=PartitionFile(path=tmp_path / "test.csv") if test else None,
    )
    return load_local_data(ClientFile(datasets={"heart": section}), "heart", wanted, "va")


def table(labels: list[str]) -> str:
    return "a,b,y\n" + "".join(f"{i},{i},{label}\n" for i, label in enumerate(labels))


def test_one_class_is_allowed_and_noted(tmp_path: Path) -> None:
    """A client with one class takes part, with a note."""
    data = local(tmp_path, table(["1"] * 8), schema())
    assert data.classes == ("1",)
    assert "one class" in data.notes[0]
    assert (data.train.num_rows, data.test.num_rows) == (6, 2)


def test_a_test_partition_is_taken_whole(tmp_path: Path) -> None:
    """With test rows of its own a client holds out none of its training rows."""
    data = local(tmp_path, table(["0"] * 8), schema(), test=table(["1", "0"]))
    assert (data.train.num_rows, data.test.num_rows, data.classes) == (8, 2, ("0", "1"))


def test_a_faulty_test_partition_is_named(tmp_path: Path) -> None:
    """A fault in the test rows names the test file."""
    with pytest.raises(DataError, match=r"data set heart, test \(test\.csv\): column 'y', line 3"):
        local(tmp_path, table(["0"] * 8), schema(), test=table(["1", "2"]))


def test_a_data_set_that_is_not_offered_is_named() -> None:
    """A data set that the client file lacks is named in the refusal."""
    with pytest.raises(DataError, match=r"'heart' is not offered here \(offered: none\)"):
        load_local_data(ClientFile(), "heart", schema(), "va")


def test_labels_never_leave_where_the_target_is_no_class(tmp_path: Path) -> None:
    """A refusal of a target with too many values tells their number and none of them."""
    text = table([f"{SECRET}-{i}" for i in range(40)])
    with pytest.raises(DataError, match="40 different values in 40 rows") as caught:
        local(tmp_path, text, schema(task=LearningTask.CLASSIFICATION, classes=()))
    assert SECRET not in str(caught.value)
    with pytest.raises(DataError, match="40 classes but the task is binary") as caught:
        local(tmp_path, text, schema(classes=()))
    assert SECRET not in str(caught.value)


@given(
    labels=st.lists(st.sampled_from("abcde"), min_size=1, max_size=60),
    fraction=st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9]),
    seed=st.integers(0, 2**63 - 1),
)
def test_the_split_is_stratified_and_deterministic(labels: list[str], fraction: float, seed: int) -> None:
    """Held-out rows are the same each time, in proportion for each class, and leave each class a training row."""
    held_out = held_out_rows(labels, len(labels), fraction, seed, "va")
    assert (held_out == held_out_rows(list(labels), len(labels), fraction, seed, "va")).all()
    total = 0
    for name in set(labels):
        here = np.array([label == name for label in labels])
        n, k = here.sum(), held_out[here].sum()
        assert k <= n - 1, "every class keeps a training row"
        assert abs(k - fraction * n) < 1 or k == n - 1
        total += int(k)
    assert total <= int(fraction * len(labels) + 0.5)
    if all(labels.count(name) - 1 >= fraction * labels.count(name) + 1 for name in set(labels)):
        assert total == int(fraction * len(labels) + 0.5)


def test_the_split_depends_on_seed_and_client_alone() -> None:
    """Another seed or another client holds out other rows."""
    base = held_out_rows(None, 100, 0.25, 1, "va")
    assert base.sum() == 25
    assert (base != held_out_rows(None, 100, 0.25, 2, "va")).any()
    assert (base != held_out_rows(None, 100, 0.25, 1, "cleveland")).any()


def test_one_row_is_a_training_row() -> None:
    """A single row is never held out."""
    assert held_out_rows(None, 1, 0.9, 1, "va").tolist() == [False]


# Properties

NUMBERS = st.floats(-1e100, 1e100)
LABELS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=5)
NOTES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
"""Any text; a file with a NUL is taken for binary, and refused."""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(60))
@given(
    rows=st.lists(st.tuples(NUMBERS, NUMBERS, LABELS, NOTES), min_size=1, max_size=8),
    order=st.permutations(["a", "b", "y", "note"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    line_end=st.sampled_from(["\n", "\r\n"]),
    delimiter=st.sampled_from([",", ";", "\t"]),
    bom=st.booleans(),
)
def test_csv_round_trip(
    tmp_path: Path, rows: list[Any], order: list[str], quoting: int, line_end: str, delimiter: str, bom: bool
) -> None:
    """What the csv module writes in any style is read back to the bit."""
    if quoting == csv.QUOTE_MINIMAL and line_end == "\n":  # Python before 3.13 leaves a bare \r without quotes then
        rows = [(a, b, y, note.replace("\r", "")) for a, b, y, note in rows]
    out = io.StringIO()
    writer = csv.DictWriter(out, order, quoting=quoting, lineterminator=line_end, delimiter=delimiter)  # type: ignore[arg-type]  # an int of the csv module
    writer.writeheader()
    writer.writerows({"a": repr(a), "b": b, "y": y, "note": note} for a, b, y, note in rows)
    encoded = out.getvalue().encode("utf-8-sig" if bom else "utf-8", "surrogatepass")
    wanted = schema(task=LearningTask.CLASSIFICATION, classes=())
    data = read_csv(tmp_path, encoded, wanted, delimiter=delimiter, missing=[])
    assert data.x.tolist() == [[a, b] for a, b, _, _ in rows]
    assert data.labels == [label_text(y) for _, _, y, _ in rows]


CELLS = st.one_of(
    st.sampled_from(["1", " 2", "-3.5e2", ".5", "5.", "NA", "", " ", "nan", "inf", "1e999", "0x1", "1_0", "\u0661"]),
    st.text(st.characters(codec="ascii"), max_size=4),
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(150))
@given(rows=st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=5), regress=st.booleans())
def test_fast_and_careful_reading_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[tuple[str, str, str]], regress: bool
) -> None:
    """The fast and the careful reader give the same data or the same refusal."""
    text = "a,b,y\n" + "".join(",".join(row) + "\n" for row in rows)
    wanted = regression(missing=MissingRule.DROP_ROWS) if regress else schema(classes=(), missing=MissingRule.DROP_ROWS)

    def outcome() -> Any:
        try:
            data = read_csv(tmp_path, text, wanted)
        except DataError as err:
            return str(err)
        return data.x.tolist(), data.labels, data.y is not None and data.y.tolist(), data.row_numbers.tolist()

    either = outcome()
    with monkeypatch.context() as patch:
        patch.setattr(csv_reader, "_read_fast", lambda *_: None)
        assert outcome() == either


def test_a_clean_file_is_read_fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file without faults never meets the careful reader."""

    def never(*_: Any) -> None:
        raise AssertionError("a clean file needs no careful reading")

    monkeypatch.setattr(csv_reader, "_read_carefully", never)
    n = 50_000
    lines = [f"{i}.25,{i % 7},{i % 2}\n" for i in range(n)]
    data = read_csv(tmp_path, "a,b,y\n" + "".join(lines))
    assert (data.num_rows, data.row_numbers[-1], data.x[-1, 0]) == (n, n + 1, n - 0.75)


@pytest.mark.parametrize("column", ["a", "y"])
def test_numbers_of_no_use_are_refused(tmp_path: Path, column: str) -> None:
    """A feature or target of 1e160 is refused by its column and line."""
    rows = {"a": "1", "b": "2", "y": "3"} | {column: "1e160"}
    with pytest.raises(DataError, match=rf"column '{column}', line 3: a number beyond 1e\+100"):
        read_csv(tmp_path, f"a,b,y\n1,2,3\n{rows['a']},{rows['b']},{rows['y']}\n", regression())


@pytest.mark.parametrize("name", ["csv", "parquet", "npz"])
def test_a_test_partition_without_rows_is_no_test_rows(tmp_path: Path, name: str) -> None:
    """A test partition that names its columns and has no row means that nothing is measured here."""
    train, test = tmp_path / "train.csv", tmp_path / f"test.{name}"
    train.write_text(GOOD)
    if name == "csv":
        test.write_text("a,b,y\n")
    elif name == "parquet":
        pq.write_table(pa.table({"a": pa.array([], pa.float64()), "b": [], "y": pa.array([], pa.string())}), test)
    else:
        np.savez(test, x=np.zeros((0, 2)), y=np.array([], dtype=str), columns=np.array(["a", "b"]))
    section = DatasetSection(train=PartitionFile(path=train), test=PartitionFile(path=test))
    data = load_local_data(ClientFile(datasets={"heart": section}), "heart", schema(), "ann")
    assert (data.train.num_rows, data.test.num_rows) == (2, 0)
    assert data.notes == ("the test partition has no rows, so nothing is measured at this client",)
