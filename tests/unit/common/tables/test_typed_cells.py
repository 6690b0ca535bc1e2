"""Cells of typed columns in each kind of file: one meaning, and refusals with file, column and row and no content."""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kernfed.columns.plan import ColumnKind, ColumnPlan, MissingRule, UnknownRule
from kernfed.errors import ConfigError, DataError
from kernfed.jobs.client_cells import CellSection
from kernfed.jobs.client_file import PartitionFile
from kernfed.jobs.toml_file import parse_toml
from kernfed.tables.raw_table import RawTable, Source
from kernfed.tables.read import read
from kernfed.tables.typed_cells import CellReader, cell_readers

SECRET = "s3cr3t"


def plan(kind: ColumnKind, name: str = "a", **facts: Any) -> ColumnPlan:
    """A settled plan."""
    return ColumnPlan(**{"name": name, "kind": kind, "missing": MissingRule.REFUSE, "settled": True, **facts})


NUMBER, TRUTH = plan(ColumnKind.NUMBER), plan(ColumnKind.BOOLEAN)
DATE = plan(ColumnKind.DATE, since="2020-01-01")
SEX = plan(ColumnKind.CATEGORY, levels=("female", "male"))
STAGE = plan(ColumnKind.ORDINAL, levels=("I", "II", "III"))


def cell(of: ColumnPlan, value: object, how: dict[str, Any] | None = None) -> float | str:
    """The number of a cell, or its problem."""
    section = CellSection(**(how or {}))
    return CellReader(of, PartitionFile(path=Path("x.csv")), section, lambda name: f"`{name}`").read(value)


@pytest.mark.parametrize(
    ("of", "value", "how", "number"),
    [
        (NUMBER, "1.234,5", {"decimal": ",", "thousands": "."}, 1234.5),
        (NUMBER, "-3,25", {"decimal": ","}, -3.25),
        (NUMBER, "12 345", {"thousands": " "}, 12345.0),
        (NUMBER, "<5", {"values": {"<5": "2.5"}, "decimal": ","}, 2.5),
        (NUMBER, 7, {}, 7.0),
        (SEX, "M", {"values": {"M": "male"}}, 1.0),
        (SEX, " female ", {}, 0.0),
        (plan(ColumnKind.CATEGORY, levels=("1", "2")), 2.0, {}, 1.0),
        (plan(ColumnKind.CATEGORY, levels=("true", "false")), True, {}, 0.0),
        (STAGE, "III", {}, 2.0),
        (TRUTH, "Yes", {}, 1.0),
        (TRUTH, "nein", {"values": {"nein": "no"}}, 0.0),
        (TRUTH, False, {}, 0.0),
        (DATE, "2020-01-31", {}, 30.0),
        (DATE, "2020-01-02 12:00", {}, 1.5),
        (DATE, "02.01.2020", {"date_format": "%d.%m.%Y"}, 1.0),
        (DATE, "2020-01-02T00:00:00+00:00", {}, 1.0),
    ],
)
def test_a_cell_is_one_number(of: ColumnPlan, value: object, how: dict[str, Any], number: float) -> None:
    """As the client file says that it is written, and the job what it is."""
    assert cell(of, value, how) == number


@pytest.mark.parametrize("value", ["", "NA", None, math.nan, "-"])
def test_tokens_of_the_file_and_of_the_column_are_gaps(value: object) -> None:
    """The column's own token is one in this column alone."""
    assert all(math.isnan(float(cell(of, value, {"missing": ["-"]}))) for of in (NUMBER, TRUTH, DATE, SEX, STAGE))
    assert isinstance(cell(SEX, "-"), str)


@pytest.mark.parametrize(
    ("of", "value", "how", "says"),
    [
        (NUMBER, "1.2345", {"decimal": ","}, "otherwise than was said"),
        (NUMBER, "1.23,4", {"decimal": ",", "thousands": "."}, "otherwise than was said"),
        (NUMBER, SECRET, {"decimal": ","}, "text where a number is needed"),
        (plan(ColumnKind.NUMBER, log1p=True), "-1", {}, "log"),
        (SEX, SECRET, {}, r"does not know \(it knows female, male\)"),
        (STAGE, SECRET, {}, "it knows I, II, III"),
        (TRUTH, "2", {}, "neither true nor false"),
        (DATE, "31.01.2020", {}, "no date"),
        (DATE, 43831, {}, "no date"),
    ],
)
def test_a_cell_that_does_not_fit_is_told_without_its_content(
    of: ColumnPlan, value: object, how: dict[str, Any], says: str
) -> None:
    """The problem names the remedy, and the setting of the client file."""
    found = str(cell(of, value, how))
    assert says.replace("\\", "") in found
    assert SECRET not in found
    assert "correct it" in found


