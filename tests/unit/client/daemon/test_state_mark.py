"""Tests of `kernfed_client.daemon.state_mark`: a client notices that its state folder is another one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernfed.errors import PolicyError
from kernfed_client.daemon.state_mark import LOST, MARK, StateMark


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Identity and state folder after a first start."""
    identity, state = tmp_path / "identity", tmp_path / "state"
    for folder in (identity, state):
        folder.mkdir()
    StateMark(identity, state).begin()
    return identity, state


def test_a_first_start_makes_both_marks(folders: tuple[Path, Path]) -> None:
    """They are the same, for their owner alone, and each later start finds them so."""
    identity, state = folders
    mark = (state / MARK).read_text()
    assert mark == (identity / MARK).read_text()
    assert len(mark) == 33
    assert (state / MARK).stat().st_mode & 0o777 == 0o600
    StateMark(identity, state).begin()
    assert (state / MARK).read_text() == mark
    StateMark(identity, state).check()


@pytest.mark.parametrize("other", ["", "0123", "\N{SNOWMAN}"])
def test_another_state_folder_is_noticed(folders: tuple[Path, Path], other: str) -> None:
    """One that is empty, or of another client, or damaged: jobs on data are refused, with the remedy."""
    identity, state = folders
    shutil.rmtree(state)
    state.mkdir()
    if other:
        (state / MARK).write_text(other)
    mark = StateMark(identity, state)
    mark.begin()
    assert mark.lost == LOST
    with pytest.raises(PolicyError, match="kernfed-client new-state"):
        mark.check()


def test_a_folder_that_is_put_back_is_taken_at_once(folders: tuple[Path, Path], tmp_path: Path) -> None:
    """A daemon that refused goes on without a restart, after the folder came back or was given up."""
    identity, state = folders
    state.rename(tmp_path / "away")
    state.mkdir()
    mark = StateMark(identity, state)
    assert mark.lost
    state.rmdir()
    (tmp_path / "away").rename(state)
    assert not mark.lost
    shutil.rmtree(state)
    again = StateMark(identity, state)
    assert again.lost
    assert StateMark(identity, state).accept()
    assert not again.lost
    assert not StateMark(identity, state).accept()


def test_a_new_identity_takes_over_the_mark(folders: tuple[Path, Path]) -> None:
    """A client that enrols again keeps its state folder, and a crash between the two marks does no harm."""
    identity, state = folders
    (identity / MARK).unlink()
    StateMark(identity, state).begin()
    assert (identity / MARK).read_text() == (state / MARK).read_text()
