"""Digests of whole records: the same for the same content, in every format and however a job reads its columns."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kernfed.errors import DataError
from kernfed.jobs.client_file import PartitionFile
from kernfed.rng import Words
from kernfed.tables import records
from kernfed.tables.raw_table import RawTable, Source
from kernfed.tables.read import read

CELLS = {
    "a": ["1.5", "2", "-0", "1e3", "?"],
    "b": ["true", "false", "TRUE", "", "true"],
    "name": ["007", " seven", "x,y", "NA", "\u00fcber"],
    "big": ["9007199254740993", "9007199254740994", "5", "6", "7"],
    "day": ["2020-01-01", "2020-01-02", "", "2020-01-04", "2020-01-05"],
    "at": ["2020-01-01 00:00:10", "2020-01-01 00:00:01.5", "", "2020-01-01 00:00:00", "2020-01-01 00:00:02"],
    "price": ["0.07", "0.29", "", "10.00", "-1.10"],
    "y": ["1", "2", "3", "4", "5"],
}

SECONDS = (10.0, 1.5, None, 0.0, 2.0)


def table(path: Path, features: tuple[str, ...] = (), **file: object) -> RawTable:
    """A file as a job with these features reads it."""
    source = Source(PartitionFile(path=path, **file), "rows", features, "y", with_records=True)
    return read(source)


def written(path: Path, end: str = "\n") -> Path:
    """The cells as a CSV file."""
    lines = [",".join(CELLS), *(",".join(f'"{c}"' for c in row) for row in zip(*CELLS.values(), strict=True))]
    path.write_text("\n".join(lines) + end, encoding="utf-8")
    return path


def words(path: Path, features: tuple[str, ...] = (), **file: object) -> Words:
    found = table(path, features, **file).records
    assert found is not None
    return found


def test_every_reading_has_the_same_digests(tmp_path: Path) -> None:
    """By Arrow and by the careful reading, from typed columns, in another order, and with columns as numbers."""
    base = words(written(tmp_path / "a.csv"))
    assert len(set(base.tolist())) == 5
    assert (words(written(tmp_path / "b.csv", "\n\n")) == base).all(), "read carefully, for a blank line"
    assert (words(tmp_path / "a.csv", ("b",), missing=["", "NA", "?"]) == base).all()
    typed = {
        "y": pa.array([1, 2, 3, 4, 5]),
        "day": pa.array([date(2020, 1, d) if d != 3 else None for d in range(1, 6)]),
        "big": pa.array([9007199254740993, 9007199254740994, 5, 6, 7]),
        "a": pa.array([1.5, 2.0, 0.0, 1000.0, None]),
        "b": pa.array([True, False, True, None, True]),
        "name": pa.array(["007", "seven", "x,y", None, "\u00fcber"]),
        "at": pa.array([None if s is None else datetime(2020, 1, 1) + timedelta(seconds=s) for s in SECONDS]),
        "price": pa.array([None if not c else Decimal(c) for c in CELLS["price"]]),
        "several": pa.array([[1], [2], [], None, [3]]),
    }
    pq.write_table(pa.table(typed), tmp_path / "a.parquet")
    assert (words(tmp_path / "a.parquet") == base).all()


def test_a_column_of_any_type_may_lie_beside(tmp_path: Path) -> None:
    """Moments of zones that this machine does not know, durations and structures are in nobody's way."""
    beside = {
        "at": pa.array([1, 2, None], pa.timestamp("us", tz="Nowhere/Land")),
        "kept": pa.array([1, 2, 2], pa.timestamp("ns")).dictionary_encode(),
        "took": pa.array([1, None, 3], pa.duration("s")),
        "all": pa.array([{"a": 1}, None, {"a": 2}]),
        "none": pa.nulls(3),
    }
    pq.write_table(pa.table({**beside, "y": pa.array([1.0, 1.0, 1.0])}), tmp_path / "a.parquet")
    assert len(set(words(tmp_path / "a.parquet").tolist())) == 3


def test_every_cell_and_name_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that changes changes its record alone, a column that is renamed all; batches make no difference."""
    base = words(written(tmp_path / "a.csv", "\n\n"))
    monkeypatch.setattr(records, "_BATCH", 2)
    assert (words(tmp_path / "a.csv") == base).all()
    text = (tmp_path / "a.csv").read_text(encoding="utf-8")
    (tmp_path / "a.csv").write_text(text.replace('"007"', '"008"'), encoding="utf-8")
    assert (words(tmp_path / "a.csv") != base).tolist() == [True, False, False, False, False]
    (tmp_path / "a.csv").write_text(text.replace("name", "surname", 1), encoding="utf-8")
    assert (words(tmp_path / "a.csv") != base).tolist() == [True, True, True, False, True]


def test_an_npz_file_is_as_a_table_of_its_arrays(tmp_path: Path) -> None:
    """The columns of x and y, as a CSV file has them."""
    x, y = np.array([[1.0, 2.0], [3.0, np.nan]]), np.array([5.0, 6.0])
    np.savez(tmp_path / "a.npz", x=x, y=y, columns=np.array(["a", "b"]))
    (tmp_path / "a.csv").write_text("y,b,a\n5,2,1\n6,,3\n")
    assert (words(tmp_path / "a.npz") == words(tmp_path / "a.csv")).all()


def test_a_group_that_is_no_names_is_refused(tmp_path: Path) -> None:
    """An array of another shape than the rows."""
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 1)), y=np.zeros(2), who=np.zeros((2, 2)))
    source = Source(PartitionFile(path=tmp_path / "a.npz"), "rows", ("x0",), "y", group="who")
    with pytest.raises(DataError, match="array 'who', the group, has shape"):
        read(source)


def groups(path: Path) -> list[int]:
    found = read(Source(PartitionFile(path=path), "rows", ("x",), "y", group="who")).group
    assert found is not None
    return [int(word) for word in found]


def test_spellings_of_a_name_are_one_group(tmp_path: Path) -> None:
    """As classes are compared: case, blanks, width, how a letter is composed, 1 and 1.0; and dates from Parquet."""
    names = ["Ann", " ann ", "ANN", "\u00e9va", "e\u0301va", "1", "1.0", "\uff11", "2", "007"]
    (tmp_path / "a.csv").write_text("x,y,who\n" + "".join(f"1,2,{name}\n" for name in names), encoding="utf-8")
    found = groups(tmp_path / "a.csv")
    assert [found.index(word) for word in found] == [0, 0, 0, 3, 3, 5, 5, 5, 8, 9]
    numbers = [1.0] * len(names)
    for values in (range(len(names)), [date(2020, 1, 1 + i) for i in range(len(names))]):
        pq.write_table(pa.table({"x": numbers, "y": numbers, "who": list(values)}), tmp_path / "a.parquet")
        lines = "".join(f"1,2,{value}\n" for value in values)
        (tmp_path / "b.csv").write_text(f"x,y,who\n{lines}")
        assert groups(tmp_path / "a.parquet") == groups(tmp_path / "b.csv")


@pytest.mark.parametrize("name", [b"ann", ["ann"], {"name": "ann"}])
def test_a_group_of_a_type_that_names_nothing_is_refused(tmp_path: Path, name: object) -> None:
    """The type is told, instead of that all rows lack a value."""
    pq.write_table(pa.table({"x": [1.0], "y": [1.0], "who": pa.array([name])}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"column 'who', the group, is of type .*, which names nothing"):
        groups(tmp_path / "a.parquet")
