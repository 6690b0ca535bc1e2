"""Blocks of rows that jobs used together, as they are kept from job to job."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from kernfed.errors import PolicyError
from kernfed_client.streams import used_rows
from kernfed_client.streams.used_rows import USED_ROWS, UsedRows


def test_a_damaged_file_is_named_with_the_remedy(tmp_path: Path) -> None:
    """Without what is known of former jobs nothing is told; the file is for its owner alone."""
    used = UsedRows(tmp_path)
    with used.alone():
        used.keep([range(100)], [])
    path = tmp_path / USED_ROWS
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for left in tmp_path.glob(f"{USED_ROWS}-*"):
        left.unlink()
    path.write_bytes(b"x" * 5000)
    with pytest.raises(PolicyError, match=rf"damaged.*put {USED_ROWS} .*back, or remove it"):
        UsedRows(tmp_path)


def test_the_first_blocks_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file does not grow for ever."""
    monkeypatch.setattr(used_rows, "MOST_ROWS", 50)
    used = UsedRows(tmp_path)
    for first in range(0, 100, 10):
        with used.alone():
            used._before_look = 0
            used.keep([range(first, first + 10)], [])
    assert sorted(mark for block in used.blocks(range(100)).values() for mark in block) == list(range(50, 100))


def test_what_fails_is_not_kept(tmp_path: Path) -> None:
    """A round that comes to nothing leaves no block."""
    used = UsedRows(tmp_path)

    def fails() -> None:
        with used.alone():
            used.keep([range(10)], [])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert not used.blocks(range(10))
