"""The places of a job's columns in a header, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernfed.errors import DataError
from kernfed.jobs.client_file import PartitionFile
from kernfed.tables.columns import locate_columns, locate_header, locate_own
from kernfed.tables.raw_table import Source


def source(**columns: str) -> Source:
    return Source(PartitionFile(path=Path("rows.csv"), columns=columns), "rows.csv", ("a", "b"), "y")


def test_columns_are_found_by_name() -> None:
    """Order does not matter, other columns are passed over, and the file may use names of its own."""
    assert locate_columns(source(b="beta"), ["y", "beta", "other", "a"], ("a", "b", "y")) == [3, 1, 0]
    assert locate_header(source(), [" a", "y ", "b"]) == [0, 2, 1]
    assert locate_own(source(), ["y", "id"], "id", "key", "key") == 1


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (["a", "Y", "b"], "column 'y' is missing; did you mean 'Y'"),
        (["a", "b", "y", "a"], "column 'a' stands 2 times"),
        (["a\tb\ty"], "line 1 is one column, but holds a tab"),
    ],
)
def test_what_is_not_found_is_told(header: list[str], expected: str) -> None:
    """A missing column with the nearest name, a doubled one, and a header split at the wrong character."""
    with pytest.raises(DataError, match=expected):
        locate_header(source(), header)


def test_others_are_told_of_the_jobs_columns_alone() -> None:
    """What leaves this machine names no column that the job does not name, and no number of them."""
    header = ["a", "secret", "target of the trial", "secret", "yy"]
    with pytest.raises(DataError, match="the file has the columns a, secret") as found:
        locate_header(source(b="secret"), header)
    assert found.value.public == (
        "rows.csv: column 'b' stands more than once; column 'y' is missing (this client's log says more)"
    )


def test_two_columns_cannot_be_read_from_one() -> None:
    """The mapping of the client file names both of the job's columns."""
    with pytest.raises(DataError, match="'a' and 'b' of the job are both read from 'a'"):
        locate_columns(source(b="a"), ["a", "y"], ("a", "b", "y"))


@pytest.mark.parametrize(("present", "expected"), [(["a"], "is missing; correct `key`"), (["id", "id"], "2 times")])
def test_columns_of_the_client_file_stand_once(present: list[str], expected: str) -> None:
    """One that is missing or doubled is named with what it is for."""
    with pytest.raises(DataError, match=rf"column 'id', the key, .*{expected}"):
        locate_own(source(), present, "id", "key", "key")


@pytest.mark.redteam
@pytest.mark.parametrize(
    ("there", "written"), [("gro\u0308\u00dfe", "gro\\\\u0308"), ("gr\u043e\u00dfe", "gr\\\\u043e")]
)
def test_names_that_look_the_same_are_told_apart(there: str, written: str) -> None:
    """Letters with marks of their own, or of another alphabet, are no match, and are shown as they are written."""
    with pytest.raises(DataError, match=f"is missing; did you mean .*{written}") as found:
        locate_columns(source(), ["a", there], ("a", "gr\u00f6\u00dfe"))
    assert "gr\\xf6\\xdfe" in str(found.value)
