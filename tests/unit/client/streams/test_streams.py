"""Streams: tables in their order, folders that grow, rows that come by socket or standard input."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kernfed.errors import ConfigError, DataError
from kernfed.federation.messages.data import DataSchema, LearningTask, MissingRule
from kernfed.jobs.client_file import ClientFile, StreamFile
from kernfed_client.streams.feeds import Spool, open_feeds, read_lines
from kernfed_client.streams.streams import FolderStream, Position, Row, spool_folder


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


def test_a_missing_column_is_an_error_that_names_it(tmp_path: Path) -> None:
    """The message tells file, column and what is there."""
    (tmp_path / "a.csv").write_text("a,c,y\n1,2,3\n")
    with pytest.raises(DataError, match=r"a\.csv.*'b' is missing"):
        follow(tmp_path).read({}, 1)
    with pytest.raises(DataError, match="cannot be read"):
        follow(tmp_path / "nowhere").read({}, 1)


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


def test_a_spool_survives_a_crash_in_the_middle_of_a_line(tmp_path: Path) -> None:
    """Half a line, which nobody was told of, goes; whole ones stay, and files are of bounded size."""
    spool = Spool(tmp_path, segment_bytes=60)
    for i in range(4):
        assert spool.take(json.dumps({"a": i, "b": 1, "y": 2}).encode()) == i + 1
    spool.close()
    last = sorted(tmp_path.glob("*.jsonl"))[-1]
    with last.open("ab") as file:
        file.write(b'{"a": 9, "b"')
    again = Spool(tmp_path, segment_bytes=60)
    again.take(b'{"a": 5, "b": 1, "y": 2}\n')
    again.close()
    assert [row.x[0] for row in read_all(follow(tmp_path), {})[0] if row.x is not None] == [0, 1, 2, 3, 5]
    assert len(list(tmp_path.glob("*.jsonl"))) == 2
    with pytest.raises(ValueError, match="JSON object"):
        again.take(b"[1]")


def test_lines_of_standard_input_are_taken(tmp_path: Path) -> None:
    """Blank lines and faulty ones are passed over."""
    spool = Spool(tmp_path)
    read_lines(io.BytesIO(b'{"a": 1, "b": 2, "y": 3}\n\nnonsense\n{"a": 4, "b": 5, "y": 6}'), spool, "sensors")
    spool.close()
    assert values(read_all(follow(tmp_path), {})[0]) == [(1, 2, 3), (4, 5, 6)]


async def test_a_socket_answers_each_line_once_it_is_written(tmp_path: Path) -> None:
    """Rows go to the folder that the job reads; a fault is said; only the socket's user may send."""
    address = tmp_path / "rows.sock"
    dataset = {"train": {"path": "t.csv"}, "stream": {"source": "socket", "path": str(address)}}
    file = ClientFile.model_validate({"state": tmp_path / "state", "datasets": {"sensors": dataset}})
    async with open_feeds(file):
        assert address.stat().st_mode & 0o777 == 0o600
        reader, writer = await asyncio.open_unix_connection(str(address))
        writer.write(b'{"a": 1, "b": 2, "y": 3}\nnonsense\n{"a": 4, "b": 5, "y": 6}\n')
        answers = [json.loads(await asyncio.wait_for(reader.readline(), 60)) for _ in range(3)]
        assert answers[0] == {"row": 1}
        assert "error" in answers[1]
        assert answers[2] == {"row": 2}
        with pytest.raises(ConfigError, match="where rows of a stream are taken"):
            async with open_feeds(file):
                pass
        writer.close()
        await writer.wait_closed()
    assert not address.exists()
    assert values(read_all(follow(spool_folder(tmp_path / "state", "sensors")), {})[0]) == [(1, 2, 3), (4, 5, 6)]
