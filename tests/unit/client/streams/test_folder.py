"""Streams of folders that grow: which rows there are, and which position is behind them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kernfed.errors import DataError
from kernfed.federation.messages.data import DataSchema, LearningTask, MissingRule
from kernfed.jobs.client_file import StreamFile
from kernfed_client.streams.faults import FileChange, RowFault
from kernfed_client.streams.folder import FolderStream
from kernfed_client.streams.notices import NOTICES
from kernfed_client.streams.streams import Position, Row


def schema(task: LearningTask = LearningTask.REGRESSION) -> DataSchema:
    return DataSchema(
        task=task, target="y", features=("a", "b"), classes=(), missing=MissingRule.REFUSE, test_fraction=0.0, seed=1
    )


def follow(folder: Path, *, key: str | None = None, classes: tuple[str, ...] = (), **settings: object) -> FolderStream:
    file = StreamFile.model_validate({"path": folder, "source": "follow", "key": key, **settings})
    task = LearningTask.BINARY if classes else LearningTask.REGRESSION
    return FolderStream(folder, file, schema(task), "sensors", classes)


def read_all(stream: FolderStream, position: Position, step: int = 100) -> tuple[list[Row], Position]:
    rows: list[Row] = []
    while (chunk := stream.read(position, step)).rows:
        rows += chunk.rows
        position = chunk.position
    return rows, chunk.position


def values(rows: list[Row]) -> list[tuple[float, ...]]:
    return [(*(row.x.tolist() if row.x is not None else ()), row.y if row.y is not None else np.inf) for row in rows]


@pytest.mark.parametrize("step", [1, 2, 100])
def test_files_are_read_in_the_order_of_their_names(tmp_path: Path, step: int) -> None:
    """Rows come once, in order, whatever number is read at a time and wherever reading goes on."""
    (tmp_path / "b.csv").write_text("y,b,a\n6,5,4\n")
    (tmp_path / "a.csv").write_text("a,b,y\n1,2,3\n2,3,4\n")
    rows, position = read_all(follow(tmp_path), {}, step)
    assert values(rows) == [(1, 2, 3), (2, 3, 4), (4, 5, 6)]
    assert read_all(follow(tmp_path), json.loads(json.dumps(position)))[0] == []


def test_a_file_that_grows_is_read_by_whole_lines(tmp_path: Path) -> None:
    """Half a line, and a header that is half written, wait; what follows is read from where reading was."""
    path = tmp_path / "a.csv"
    path.write_text("a,b,")
    stream = follow(tmp_path)
    rows, position = read_all(stream, {})
    assert rows == []
    path.write_text("a,b,y\n1,2,3\n4,5")
    rows, position = read_all(stream, position)
    assert values(rows) == [(1, 2, 3)]
    with path.open("a") as file:
        file.write(",6\n7,8,9\n")
    rows, position = read_all(follow(tmp_path), position)
    assert values(rows) == [(4, 5, 6), (7, 8, 9)]


def test_the_last_line_of_a_complete_file_needs_no_line_break(tmp_path: Path) -> None:
    """When a file with a later name is there, the one before it is complete."""
    (tmp_path / "a.csv").write_text("a,b,y\n1,2,3")
    stream = follow(tmp_path)
    rows, position = read_all(stream, {})
    assert rows == []
    (tmp_path / "b.csv").write_text("a,b,y\n4,5,6\n")
    assert values(read_all(stream, position)[0]) == [(1, 2, 3), (4, 5, 6)]


def test_faulty_rows_are_counted_and_left_out(tmp_path: Path) -> None:
    """Text, gaps, infinities, and lines of another width are skipped; the rows around them are read."""
    (tmp_path / "a.csv").write_text("a,b,y\n1,2,3\nx,2,3\n,2,3\n1,inf,3\n1,2\n1,2,\n4,5,6\n")
    stream = follow(tmp_path)
    chunk = stream.read({}, 100)
    assert values(list(chunk.rows)) == [(1, 2, 3), (4, 5, 6)]
    assert chunk.num_skipped == 5


def test_targets_may_come_later(tmp_path: Path) -> None:
    """With a key, a row without a target and a target without its row are both read."""
    (tmp_path / "a.csv").write_text("id,a,b,y\nr1,1,2,\nr2,3,4,5\nr1,,,9\n")
    rows, _ = read_all(follow(tmp_path, key="id"), {})
    assert [(row.key, row.x is None, row.y) for row in rows] == [("r1", False, None), ("r2", False, 5), ("r1", True, 9)]


def test_keys_are_the_same_in_lines_and_records(tmp_path: Path) -> None:
    """Blanks around a key are no part of it, numbers count by their value, and a blank key is none."""
    (tmp_path / "a.csv").write_text("id,a,b,y\n 7 ,1,2,3\n ,1,2,4\n")
    (tmp_path / "b.jsonl").write_text('{"id": 7, "a": 1, "b": 2, "y": 3}\n{"id": " 7", "a": 1, "b": 2, "y": 3}\n')
    rows, _ = read_all(follow(tmp_path, key="id"), {})
    assert [row.key for row in rows] == ["7", None, "7", "7"]


def test_a_missing_column_is_an_error_that_names_it(tmp_path: Path) -> None:
    """The message tells file, column and what is there."""
    (tmp_path / "a.csv").write_text("a,c,y\n1,2,3\n")
    with pytest.raises(DataError, match=r"a\.csv.*'b' is missing"):
        follow(tmp_path).read({}, 1)
    with pytest.raises(DataError, match="cannot be read"):
        follow(tmp_path / "nowhere").read({}, 1)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("id,a,b,a,y", "column 'a' stands 2 times; rename or remove all but one"),
        ("a,b,y", "column 'id', the key, is missing; correct `key` of"),
        ("id,id,a,b,y", "column 'id', the key, stands 2 times; rename or remove all but one"),
        ("id;a;b;y", "one column, but holds ';'; if that separates columns, .*`delimiter` of"),
    ],
)
def test_headers_are_read_as_those_of_files(tmp_path: Path, header: str, expected: str) -> None:
    """A column that stands twice, a key that is missing or doubled, and a wrong separator are told by name."""
    (tmp_path / "a.csv").write_text(header + "\n")
    with pytest.raises(DataError, match=rf"data set sensors, stream \(a\.csv\): .*{expected}"):
        follow(tmp_path, key="id").read({}, 1)


def test_parquet_files_are_read_whole(tmp_path: Path) -> None:
    """A damaged file waits while it is the last, for it may still be written; rows are numbered for going on."""
    pq.write_table(pa.table({"a": [1.0, 4.0], "b": [2.0, 5.0], "y": [3.0, 6.0]}), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 half")
    stream = follow(tmp_path)
    first = stream.read({}, 1)
    assert values(list(first.rows)) == [(1, 2, 3)]
    rows, position = read_all(follow(tmp_path), first.position)
    assert values(rows) == [(4, 5, 6)]
    pq.write_table(pa.table({"a": [7.0], "b": [8.0], "y": [9.0]}), tmp_path / "b.parquet")
    assert values(read_all(stream, position)[0]) == [(7, 8, 9)]


def test_tokens_for_no_value_hold_for_numbers_of_any_format(tmp_path: Path) -> None:
    """A -999 that means no value is none in JSON and in Parquet, as in CSV; a number without end is a fault."""
    lines = [
        {"a": -999, "b": 1, "y": 2},
        {"a": 1, "b": -999.0, "y": 2},
        {"a": 1, "b": 2, "y": "-999"},
        {"a": 3, "b": 4, "y": 5},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines) + f'{{"a": {10**400}, "b": 1, "y": 2}}\n' + "[" * 10**5
    (tmp_path / "a.jsonl").write_text(text + "\n")
    pq.write_table(pa.table({"a": [-999.0, 6.0], "b": [2.0, 7.0], "y": [3.0, 8.0]}), tmp_path / "b.parquet")
    chunk = follow(tmp_path, missing=["-999"]).read({}, 100)
    assert values(list(chunk.rows)) == [(3, 4, 5), (6, 7, 8)]
    assert chunk.num_skipped == 6


def test_classes_are_numbers(tmp_path: Path) -> None:
    """A binary target becomes 0 or 1 by the job's classes and the site's names for them; any other is left out."""
    (tmp_path / "a.csv").write_text("a,b,y\n1,2,no\n1,2,ill\n1,2,unknown\n")
    stream = follow(tmp_path, classes=("no", "yes"), labels={"ill": "yes"})
    chunk = stream.read({}, 10)
    assert [row.y for row in chunk.rows] == [0.0, 1.0]
    assert chunk.num_skipped == 1


def grow(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_renamed_file_is_finished_before_the_new_one(tmp_path: Path) -> None:
    """Rows behind the place are read under the new name, also of a reader that begins anew, and told as a rotation."""
    path, old = tmp_path / "a.csv", tmp_path / "a.csv.1"
    path.write_text("a,b,y\n1,2,3\n")
    _, position = read_all(follow(tmp_path), {})
    grow(path, "2,3,4\n")
    path.rename(old)
    stream = follow(tmp_path)
    first = stream.read(json.loads(json.dumps(position)), 100)
    assert values(list(first.rows)) == [(2, 3, 4)]
    path.touch()  # whoever writes has not opened it yet
    grow(old, "3,4,5\n")
    second = stream.read(first.position, 100)
    assert (values(list(second.rows)), dict(second.changes)) == ([(3, 4, 5)], {})
    grow(old, "4,5,6")
    path.write_text("a,b,y\n1,2,3\n6,7,8\n")
    third = follow(tmp_path).read(second.position, 100)
    assert values(list(third.rows)) == [(4, 5, 6), (1, 2, 3), (6, 7, 8)]
    assert third.changes == {FileChange.ROTATED: 1}
    assert third.num_skipped == 0
    assert read_all(follow(tmp_path), third.position)[0] == []


def test_names_of_rotated_files_may_be_those_of_streams(tmp_path: Path) -> None:
    """One that was finished is not read again, though its name sorts behind; two rotations at once lose nothing."""
    path = tmp_path / "a.csv"
    path.write_text("a,b,y\n1,2,3\n")
    stream = follow(tmp_path)
    _, position = read_all(stream, {})
    for i in (1, 2):
        grow(path, f"{i},5,5\n")
        os.utime(path, (i, i))
        path.rename(tmp_path / f"a_{i}.csv")
        path.write_text("a,b,y\n")
    grow(path, "9,9,9\n")
    rows, position = read_all(stream, position)
    assert values(rows) == [(1, 5, 5), (2, 5, 5), (9, 9, 9)]
    grow(path, "8,8,8\n")
    assert values(read_all(follow(tmp_path), position)[0]) == [(8, 8, 8)]


@pytest.mark.parametrize("num_new", [1, 9])
def test_a_copied_and_truncated_file_is_finished_in_its_copy(tmp_path: Path, num_new: int) -> None:
    """Whether the new content is shorter or longer than what was read."""
    path = tmp_path / "a.csv"
    path.write_text("a,b,y\n1,2,3\n2,3,4\n")
    stream = follow(tmp_path)
    _, position = read_all(stream, {})
    grow(path, "3,4,5\n")
    shutil.copy2(path, tmp_path / "a.csv.1")
    path.write_text("a,b,y\n" + "7,8,9\n" * num_new)  # cuts the same file off
    chunk = stream.read(position, 100)
    assert values(list(chunk.rows)) == [(3, 4, 5)] + [(7, 8, 9)] * num_new
    assert (chunk.num_skipped, chunk.changes) == (0, {FileChange.ROTATED: 1})


@pytest.mark.parametrize("known", [True, False])
def test_a_file_that_shrank_is_read_from_its_header(tmp_path: Path, known: bool) -> None:
    """Deleted and created anew, or cut off, with other columns first; a place of an earlier release tells it too."""
    path = tmp_path / "a.csv"
    path.write_text("a,b,y\n1,2,3\n2,3,4\n")
    stream = follow(tmp_path)
    _, position = read_all(stream, {})
    if not known:
        position = {"file": "a.csv", "offset": position["offset"]}
        assert follow(tmp_path).read(position, 5).rows == ()
    path.unlink()
    path.write_text("y,b,a\n6,5,4\n")
    chunk = stream.read(position, 100)
    assert values(list(chunk.rows)) == [(4, 5, 6)]
    assert (chunk.num_skipped, chunk.changes) == (0, {FileChange.REPLACED: 1})
    grow(path, "9,8,7\n")
    assert values(read_all(follow(tmp_path), chunk.position)[0]) == [(7, 8, 9)]


def test_a_copy_from_elsewhere_is_the_same_file(tmp_path: Path) -> None:
    """A file that is written anew with its former rows and more goes on where reading was."""
    path = tmp_path / "a.csv"
    path.write_text("a,b,y\n1,2,3\n")
    _, position = read_all(follow(tmp_path), {})
    (tmp_path / ".new").write_text("a,b,y\n1,2,3\n4,5,6\n")
    (tmp_path / ".new").rename(path)
    chunk = follow(tmp_path).read(position, 100)
    assert (values(list(chunk.rows)), dict(chunk.changes)) == ([(4, 5, 6)], {})


def test_a_header_that_comes_again_places_the_columns_anew(tmp_path: Path) -> None:
    """In any order, also for a reader that goes on behind it; it is no row that is left out."""
    path = tmp_path / "a.csv"
    path.write_text("a,b,y\n1,2,3\na,b,y\n2,3,4\ny,b,a\n6,5,4\n")
    chunk = follow(tmp_path).read({}, 100)
    assert values(list(chunk.rows)) == [(1, 2, 3), (2, 3, 4), (4, 5, 6)]
    assert (chunk.num_skipped, chunk.changes) == (0, {FileChange.HEADER: 1})
    grow(path, "9,8,7\nextra,a,b,y\n0,1,1,1\n")
    rows, _ = read_all(follow(tmp_path), json.loads(json.dumps(chunk.position)))
    assert values(rows) == [(7, 8, 9), (1, 1, 1)]


def test_what_is_left_out_is_told_by_kind_and_first_line(tmp_path: Path) -> None:
    """Counts go to the job; the file and the first line of each kind stay with the client."""
    (tmp_path / "a.csv").write_text("a,b,y\n1,2,3\nx,2,3\n1,inf,3\n,2,3\n1,2\n1,2,\n")
    chunk = follow(tmp_path).read({}, 100)
    assert chunk.faults == {RowFault.TEXT: 2, RowFault.GAP: 2, RowFault.WIDTH: 1}
    told = NOTICES.text([("sensors", tmp_path)])
    assert "2 text or no finite number where a number is needed (first: a.csv, line 3)" in told
    assert "2 a value is missing (first: a.csv, line 5)" in told
    assert "1 another number of cells than the header has (first: a.csv, line 6)" in told


@pytest.mark.parametrize("blank", ["\u00a0", "\u3000", "\u2003", "\x85", "\u2028", "\x1c", "\ufeff", "\u200b"])
def test_a_blank_of_another_kind_is_part_of_its_cell(tmp_path: Path, blank: str) -> None:
    """A no-break space at either end of a line makes its number text, as it does in files; so do others."""
    lines = [f"{blank}1,2,3", f"1,2,3{blank}", "1,2,3 ", " 4,5,6"]
    (tmp_path / "a.csv").write_bytes("\n".join(["a,b,y", *lines, ""]).encode())
    chunk = follow(tmp_path).read({}, 100)
    assert values(list(chunk.rows)) == [(1, 2, 3), (4, 5, 6)]
    assert chunk.faults == {RowFault.TEXT: 2}


@pytest.mark.parametrize("name", ["2.csv", "2.parquet", "2.jsonl"])
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_no_file_is_told_and_holds_nobody_up(tmp_path: Path, kind: str, name: str) -> None:
    """A pipe or a folder under the name of a file: rows before it count, and then it is named."""
    (tmp_path / "1.csv").write_text("a,b,y\n1,2,3\n")
    odd = tmp_path / name
    {"pipe": os.mkfifo, "folder": os.mkdir}[kind](odd)
    stream = follow(tmp_path)
    first = stream.read({}, 1)
    assert values(list(first.rows)) == [(1.0, 2.0, 3.0)]
    with pytest.raises(DataError, match=rf"stream: {name} cannot be read \(.*\); let .* move it out") as refused:
        stream.read(first.position, 10)
    assert name not in refused.value.public
    odd.rmdir() if kind == "folder" else odd.unlink()
    (tmp_path / "3.csv").write_text("a,b,y\n4,5,6\n")
    assert values(list(stream.read(first.position, 10).rows)) == [(4.0, 5.0, 6.0)]


def test_a_line_of_blanks_is_no_row_and_tabs_may_be_empty_cells(tmp_path: Path) -> None:
    """As in files: an empty line is passed over, one of blanks has too few cells, and a tab may end in no target."""
    (tmp_path / "a.tsv").write_text("\ufeffid\ta\tb\ty\n7\t1\t2\t\n\n \n8\t1\t2\t3\n", encoding="utf-8")
    chunk = follow(tmp_path, key="id", delimiter="\t").read({}, 100)
    assert [(row.key, row.y) for row in chunk.rows] == [("7", None), ("8", 3.0)]
    assert chunk.faults == {RowFault.WIDTH: 1}


def test_files_with_marks_may_be_put_together(tmp_path: Path) -> None:
    """Each begins with a mark of the order of bytes and with names in quotes, of which the mark is no part."""
    one = '\ufeff"a","b","y"\n1,2,3\n'
    (tmp_path / "a.csv").write_text(one + one, encoding="utf-8")
    chunk = follow(tmp_path).read({}, 100)
    assert values(list(chunk.rows)) == [(1, 2, 3), (1, 2, 3)]
    assert not chunk.faults
