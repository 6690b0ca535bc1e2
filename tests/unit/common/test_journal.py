"""Journals give back what was whole, and tell what was lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from kernfed import files
from kernfed.journal import Framing, Journal

FRAMING = Framing(b"TST1", "IQ")
RECORDS = [[b"one", b"1" * 40], [b"two", b""], [b"three", b"3" * 7]]


def filled(path: Path) -> Journal:
    """A journal with three records."""
    journal = Journal(path, FRAMING)
    for record in RECORDS:
        journal.add(FRAMING.pack(*record))
    return journal


def test_records_come_back(tmp_path: Path) -> None:
    """In order, part by part, after the process ended in whatever way."""
    filled(tmp_path / "j")
    journal = Journal(tmp_path / "j", FRAMING)
    assert journal.read() == RECORDS
    journal.truncate()
    assert journal.read() == []
    journal.close()


@given(cut=st.integers(1, 22))
def test_a_torn_last_record_is_dropped(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    """The records before it are there, and what is added next is read back."""
    path = tmp_path_factory.mktemp("journal") / "j"
    filled(path).close()
    os.truncate(path, path.stat().st_size - cut)
    journal = Journal(path, FRAMING)
    with capture_logs() as logs:
        assert journal.read() == RECORDS[:2]
    assert [(e["log_level"], e["file"]) for e in logs] == [("warning", str(path))]
    journal.add(FRAMING.pack(b"four", b"4"))
    assert Journal(path, FRAMING).read() == [*RECORDS[:2], [b"four", b"4"]]


@pytest.mark.parametrize(("at", "whole"), [(1, 0), (17, 0), (25, 0), (64, 1)])
def test_damage_in_the_middle_is_told(tmp_path: Path, at: int, whole: int) -> None:
    """In mark, checksum or content: what is behind it does not count, and the log says from where on."""
    path = tmp_path / "j"
    filled(path).close()
    content = bytearray(path.read_bytes())
    content[at] ^= 0x40
    path.write_bytes(bytes(content))
    with capture_logs() as logs:
        assert Journal(path, FRAMING).read() == RECORDS[:whole]
    size = whole * len(FRAMING.pack(*RECORDS[0]))
    [said] = logs
    assert said["event"].startswith("a journal is damaged")
    assert (said["log_level"], said["first_byte"], said["num_bytes"]) == ("error", size, len(content) - size)
    assert path.stat().st_size == size


def test_a_record_that_does_not_fit_leaves_the_journal_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a record would hide those behind it."""
    journal = filled(tmp_path / "j")
    honest = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda handle, data: honest(handle, data[: len(data) // 2]))
        with pytest.raises(OSError, match="No space left") as caught:
            journal.add(FRAMING.pack(b"four", b"4"))
    assert files.is_full(caught.value)
    journal.add(FRAMING.pack(b"five", b"5"))
    assert journal.num_bytes == (tmp_path / "j").stat().st_size
    assert journal.read() == [*RECORDS, [b"five", b"5"]]


def test_a_closed_journal_touches_no_other_file(tmp_path: Path) -> None:
    """The number of its file may be that of another by then."""
    journal = filled(tmp_path / "j")
    journal.close()
    with (tmp_path / "other").open("wb", buffering=0) as other:
        other.write(b"content")
        with pytest.raises(OSError, match="Bad file descriptor"):
            journal.add(FRAMING.pack(b"four", b"4"))
        with pytest.raises(OSError, match="Bad file descriptor"):
            journal.truncate()
    assert (tmp_path / "other").read_bytes() == b"content"
    assert journal.closed
