"""Marks of rows: the same for the same row, whatever reads it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from kernfed.jobs.client_file import PartitionFile, StreamFile
from kernfed_client.data.guards.row_marks import marks_of_file
from kernfed_client.streams.folder import FolderStream
from kernfed_testing.partitions import regression

LINES = [f"{number},{number % 7},{number / 3}\n" for number in range(200)]
HEADER = "a,b,y\n"


def marks(folder: Path, at_once: int, *, anew: bool = False) -> list[int]:
    """Of all rows of a folder, read so many at once; `anew`: by a daemon that is started again each time."""

    def opened() -> FolderStream:
        return FolderStream(folder, StreamFile(source="follow", path=folder), regression(), "d")

    stream, position, found = opened(), dict[str, object](), list[int]()
    while rows := (chunk := stream.read(position, at_once)).rows:
        position = dict(chunk.position)
        found.extend(row.mark for row in rows)
        stream = opened() if anew else stream
    return found


def of_file(path: Path) -> list[int]:
    """Of the rows of a file that is read whole."""
    return marks_of_file(PartitionFile(path=path), np.arange(2, len(path.read_text().splitlines()) + 1))


def test_rows_have_the_same_marks_however_they_are_read(tmp_path: Path) -> None:
    """In parts, by a daemon that is started again, whole, under another name, and in a rotated file."""
    (tmp_path / "a.csv").write_text(HEADER + "".join(LINES))
    once = marks(tmp_path, 1000)
    assert len(set(once)) == 200
    assert once == marks(tmp_path, 7) == marks(tmp_path, 7, anew=True) == of_file(tmp_path / "a.csv")
    os.rename(tmp_path / "a.csv", tmp_path / "a-20260101.csv")
    assert marks(tmp_path, 13) == once


def test_a_row_between_others_changes_its_own_mark_and_the_next(tmp_path: Path) -> None:
    """Rows before and behind are known again."""
    (tmp_path / "a.csv").write_text(HEADER + "".join(LINES))
    before = of_file(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text(HEADER + "".join([*LINES[:90], "1,2,3\n", *LINES[90:]]))
    after = of_file(tmp_path / "b.csv")
    assert after[:90] + after[92:] == before[:90] + before[91:]
    assert not {after[90], after[91]} & set(before)


def test_rows_of_few_values_have_marks_of_their_own(tmp_path: Path) -> None:
    """Lines that came just before take many lines before them into account."""
    draw = np.random.default_rng(1)
    (tmp_path / "a.csv").write_text(HEADER + "".join(f"{a},{b},{a}\n" for a, b in draw.integers(2, size=(2000, 2))))
    assert len(set(of_file(tmp_path / "a.csv"))) == 2000
