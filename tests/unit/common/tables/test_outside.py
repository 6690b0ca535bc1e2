"""Formats that packages from outside read: tables as from a Parquet file, and a package at fault told by its name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernfed.errors import ConfigError, DataError
from kernfed.federation.messages.data import MissingRule
from kernfed.jobs.client_file import ClientFile, PartitionFile
from kernfed.jobs.toml_file import parse_toml
from kernfed.tables.raw_table import Source
from kernfed.tables.read import read_with_text
from kernfed_testing.machine.installed import look_again, on_path, write_package
from kernfed_testing.partitions import read, regression

READER = """
import pyarrow as pa

from kernfed.tables.outside import TableFormat


def rows(path):
    lines = [line.split("|") for line in path.read_text().splitlines()]
    if len({len(line) for line in lines}) != 1:
        raise ValueError("line 2: 77|secret")
    return pa.table({name: [cell or None for cell in cells] for name, *cells in zip(*lines)})


BARS = TableFormat((".bars",), rows)
LIST = TableFormat((".list",), lambda path: [1, 2])
"""


@pytest.fixture(autouse=True)
def site(tmp_path: Path) -> Iterator[Path]:
    """A package that reads columns between bars."""
    points = {"kernfed.tables": {"bars": "bars:BARS", "list": "bars:LIST"}}
    write_package(tmp_path / "site", "acme-bars", points, {"bars.py": READER})
    with on_path(tmp_path / "site"):
        yield tmp_path / "site"


@pytest.mark.parametrize(("name", "form"), [("site.bars", None), ("site.dat", "bars")])
def test_its_table_is_read_as_others_are(tmp_path: Path, name: str, form: str | None) -> None:
    """By suffix or by format: columns by name, gaps by the job's rule, rows by their numbers."""
    (tmp_path / name).write_text("y|b|extra|a\n0.5|2|p|1\n1.5|4|q|\n2.5|6|r|5\n")
    data = read(tmp_path / name, regression(missing=MissingRule.DROP_ROWS), format=form)
    assert data.x.tolist() == [[1.0, 2.0], [5.0, 6.0]]
    assert data.row_numbers.tolist() == [1, 3]
    with pytest.raises(DataError, match=r"column 'a', row 2: no value"):
        read(tmp_path / name, regression(), format=form)


def test_its_rows_come_out_as_text_for_predictions(tmp_path: Path) -> None:
    """All columns stay as they were written beside those that are wanted as numbers."""
    path = tmp_path / "site.bars"
    path.write_text("code|a\n007|1\n|2\n")
    text, table = read_with_text(Source(PartitionFile(path=path, format="bars"), "site", ("a",)))
    assert (text.names, text.rows) == (("code", "a"), [["007", "1"], ["", "2"]])
    assert table.x.tolist() == [[1.0], [2.0]]


def test_a_file_that_it_cannot_read_is_told_with_its_package(tmp_path: Path) -> None:
    """The site is told why; others are told the package, and nothing of the file."""
    path = tmp_path / "site.bars"
    path.write_text("a|b|y\n77|secret\n")
    with pytest.raises(DataError, match=r"no bars file that package acme-bars 1\.0 can read \(ValueError") as caught:
        read(path, regression())
    assert "secret" not in caught.value.public
    (tmp_path / "site.list").write_text("x")
    with pytest.raises(ConfigError, match=r"package acme-bars 1\.0 .*its reader gave list and no pyarrow\.Table"):
        read(tmp_path / "site.list", regression())


def test_a_format_that_nobody_brings_names_those_there_are(site: Path) -> None:
    """A client file with a format of a package that was removed says which formats there are."""
    text = '[datasets.d.train]\npath = "x.bars"\nformat = "bars"\nmissing = ["-"]\n'
    assert parse_toml(ClientFile, text, "client.toml").datasets["d"].train.format == "bars"
    (site / "acme_bars-1.0.dist-info/entry_points.txt").unlink()
    look_again()
    with pytest.raises(ConfigError, match=r"format: 'bars' is no format that can be read here; known are csv, parquet"):
        parse_toml(ClientFile, text, "client.toml")
    with pytest.raises(DataError, match=r"suffix '\.bars' tells no format; set .*format.* to one of csv, parquet, npz"):
        read(site / "x.bars", regression())
