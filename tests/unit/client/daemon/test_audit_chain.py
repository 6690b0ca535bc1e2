"""The audit log over several files: rotated here or by others, cut, emptied, removed, and after a loss of power."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kernfed.errors import DataError
from kernfed_client.daemon.audit_chain import END_FILE, Chain, find_files, num_missing, verify


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The current file of a log."""
    return tmp_path / "state" / "audit.jsonl"


def write(chain: Chain, *tasks: int) -> None:
    """Add a line for each task."""
    for task in tasks:
        chain.add({"when": "2026-11-29T13:00:00+00:00", "task": task})


def write_once(path: Path, *tasks: int) -> None:
    """A life of a daemon."""
    chain = Chain(path, monthly=False)
    write(chain, *tasks)
    chain.close()


def tasks_of(path: Path) -> list[int]:
    """Tasks of all lines of a log, in order."""
    return [json.loads(line)["task"] for file in find_files(path) for line in file.read_text().splitlines()]


def test_a_large_file_ends_and_the_log_goes_on(path: Path) -> None:
    """Files are named by their first line, each names the end of the one before, and all are read in order."""
    for start in range(0, 12, 4):
        chain = Chain(path, file_bytes=500, monthly=False)
        write(chain, *range(start, start + 4))
        chain.close()
    names = [file.name for file in find_files(path)]
    assert len(names) > 2
    assert (names[0], names[-1]) == ("audit-000000001.jsonl", "audit.jsonl")
    assert names[:-1] == sorted(names[:-1])
    assert tasks_of(path) == list(range(12))
    assert verify(path) == 12
    assert (path.stat().st_mode & 0o777, path.with_name(END_FILE).stat().st_mode & 0o777) == (0o600, 0o600)


def test_a_month_ends_a_file(path: Path) -> None:
    """The first line of a month begins a new file, also after a restart; without the key the file goes on."""
    clock = datetime(2026, 11, 30, 23, 59, tzinfo=UTC)
    for monthly, num_files in ((True, 2), (False, 1)):
        for moment in (clock, clock + timedelta(minutes=2)):
            chain = Chain(path, monthly=monthly, now=lambda moment=moment: moment)  # type: ignore[misc]  # mypy infers no default of a lambda
            chain.add({"when": moment.isoformat(), "task": 1})
            chain.close()
        assert len(find_files(path)) == num_files
        assert verify(path) == 2
        shutil.rmtree(path.parent)


@pytest.mark.parametrize("running", [True, False])
def test_a_rename_by_others_is_followed(path: Path, running: bool) -> None:
    """Logrotate renames the file under a daemon or between two lives; the next line is in a new one and follows."""
    chain = Chain(path, monthly=False)
    write(chain, 0, 1)
    if not running:
        chain.close()
    path.rename(path.with_name("audit.jsonl.1"))
    if not running:
        chain = Chain(path, monthly=False)
    write(chain, 2)
    path.rename(path.with_name("audit.jsonl-20261129"))
    write(chain, 3)
    chain.close()
    assert [json.loads(line)["task"] for line in path.read_text().splitlines()] == [3]
    assert tasks_of(path) == [0, 1, 2, 3]
    assert verify(path) == 4


def test_copytruncate_is_followed_where_its_copy_is_whole(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that was emptied in place is told for what it is; the lines are missed where the copy lacks one."""
    chain = Chain(path, monthly=False)
    write(chain, 0, 1)
    shutil.copy(path, path.with_name("audit.jsonl.1"))
    os.truncate(path, 0)
    write(chain, 2, 3)
    assert "copytruncate" in capsys.readouterr().out
    assert verify(path) == 4
    shutil.copy(path, path.with_name("audit.jsonl.2"))
    write(chain, 4)  # between copy and truncation
    os.truncate(path, 0)
    write(chain, 5)
    chain.close()
    with pytest.raises(DataError, match=r"lines 5 to 5 of the log are missing before line 1 of .*audit\.jsonl"):
        verify(path)
    assert num_missing(path, find_files(path)) == 1


@pytest.mark.parametrize("damage", ["emptied", "removed", "cut", "all removed"])
@pytest.mark.parametrize("goes_on", [False, True])
def test_lines_that_are_gone_are_missed(path: Path, damage: str, goes_on: bool) -> None:
    """A log that was emptied, cut or removed does not verify, whether or not the daemon went on behind it."""
    chain = Chain(path, file_bytes=500, monthly=False)
    write(chain, *range(10))
    chain.close()
    whole = path.read_bytes().splitlines(keepends=True)
    if damage == "emptied":
        path.write_bytes(b"")
    elif damage == "cut":
        path.write_bytes(b"".join(whole[:-1]))
    else:
        path.unlink()
    if damage == "all removed":
        for file in path.parent.glob("audit-*.jsonl"):
            file.unlink()
    if goes_on:
        write_once(path, 10, 11)
    first = 1 if damage == "all removed" else 10 if damage == "cut" else 11 - len(whole)
    with pytest.raises(DataError, match=rf"lines {first} to 10 of the log are missing"):
        verify(path)


def test_files_in_an_archive_are_read_where_they_are_named(path: Path, tmp_path: Path) -> None:
    """Without the folder that they were moved to their lines are missing, by number."""
    chain = Chain(path, file_bytes=500, monthly=False)
    write(chain, *range(10))
    chain.close()
    archive = tmp_path / "archive"
    archive.mkdir()
    oldest = find_files(path)[0]
    num_lines = len(oldest.read_text().splitlines())
    shutil.move(oldest, archive)
    assert verify(path, [archive]) == 10
    assert num_missing(path, find_files(path)) == num_lines
    with pytest.raises(DataError, match=rf"lines 1 to {num_lines} of the log are missing.*--archive"):
        verify(path)
    write_once(path, 10)
    assert verify(path, [archive]) == 11


def test_a_killed_process_may_have_written_more_than_it_noted(path: Path) -> None:
    """Lines behind the noted end count, and the next life goes on behind them."""
    write_once(path, 0)
    noted = path.with_name(END_FILE).read_bytes()
    write_once(path, 1, 2)
    path.with_name(END_FILE).write_bytes(noted)
    assert verify(path) == 3
    write_once(path, 3)
    assert verify(path) == 4
    assert "line" not in json.loads(path.read_text().splitlines()[-1])


@pytest.mark.parametrize("noted_again", [True, False])
def test_a_loss_of_power_takes_the_last_seconds_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch, noted_again: bool
) -> None:
    """After the machine's next start lines since the last sync may be gone; one before it may not."""
    write_once(path, 0, 1)  # its end was synced
    chain = Chain(path, monthly=False)
    write(chain, 2, 3)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(DataError, match="lines 4 to 4 of the log are missing at the end"):
        verify(path)
    monkeypatch.setattr("kernfed_client.daemon.audit_chain.boot_id", lambda: "the next run of the machine")
    assert verify(path) == 3
    if noted_again:
        write_once(path, 4)
        assert verify(path) == 4
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(DataError, match=r"lines 2 to [24] of the log are missing at the end"):
        verify(path)


def test_a_log_of_an_earlier_release_gets_its_end(path: Path) -> None:
    """A log without a noted end verifies as before, and goes on with one."""
    write_once(path, 0, 1)
    path.with_name(END_FILE).unlink()
    assert verify(path) == 2
    write_once(path, 2)
    assert json.loads(path.with_name(END_FILE).read_text())["lines"] == 3
    assert verify(path) == 3
