"""Clients that come to a job on streams after its start, and what they are not asked again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.federation.events import EventKind
from kernfed_testing.methods.online_clients import (
    SMALL,
    SMALL_POOLED,
    ComingAndGoing,
    StopError,
    StoppingJournal,
    clients,
    finding,
    stream_job,
)


@pytest.fixture
def look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Newcomers are looked for in every round."""
    monkeypatch.setattr("kernfed_server.methods.online.newcomers._LOOK_S", 0.0)


@pytest.mark.usefixtures("look_at_once")
@pytest.mark.parametrize("method", ["online", "vm-kofl", "perfedavg"])
def test_a_client_joins_in_mid_stream(tmp_path: Path, method: str) -> None:
    """A client that was not there at the start gets all parameters, and its rows count from then on."""
    made = clients(tmp_path)
    settings = SMALL if method == "online" else {"metrics_every": 10}
    exchange = ComingAndGoing(made, {"c2": range(12)})
    model, journal = made.run(stream_job(method, **settings), exchange=exchange, newcomers=["c2"])
    assert {name: c["rows"] for name, c in finding(journal)["clients"].items()} == {"c0": 40, "c1": 40, "c2": 40}
    joined = [e for e in journal.events if e.kind is EventKind.CLIENT_JOINED]
    assert [e.client for e in joined] == ["c2"]
    assert 11 <= joined[0].round_num < 20
    assert journal.last is not None
    assert journal.last.round_num == joined[0].round_num + 40
    if method == "online":
        assert model.round_num == journal.last.round_num


@pytest.mark.usefixtures("look_at_once")
def test_who_was_away_at_the_start_comes_later(tmp_path: Path) -> None:
    """A client of the cohort that no answer came from before round 1 takes part when it is there."""
    made = clients(tmp_path)
    exchange = ComingAndGoing(made, {"c1": range(8)})
    cohort = 'preflight = "quorum"\nmin_fraction = 0.3\ndeadline_s = 0.01'
    _, journal = made.run(stream_job(**SMALL, cohort=cohort), exchange=exchange)
    assert {name: c["rows"] for name, c in finding(journal)["clients"].items()} == {"c0": 40, "c1": 40, "c2": 40}
    assert [e.client for e in journal.events if e.kind is EventKind.CLIENT_JOINED] == ["c1"]


@pytest.mark.usefixtures("look_at_once")
def test_who_does_not_fit_stays_out(tmp_path: Path) -> None:
    """A newcomer whose data the job cannot use is noted once, with the reason; the others go on."""
    made = clients(tmp_path)
    exchange = ComingAndGoing(made, {"c2": range(12)}, {"c2": "no such column"})
    _, journal = made.run(stream_job(**SMALL), exchange=exchange, newcomers=["c2"])
    assert {name: c["rows"] for name, c in finding(journal)["clients"].items()} == {"c0": 40, "c1": 40}
    notes = [e.message for e in journal.events if e.kind is EventKind.NOTE and "c2" in e.message]
    assert notes == ["c2 cannot join: INVALID_DATA: no such column"]


@pytest.mark.usefixtures("look_at_once")
def test_a_resumed_job_goes_on_with_what_was_agreed(tmp_path: Path) -> None:
    """After a restart of the coordinator scales and ranges are those of the clients of the start, whoever is there."""
    made = clients(tmp_path)
    wide = np.array([[30.0, -20.0]])
    x, y = made.rows["c2"]
    made.rows["c2"] = (np.concatenate([x, wide]), np.append(y, 9.0))  # other scales, had it been asked
    made.restart("c2")
    job = stream_job(**SMALL, rounds=30)
    journal = StoppingJournal(stop_at=17)
    with pytest.raises(StopError):
        made.run(job, journal=journal, exchange=ComingAndGoing(made, {"c2": range(6)}), newcomers=["c2"])
    before = journal.kept[16].state
    exchange = ComingAndGoing(made, {"c0": range(100)})  # the first of them is gone for good
    model, _ = made.run(job, resumed=journal.kept[16], exchange=exchange)
    assert model.mean.tobytes() == before["run.agreement.mean"].tobytes()
    assert (model.target_low, model.target_span) == (
        min(made.rows[c][1].min() for c in ("c0", "c1")),
        pytest.approx(np.ptp(np.concatenate([made.rows[c][1] for c in ("c0", "c1")]))),
    )


@pytest.mark.parametrize("settings", [SMALL_POOLED, {**SMALL, "share": "gradients"}], ids=["statistics", "gradients"])
@pytest.mark.parametrize("stop_at", [1, 17], ids=["after-preparation", "after-a-round"])
def test_a_restart_with_a_client_gone_changes_no_bit(tmp_path: Path, stop_at: int, settings: dict[str, Any]) -> None:
    """Killed with a client gone for good, what is learned is what the others learn where it only left."""
    job = stream_job(**settings, rounds=30)
    gone = {"c0": range(stop_at, 100)}
    calm = clients(tmp_path / "calm")
    _, undisturbed = calm.run(job, exchange=ComingAndGoing(calm, gone))
    made = clients(tmp_path / "killed")
    journal = StoppingJournal(stop_at)
    with pytest.raises(StopError):
        made.run(job, journal=journal, exchange=ComingAndGoing(made, gone))
    made.restart("c1")
    resumed = journal.kept[stop_at - 1]
    _, after = made.run(job, resumed=resumed, exchange=ComingAndGoing(made, {"c0": range(100)}))
    assert undisturbed.last is not None
    assert after.last is not None
    for name, array in undisturbed.last.state.items():
        assert name.startswith("run.") or np.array_equal(array, after.last.state[name]), name


@pytest.mark.usefixtures("look_at_once")
def test_who_is_not_prepared_is_not_taken_for_a_member_after_a_restart(tmp_path: Path) -> None:
    """A client that was away before round 1, and through the coordinator's restart, joins with a word when it comes."""
    made = clients(tmp_path)
    cohort = 'preflight = "quorum"\nmin_fraction = 0.3\ndeadline_s = 0.01'
    job = stream_job(**SMALL, cohort=cohort, rounds=30)
    journal = StoppingJournal(stop_at=9)
    with pytest.raises(StopError):
        made.run(job, journal=journal, exchange=ComingAndGoing(made, {"c1": range(100)}))
    _, after = made.run(job, resumed=journal.kept[8], exchange=ComingAndGoing(made, {"c1": range(15)}))
    joined = [e for e in after.events if e.kind is EventKind.CLIENT_JOINED]
    assert [e.client for e in joined] == ["c1"]
    assert joined[0].round_num >= 13
