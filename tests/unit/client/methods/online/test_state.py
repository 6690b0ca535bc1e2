"""What a client keeps of an online job: read back after a crash, whole or not at all, for the last rounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernfed.methods.online.learner import Learner, LearnerRules, Mixing
from kernfed.methods.online.losses import Loss
from kernfed_client.methods.online import state as online_state
from kernfed_client.methods.online.state import STATE_FILE, ClientState, LeftOut, StateKeeper, Waiting


def state(round_num: int, size: int = 3) -> ClientState:
    rules = LearnerRules(Mixing.ADAPTIVE, Loss.SQUARED, 0.0, 2, 1.0, 0.0)
    return ClientState(
        round_num=round_num,
        after=round_num - 1,
        request=f"r{round_num}",
        position={"file": "a.csv", "offset": 7 * round_num},
        left_out=LeftOut(faulty=1),
        learner=Learner.start(rules, size),
        theta=np.full((size, 4), float(round_num)),
        version=round_num,
        waiting={"k": Waiting(np.array([1.0, 2.0]), 0.5)},
        reply={"numbers": np.array([1, 0, 0, 1, 1]), "kernels": np.array([2, 0], dtype=np.uint8)},
    )


def same(a: ClientState, b: ClientState) -> bool:
    return (
        (a.round_num, a.after, a.request, dict(a.position), a.left_out, a.version)
        == (b.round_num, b.after, b.request, dict(b.position), b.left_out, b.version)
        and a.theta.tobytes() == b.theta.tobytes()
        and a.learner.weights().tobytes() == b.learner.weights().tobytes()
        and {k: v.tobytes() for k, v in a.reply.items()} == {k: v.tobytes() for k, v in b.reply.items()}
        and {k: (w.x.tobytes(), w.told) for k, w in a.waiting.items()}
        == {k: (w.x.tobytes(), w.told) for k, w in b.waiting.items()}
    )


def test_the_last_states_come_back(tmp_path: Path) -> None:
    """After a crash the newest state is there with its answer, and those of three rounds before it."""
    keeper = StateKeeper(state(0), tmp_path)
    for r in (1, 2, 3, 4, 6):
        keeper.keep(state(r))
    again = StateKeeper(state(0), tmp_path)
    assert same(again.newest, state(6))
    assert same(again.before(6), state(4))
    assert same(again.before(3), state(2))
    assert same(again.before(2), state(1))  # from the file


def test_a_state_that_nobody_keeps_any_more_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that falls back behind all states gets the newest, in their place; asked again, the same."""
    monkeypatch.setattr(online_state, "MAX_FILE_BYTES", 5000)
    keeper = StateKeeper(state(0), tmp_path)
    for r in range(1, 60):
        keeper.keep(state(r))
    found = keeper.before(5, 5)
    assert (found.round_num, found.left_out.ahead) == (4, 1)
    assert found.position == state(59).position
    keeper.keep(replace(state(5), left_out=found.left_out, after=4))
    assert same(keeper.before(5, 5), found)


def test_rows_that_counted_and_are_not_known_are_told(tmp_path: Path) -> None:
    """A client whose state is older than the coordinator's learns rows again, and counts so."""
    keeper = StateKeeper(state(0), tmp_path)
    keeper.keep(state(1))
    assert keeper.before(2, 2).left_out.behind == 0
    assert keeper.before(5, 5).left_out.behind == 1
    assert keeper.before(5, 0).left_out.behind == 0  # nobody says what counted


def test_an_answer_counts_for_the_state_that_it_was_learned_from(tmp_path: Path) -> None:
    """Where the coordinator lost the round before, its rows are learned again, though the question is the same."""
    keeper = StateKeeper(state(0), tmp_path)
    for r in (1, 2, 3):
        keeper.keep(state(r))
    assert keeper.answered(3, "r3", 3) is keeper.newest.reply
    assert keeper.answered(3, "r3") is keeper.newest.reply
    assert keeper.answered(3, "r3", 2) is None
    assert keeper.answered(3, "other", 3) is None


@pytest.mark.parametrize("cut", [1, 10, 40, 300])
def test_a_state_that_a_crash_cut_off_does_not_count(tmp_path: Path, cut: int) -> None:
    """The one before it is the newest then, and what is kept next is read back."""
    keeper = StateKeeper(state(0), tmp_path)
    keeper.keep(state(1))
    keeper.keep(state(2))
    path = tmp_path / STATE_FILE
    path.write_bytes(path.read_bytes()[:-cut])
    again = StateKeeper(state(0), tmp_path)
    assert same(again.newest, state(1))
    again.keep(state(2))
    again.keep(state(3))
    last = StateKeeper(state(0), tmp_path)
    assert same(last.newest, state(3))
    assert same(last.before(3), state(2))


def test_a_round_that_is_done_again_takes_the_place_of_later_ones(tmp_path: Path) -> None:
    """A coordinator that fell back leaves no trace of the rounds that it lost."""
    keeper = StateKeeper(state(0), tmp_path)
    for r in (1, 2, 3, 2):
        keeper.keep(state(r))
    assert same(StateKeeper(state(0), tmp_path).newest, state(2))


def test_the_file_stays_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it has grown, only the states that are kept move to the next file."""
    monkeypatch.setattr(online_state, "MAX_FILE_BYTES", 5000)
    keeper = StateKeeper(state(0), tmp_path)
    for r in range(1, 60):
        keeper.keep(state(r))
        assert (tmp_path / STATE_FILE).stat().st_size < 10_000
    assert [p.name for p in tmp_path.iterdir()] == [STATE_FILE]
    again = StateKeeper(state(0), tmp_path)
    assert same(again.newest, state(59))
    assert same(again.before(58), state(57))


def test_a_simulation_writes_nothing(tmp_path: Path) -> None:
    """Without a folder states live in memory."""
    keeper = StateKeeper(state(0), None)
    keeper.keep(state(1))
    assert keeper.newest.round_num == 1
    assert list(tmp_path.iterdir()) == []
