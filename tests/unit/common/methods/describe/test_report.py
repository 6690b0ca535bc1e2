"""The table of statistics reads well, and as a file it holds all numbers."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

from kernfed.methods.describe.finding import ColumnFacts, DescribeFinding
from kernfed.methods.describe.report import describe_overview, describe_section
from kernfed.methods.describe.table import DescribedTable

AGE = ColumnFacts("age", 40, 3, 52.25, 9.5, 30.0, 77.0, (50.0, 60.0), (25, 15), (30.0, 55.0, 80.0))
SEX = ColumnFacts("sex", 40, 0, 0.25, 0.4, 0.0, 1.0, (0.0, 1.0), (30, 10), (0.0, 0.5, 1.0), {"0": 30, "1": 10})
ILL = ColumnFacts("ill", 40, 0, values={"=no()": 28, "yes": 12})
FINDING = DescribeFinding(
    (0.5, 0.75),
    (AGE, SEX, ILL),
    {"ant": (AGE, SEX, ILL)},
    ("age", "sex"),
    ((1.0, -0.4), (-0.4, 1.0)),
    ("ant",),
)


def test_the_overview_has_a_line_a_column() -> None:
    """A target with classes has counts, and no mean."""
    table = describe_overview(FINDING).table
    assert [row[0] for row in table.rows] == ["age", "sex", "ill"]
    assert dict(zip(table.columns, table.rows[0], strict=True))["50 %"] == "50"
    assert list(table.rows[2])[3:] == ["0", *[""] * 6, "=no(): 28, yes: 12"]


def test_the_section_names_strong_correlations_and_draws_each_column() -> None:
    """Clients have lines of their own below those of all."""
    section = describe_section(FINDING)
    assert "age and sex -0.40" in section.text
    assert [chart.title for chart in section.charts] == [
        "age: rows by cell",
        "sex: rows by value",
        "ill: rows by value",
        "Correlations of columns, their sizes",
    ]
    assert section.table is not None
    assert [row[:2] for row in section.table.rows][:2] == [["age", "all"], ["age", "ant"]]


def test_a_long_table_is_cut() -> None:
    """Columns of very many clients do not make a page that nobody can load."""
    many = DescribeFinding((0.5, 0.75), (AGE,), {f"c{i}": (AGE,) for i in range(2000)})
    table = describe_section(many).table
    assert table is not None
    assert len(table.rows) == 500


def test_the_files_hold_what_was_found(tmp_path: Path) -> None:
    """JSON reads back as the finding; a class that looks like a formula is none in the table."""
    DescribedTable(FINDING).save(tmp_path, durable=False)
    assert DescribeFinding.from_json(json.loads((tmp_path / "describe.json").read_text())) == FINDING
    rows = list(csv.DictReader(io.StringIO((tmp_path / "describe.csv").read_text())))
    assert [(row["column"], row["client"]) for row in rows[:3]] == [("age", "all"), ("sex", "all"), ("ill", "all")]
    assert float(rows[0]["deviation"]) == 9.5
    assert float(rows[0]["quantile_0.75"]) == 60.0
    assert rows[2]["values"] == "28 x =no(); 12 x yes"
