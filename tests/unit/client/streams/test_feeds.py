"""Rows that come by socket or standard input: written down before use, and read by the stream of their folder."""

from __future__ import annotations

import asyncio
import errno
import io
import json
from pathlib import Path

import pytest

from kernfed.errors import ConfigError
from kernfed.federation.messages.data import DataSchema, LearningTask, MissingRule
from kernfed.jobs.client_file import ClientFile, StreamFile
from kernfed.journal import append
from kernfed_client.streams import feeds
from kernfed_client.streams.feeds import Spool, open_feeds, read_lines, spool_folder
from kernfed_client.streams.folder import FolderStream
from kernfed_client.streams.notices import NOTICES
from kernfed_client.streams.streams import Position


def rows_in(folder: Path) -> list[tuple[float, ...]]:
    schema = DataSchema(
        task=LearningTask.REGRESSION,
        target="y",
        features=("a", "b"),
        classes=(),
        missing=MissingRule.REFUSE,
        test_fraction=0.0,
        seed=1,
    )
    stream = FolderStream(folder, StreamFile(path=folder, source="follow"), schema, "sensors")
    found: list[tuple[float, ...]] = []
    position: Position = {}
    while (chunk := stream.read(position, 100)).rows:
        found += [(*row.x, row.y) for row in chunk.rows if row.x is not None and row.y is not None]
        position = chunk.position
    return found


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
    assert [row[0] for row in rows_in(tmp_path)] == [0, 1, 2, 3, 5]
    assert len(list(tmp_path.glob("*.jsonl"))) == 2
    with pytest.raises(ValueError, match="JSON object"):
        again.take(b"[1]")


def test_lines_of_standard_input_are_taken(tmp_path: Path) -> None:
    """Blank lines and faulty ones are passed over."""
    spool = Spool(tmp_path)
    read_lines(io.BytesIO(b'{"a": 1, "b": 2, "y": 3}\n\nnonsense\n{"a": 4, "b": 5, "y": 6}'), spool, "sensors")
    spool.close()
    assert rows_in(tmp_path) == [(1, 2, 3), (4, 5, 6)]


def test_a_line_is_held_while_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written once there is space, and so are those after it; meanwhile the stream says that it waits."""
    spool = Spool(tmp_path)
    told: list[str] = []

    def full_at_first(handle: int, data: bytes) -> None:
        told.append(NOTICES.waiting([("sensors", tmp_path)]))
        if len(told) <= 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        append(handle, data)

    monkeypatch.setattr(feeds, "append", full_at_first)
    lines = b'{"a": 1, "b": 2, "y": 3}\n{"a": 4, "b": 5, "y": 6}\n'
    read_lines(io.BytesIO(lines), spool, "sensors", retry_s=0.0)
    assert rows_in(tmp_path) == [(1, 2, 3), (4, 5, 6)]
    assert told[1].startswith("the stream of sensors waits for disk: No space left on device; make space in ")
    assert [bool(t) for t in told] == [False, True, True, True, False]
    spool.close()


def test_a_held_line_does_not_keep_the_daemon_from_stopping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing the spool ends the wait."""
    spool = Spool(tmp_path)

    def full(handle: int, data: bytes) -> None:
        spool.closed.set()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(feeds, "append", full)
    read_lines(io.BytesIO(b'{"a": 1, "b": 2, "y": 3}\n'), spool, "sensors", retry_s=60.0)
    spool.close()
    assert NOTICES.waits(tmp_path) == ""


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
    assert rows_in(spool_folder(tmp_path / "state", "sensors")) == [(1, 2, 3), (4, 5, 6)]
