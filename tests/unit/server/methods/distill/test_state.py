"""Clients that are away, or not drawn: what stands for them, and where the consensus tends to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.methods.distill.consensus import fixed_point
from kernfed.methods.distill.consensus_file import PublicConsensus
from kernfed_server.methods.distill.state import Iteration
from kernfed_simulation.federation import from_rows
from kernfed_testing.in_process import Bench
from kernfed_testing.methods.distill import made_job, made_rows, run
from kernfed_testing.methods.distill_oracles import affine_maps, by_hand


@pytest.mark.parametrize("remember", ["predictions", "consensus"])
def test_a_client_that_is_away_for_some_rounds_does_not_stop_the_others(tmp_path: Path, remember: str) -> None:
    """Its last predictions stand for it, or nothing does, as the library gives it by hand; killed or not."""
    rows = made_rows()
    job, _, files = made_job(tmp_path, deregularise="paper", rounds=8, remember=remember)
    there = Bench(from_rows(rows, (), tmp_path), away={"site-1": range(3, 6), "site-2": range(5, 9)})
    found = run(job, files, there)
    assert isinstance(found.left, PublicConsensus)
    away = {"site-1": range(3, 6), "site-2": range(5, 9)}
    expected = by_hand(rows, found.left.points, 8, away=away, remember=remember == "predictions")
    np.testing.assert_allclose(found.values, expected, rtol=0, atol=1e-12)
    told = [note for note in found.notes if note.startswith("end: ")]
    assert [("stand for clients that were away, site-2 (round 4)" in note) for note in told] == [
        remember == "predictions"
    ]
    killed = run(job, files, there, stop_before=5)
    assert (run(job, files, there, resumed=killed.journal.last).values == found.values).all()


def test_clients_that_are_away_in_turn_do_not_move_the_limit(tmp_path: Path) -> None:
    """Half of the clients a round, by turns, and one much more rarely than the others: the limit of all, each once."""
    rows = made_rows(3)
    options: dict[str, Any] = {"client_fraction": 0.5, "participation": {"site-1": 0.1}, "remember": "predictions"}
    job, _, files = made_job(tmp_path, deregularise=False, rounds=150, alpha=0.5, **options)
    found = run(job, files, Bench(from_rows(rows, (), tmp_path)))
    assert isinstance(found.left, PublicConsensus)
    pairs = affine_maps(rows, found.left.points)
    limit, leaning = fixed_point(pairs), fixed_point(pairs, shares=[1.0, 0.1, 1.0])
    assert np.abs(found.values - limit).max() < 0.2 * np.abs(leaning - limit).max()


def test_nobody_has_arrived_while_a_client_is_away(tmp_path: Path) -> None:
    """The others' movements die away where a client is gone, and the job does not take this for its limit."""
    rows = made_rows()
    settings: dict[str, Any] = {"rounds": 60, "tolerance": 1e-2, "deregularise": False}
    job, _, files = made_job(tmp_path, top="evaluate_every = 60", **settings)
    calm = run(job, files, Bench(from_rows(rows, (), tmp_path)))
    assert calm.journal.last is not None
    assert calm.journal.last.round_num < 50
    gone = run(job, files, Bench(from_rows(rows, (), tmp_path), away={"site-3": range(2, 60)}))
    assert gone.journal.last is not None
    assert gone.journal.last.round_num == 60


def test_a_client_that_was_left_out_of_the_job_stands_for_nothing() -> None:
    """Nor does one whose predictions were absurd; of the others the last ones count."""
    state = Iteration.start(("a", "b", "c"))
    values = {"a": 1.0, "b": 2.0, "c": 6.0}
    given = {name: np.full((2, 1), value) for name, value in values.items()}
    assert (state.mean_of(given, 1, values, keeps=True) == 3.0).all()
    only = {"a": given["a"]}
    assert (state.mean_of(only, 2, ("a", "b"), keeps=True) == 1.5).all()
    assert not state.leave_out(["b"], 3)
    assert (state.mean_of(only, 3, ("a", "b"), keeps=True) == 1.0).all()
    assert state.standing(3) == {}
