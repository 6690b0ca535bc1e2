"""The same number, class or refusal from every kind of file, and from streams."""

from __future__ import annotations

import csv
import datetime
import json
import math
import tempfile
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernfed.errors import ConfigError, DataError
from kernfed.federation.messages.data import DataSchema, LearningTask, MissingRule
from kernfed.jobs.client_file import ClientFile, DatasetSection, PartitionFile, StreamFile
from kernfed.tables.cells import EXACT, Misread, read_value
from kernfed_client.data.reading.partitions import read_partition
from kernfed_client.streams.feeds import Spool
from kernfed_client.streams.folder import FolderStream
from kernfed_client.streams.sources import stream_of
from kernfed_testing.properties import examples


def schema(task: LearningTask = LearningTask.REGRESSION, classes: tuple[str, ...] = ()) -> DataSchema:
    return DataSchema(
        task=task,
        target="y",
        features=("a",),
        classes=classes,
        missing=MissingRule.DROP_ROWS,
        test_fraction=0.0,
        seed=1,
    )


def write(folder: Path, name: str, a: Sequence[Any], y: Sequence[Any]) -> Path:
    """One table in one format."""
    path = folder / f"rows.{name}"
    if name == "csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([("a", "y"), *zip(a, y, strict=True)])
    elif name == "jsonl":
        path.write_text("".join(json.dumps({"a": u, "y": v}) + "\n" for u, v in zip(a, y, strict=True)))
    elif name == "parquet":
        pq.write_table(pa.table({"a": pa.array(a), "y": pa.array(y)}), path)
    else:
        np.savez(path, x=np.array(a)[:, None], y=np.array(y), columns=np.array(["a"]))
    return path


def numbers(path: Path, missing: Sequence[str] = ("",)) -> list[tuple[float, float]] | None:
    """Rows that are read of a file, without those with gaps; None: it is refused."""
    if path.suffix == ".jsonl":
        file = StreamFile(path=path.parent, source="follow", missing=list(missing))
        chunk = FolderStream(path.parent, file, schema(), "d").read({}, 100)
        return [(float(row.x[0]), float(row.y or 0)) for row in chunk.rows if row.x is not None]
    try:
        part = read_partition(PartitionFile(path=path, missing=list(missing)), schema(), "d", "train")
    except DataError:
        return None
    assert part.y is not None
    return list(zip(part.x[:, 0].tolist(), part.y.tolist(), strict=True))


CELLS = st.one_of(st.floats(-1e99, 1e99), st.integers(-(2**60), 2**60), st.booleans())


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(CELLS, min_size=1, max_size=4), st.sampled_from([float, int, bool]))
def test_one_table_reads_alike_from_every_kind_of_file(cells: list[float], kind: type) -> None:
    """A table of one type is the same rows from CSV, Parquet, NPZ and JSON lines, or refused (lines: left out)."""
    column = [kind(min(max(cell, -(2**60)), 2**60)) for cell in cells]
    y = [float(i) for i in range(len(column))]
    with tempfile.TemporaryDirectory() as folder:
        found = {name: numbers(write(Path(folder), name, column, y)) for name in ("csv", "parquet", "npz")}
        apart = Path(folder) / "stream"
        apart.mkdir()
        lines = numbers(write(apart, "jsonl", column, y))
    assert found["csv"] == found["parquet"] == found["npz"]
    fits = [(float(u), v) for u, v in zip(column, y, strict=True) if kind is not int or abs(u) <= EXACT]
    assert lines == fits
    assert found["csv"] == (fits if len(fits) == len(column) else None)


@pytest.mark.parametrize("name", ["csv", "parquet", "npz", "jsonl"])
def test_missing_tokens_hold_for_numbers_of_every_format(tmp_path: Path, name: str) -> None:
    """-999 means no value whether it is text, an integer or a float."""
    path = write(tmp_path, name, [1.5, -999.0, 2.5], [1.0, 2.0, -999.0])
    assert numbers(path, ["-999"]) == [(1.5, 1.0)]


@pytest.mark.parametrize("name", ["csv", "parquet", "npz"])
def test_missing_tokens_and_booleans_of_classes(tmp_path: Path, name: str) -> None:
    """`NA` and `?` are no classes, and True is one class however it is stored."""
    y = ["yes", "NA", "?", "no"]
    file = PartitionFile(path=write(tmp_path, name, [1.0, 2.0, 3.0, 4.0], y))
    assert read_partition(file, schema(LearningTask.BINARY), "d", "train").labels == ["yes", "no"]
    file = PartitionFile(path=write(tmp_path, name, [1.0, 2.0], [True, False]))
    for classes, labels in (((), ["true", "false"]), (("False", "True"), ["True", "False"])):
        assert read_partition(file, schema(LearningTask.BINARY, classes), "d", "train").labels == labels
    renamed = file.model_copy(update={"labels": {"True": "ill", "false": "well"}})
    assert read_partition(renamed, schema(LearningTask.BINARY), "d", "train").labels == ["ill", "well"]


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("1_000", Misread.TEXT),
        ("1,5", Misread.COMMA),
        ("-1.234,56", Misread.COMMA),
        ("1,5 mg", Misread.TEXT),
        ("\u0661\u0662", Misread.TEXT),
        ("\u00a01", Misread.TEXT),
        ("1\u00a0000", Misread.TEXT),
        (" 1 ", 1.0),
        ("+nan", Misread.NAN),
        (str(EXACT), float(EXACT)),
        (str(EXACT + 1), Misread.INTEGER),
        (EXACT + 1, Misread.INTEGER),
        (-EXACT - 1, Misread.INTEGER),
        (10**400, Misread.INTEGER),
        ("9" * 400, Misread.INTEGER),
        ("9e20", 9e20),
        (Decimal("1.25"), 1.25),
        (Decimal(EXACT + 1), Misread.INTEGER),
        (True, 1.0),
        ("FALSE", 0.0),
        (datetime.date(2024, 1, 1), Misread.TEXT),
        ([1], Misread.TEXT),
    ],
)
def test_one_rule_for_each_odd_number(cell: object, value: object) -> None:
    """Each odd way to write a number has one meaning."""
    assert read_value(cell, PartitionFile(path=Path("x.csv"))) == value