def test_a_unit_is_converted_where_the_job_asks_for_another() -> None:
    """By a factor, or a factor and an addend; the file's own unit, and no unit, leave numbers as they are."""
    how = {"unit": "C", "convert": {"F": [1.8, 32.0], "mC": 1000}}
    assert [cell(plan(ColumnKind.NUMBER, unit=unit), "10", how) for unit in ("", "C", "F", "mC")] == [10, 10, 50, 10000]
    assert CellSection(**how).knows_unit("F")
    assert not CellSection(**how).knows_unit("K")
    assert CellSection().knows_unit("K")


def test_unknown_levels_get_places_of_their_own() -> None:
    """Behind those of the job, by name, so that rows of few can be told from those of many."""
    of = plan(ColumnKind.CATEGORY, levels=("x",), unknown=UnknownRule.OTHER)
    reader = CellReader(of, PartitionFile(path=Path("x.csv")), None, lambda _: None)
    assert [reader.read(level) for level in ("x", "y", "z", "y")] == [0.0, 2.0, 3.0, 2.0]
    gap = plan(ColumnKind.CATEGORY, levels=("x",), unknown=UnknownRule.MISSING)
    assert math.isnan(float(cell(gap, "y")))


PLANS = (
    SEX,
    plan(ColumnKind.BOOLEAN, "b"),
    plan(ColumnKind.DATE, "c", since="2020-01-01"),
    plan(ColumnKind.NUMBER, "d"),
)
ROWS = [("male", True, "2020-01-02", 1.5), ("female", False, None, -2.0), ("male", True, "2020-02-01", 3.0)]


def source(path: Path, **file: Any) -> Source:
    """A file of the columns a to d."""
    partition, names = PartitionFile(path=path, **file), ("a", "b", "c", "d")
    return Source(partition, "data", names, readers=cell_readers(PLANS, partition, names, lambda name: f"`{name}`"))


def written(path: Path, quoted: bool = False) -> RawTable:
    """The rows as a CSV file; with a line break in quotes the careful reading reads it."""
    lines = ["a,b,c,d,note", *(",".join("" if v is None else str(v) for v in row) + ",x" for row in ROWS)]
    path.write_text("\n".join(lines).replace("note", '"no\nte"' if quoted else "note") + "\n")
    return read(source(path))


def test_every_reading_of_a_table_gives_the_same_numbers(tmp_path: Path) -> None:
    """CSV by either reading, and Parquet with its own types of booleans and days."""
    kinds = pa.array([None if row[2] is None else datetime.date.fromisoformat(row[2]) for row in ROWS], pa.date32())
    a, b, _, d = zip(*ROWS, strict=True)
    pq.write_table(pa.table({"a": a, "b": b, "c": kinds, "d": d}), tmp_path / "t.parquet")
    wanted = [[1, 1, 1, 1.5], [0, 0, math.nan, -2], [1, 1, 31, 3]]
    for table in (written(tmp_path / "t.csv"), written(tmp_path / "q.csv", True), read(source(tmp_path / "t.parquet"))):
        np.testing.assert_array_equal(table.x, wanted)


@pytest.mark.parametrize("quoted", [False, True])
def test_wrong_cells_are_told_with_file_column_and_line(tmp_path: Path, quoted: bool) -> None:
    """All of them at once, the first line of each kind, and no content."""
    path = tmp_path / "t.csv"
    rows = [f"{sex},yes,2020-01-01,1" for sex in ("male", SECRET, SECRET)]
    lines = ['a,b,c,d,"no\nte"', *(f"{row},x" for row in rows)] if quoted else ["a,b,c,d", *rows]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError) as caught:
        read(
            source(
                path,
            )
        )
    line = 4 if quoted else 3
    assert f"data: column 'a', line {line} (the first of 2 lines): a level that the job does not know" in str(
        caught.value
    )
    assert "`cells`" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_file_of_decimal_commas_needs_no_types(tmp_path: Path) -> None:
    """Separators of the whole file count for features and the target, and a column may have its own."""
    path = tmp_path / "t.csv"
    path.write_text("a;b;y\n1,5;1.5;2.000,25\n2,5;2.5;3\n")
    own = CellSection(decimal=".", thousands="")
    file = PartitionFile(path=path, delimiter=";", decimal=",", thousands=".", cells={"b": own})
    readers = cell_readers((), file, ("a", "b", "y"), lambda _: None)
    table = read(Source(file, "data", ("a", "b"), "y", readers=readers))
    assert table.x.tolist() == [[1.5, 1.5], [2.5, 2.5]]
    assert table.y is not None
    assert table.y.tolist() == [2000.25, 3.0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('decimal = ","\nthousands = ","', "both ','"),
        ('thousands = "."', "both '.'"),
        ('convert = { "g" = 2.0 }', "convert needs unit"),
        ('unit = "g"\nconvert = { "g" = 2.0 }', "own unit"),
        ('unit = "g"\nconvert = { "kg" = 0.0 }', "factor 0"),
    ],
)
def test_cells_of_a_client_file_that_contradict_themselves_are_refused(text: str, says: str) -> None:
    """With the key and the remedy."""
    with pytest.raises(ConfigError, match=says):
        parse_toml(CellSection, text, "client.toml")