def test_no_value() -> None:
    """Null, NaN and a token are no value."""
    file = PartitionFile(path=Path("x.csv"), missing=["-999", "gone"])
    found = [read_value(cell, file) for cell in (None, math.nan, "-999.0", -999, " gone ")]
    assert all(isinstance(value, float) and math.isnan(value) for value in found)


def test_unsigned_and_decimal_columns(tmp_path: Path) -> None:
    """Ids of 64 bits are refused with the reason, small decimals are numbers."""
    path = tmp_path / "rows.parquet"
    for column in (pa.array([2**63 + 1], pa.uint64()), pa.array([Decimal(2**60)], pa.decimal128(38, 0))):
        pq.write_table(pa.table({"a": column, "y": [1.0]}), path)
        with pytest.raises(DataError, match=r"column 'a', row 1: an integer beyond 2\^53, which would be rounded"):
            read_partition(PartitionFile(path=path), schema(), "d", "train")
    pq.write_table(pa.table({"a": pa.array([Decimal("2.5")], pa.decimal128(5, 1)), "y": [1.0]}), path)
    assert numbers(path) == [(2.5, 1.0)]


@pytest.mark.parametrize("line", ["[" * 100_000, '{"a": ' * 100_000, '{"a": 1, "y": ' + "9" * 400 + "}"])
def test_odd_json_is_left_out(tmp_path: Path, line: str) -> None:
    """JSON that is too deep, or an integer of 400 digits, leaves its line out and nothing else."""
    path = tmp_path / "rows.jsonl"
    path.write_text(line + '\n{"a": 1, "y": 2}\n')
    assert numbers(path) == [(1.0, 2.0)]


def test_deep_json_is_refused_at_the_door(tmp_path: Path) -> None:
    """A sender of JSON that is too deep is told so."""
    spool = Spool(tmp_path / "spool")
    with pytest.raises(ValueError, match="too deep"):
        spool.take(b'{"a": ' + b"[" * 100_000)
    assert spool.take(b'{"a": 1}') == 1
    spool.close()


@pytest.mark.parametrize("order", ["le", "be"])
@pytest.mark.parametrize("width", ["utf-16", "utf-32"])
def test_byte_order_marks_of_either_order(tmp_path: Path, width: str, order: str) -> None:
    """A mark does not become part of the first column's name, and one of the other order is told."""
    path = tmp_path / "rows.csv"
    path.write_bytes("\ufeffa,y\n1,2\n".encode(f"{width}-{order}"))
    for encoding in (width, f"{width}-{order}"):
        part = read_partition(PartitionFile(path=path, encoding=encoding), schema(), "d", "train")
        assert part.x.tolist() == [[1.0]]
    other = f"{width}-{'be' if order == 'le' else 'le'}"
    with pytest.raises(DataError, match="mark of the other order"):
        read_partition(PartitionFile(path=path, encoding=other), schema(), "d", "train")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "idna", "undefined", "base64", "hex"])
def test_a_wrong_declaration_ends_in_a_sentence(tmp_path: Path, encoding: str) -> None:
    """Text that is not in the declared encoding is refused with the key to correct."""
    path = tmp_path / "rows.csv"
    path.write_bytes("a,y\n1,2\n3,\u00e4\n".encode())
    with pytest.raises(DataError, match=r"encoding|rename"):
        read_partition(PartitionFile(path=path, encoding=encoding), schema(), "d", "train")


def test_a_stream_that_is_followed_has_lines_of_bytes(tmp_path: Path) -> None:
    """An encoding whose line breaks are not one byte is refused for a folder that grows."""
    (tmp_path / "train.csv").write_text("a,y\n1,2\n3,4\n")
    stream = StreamFile(path=tmp_path, source="follow", encoding="utf-16")
    section = DatasetSection(train=PartitionFile(path=tmp_path / "train.csv"), stream=stream)
    file = ClientFile(state=tmp_path / "state", datasets={"d": section})
    with pytest.raises(ConfigError, match="write it as utf-8, and correct `encoding`"):
        stream_of(file, "d", schema(), ())
