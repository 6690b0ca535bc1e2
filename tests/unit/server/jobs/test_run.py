"""What a run records of its clients: rows and shares, caps, and who outweighs the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import ConfigError, QuorumNotMetError, UnavailableError
from kernfed.federation.messages.base import Reply
from kernfed.federation.messages.data import DataDescription
from kernfed.methods.registry import METHODS
from kernfed.methods.shares import SharesFinding
from kernfed_client.steps.registry import STEPS
from kernfed_testing.in_process import Outcome, Tamper, bench, make_job, regression_rows, stating
from kernfed_testing.methods.installed import STREAMING

SIZES = {"ant": 40, "bee": 30, "cat": 20}
FOE = "cat"


def boasting(num_rows: int, value: float | None = None) -> dict[tuple[str, str], Tamper]:
    """A client that states so many rows in all of its replies, and sends one number in all of its weights."""

    def change(reply: Reply) -> Reply:
        if hasattr(reply, "num_rows"):
            if isinstance(reply, DataDescription):  # its sums of squares have to fit its rows
                reply = stating(sum_squares=reply.sum_squares * (num_rows / reply.num_rows))(reply)
            reply = stating(num_rows=num_rows)(reply)
        if value is not None and hasattr(reply, "weights"):
            reply = stating(weights=np.full_like(reply.weights, value))(reply)
        return reply

    return {(FOE, request.step): change for request in STEPS}


def shares_of(outcome: Outcome) -> SharesFinding:
    """The last that was published."""
    found = [e.finding for e in outcome.journal.events if e.message == SharesFinding.name and e.finding is not None]
    return SharesFinding.from_json(found[-1])


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "dkrr", "newton"])
def test_a_client_that_states_most_rows_is_named(tmp_path: Path, method: str) -> None:
    """Each client's rows and share are in the record, and a note names the one that owns the result."""
    settings: dict[str, Any] = {} if method == "dkrr" else {"rounds": 2}
    rows = regression_rows(SIZES)
    honest = bench(rows, tmp_path).run(make_job(method, **settings))
    assert {c.client: c.rows for c in shares_of(honest).clients} == SIZES
    assert [c.share for c in shares_of(honest).clients] == pytest.approx([40 / 90, 30 / 90, 20 / 90])
    assert not [note for note in honest.notes if "of the weight" in note]
    foe = bench(rows, tmp_path, tamper=boasting(2**52)).run(make_job(method, **settings))
    (note,) = [note for note in foe.notes if "of the weight" in note]
    assert note.startswith(f"{FOE} has 100 % of the weight, by training rows")


def test_a_cap_bounds_what_a_liar_moves(tmp_path: Path) -> None:
    """2^52 rows and weights of 7.0: without a cap the model is 7.0, with one it is the capped mean of all."""
    rows = regression_rows(SIZES)
    settings: dict[str, Any] = {"rounds": 1, "ridge": 0.01}
    features = "lengthscale = 1.0"
    owned = bench(rows, tmp_path, tamper=boasting(2**52, 7.0)).run(make_job("fedavg", features=features, **settings))
    np.testing.assert_allclose(owned.weights, 7.0, atol=1e-6)
    job = make_job("fedavg", features=features, cohort="max_share = 0.4", **settings)
    outcome = bench(rows, tmp_path, tamper=boasting(2**52, 7.0)).run(job)
    by_client = {c.client: c for c in shares_of(outcome).clients}
    assert by_client[FOE].share == pytest.approx(0.4)
    assert by_client[FOE].uncapped == pytest.approx(1.0)
    assert by_client["ant"].share == pytest.approx(0.6 * 40 / 70)
    assert f"cohort.max_share acts on the weights by training rows: {FOE} counts 40 %, and not 100 %" in outcome.notes
    assert np.abs(outcome.weights - 0.4 * 7.0).max() < 1.0
    assert np.abs(outcome.weights).max() < 3.5


def test_the_cap_holds_in_what_all_agree_on_before_round_1(tmp_path: Path) -> None:
    """Scales, means, the lengthscale and the ridge by rows are those of capped rows too."""
    rows = regression_rows(SIZES, shift=2.0)
    job = make_job("dkrr", cohort="max_share = 0.4")
    plain = bench(rows, tmp_path).run(job)
    foe = bench(rows, tmp_path, tamper=boasting(2**52)).run(job)
    boast = bench(rows, tmp_path, tamper=boasting(2**52)).run(make_job("dkrr"))
    mean = np.average([rows[c].x_train.mean(axis=0) for c in rows], axis=0, weights=[40, 30, 140 / 3])
    np.testing.assert_allclose(foe.model.mean, mean)
    np.testing.assert_allclose(boast.model.mean, rows[FOE].x_train.mean(axis=0))
    assert any(note.startswith("ridge 0.001: by the rule for 117 training rows") for note in foe.notes)
    assert not [note for note in plain.notes if "max_share" in note and FOE in note]


ALONE = {
    "local": "forms no mean over clients",
    "personalise": "finds weights of its own for each client",
    **dict.fromkeys(STREAMING, "counts the rows that each stream brings"),
}
"""Methods without weights of the coordinator, and why."""


@pytest.mark.parametrize(("method", "reason"), [(name, ALONE[name]) for name in ALONE if name in METHODS])
def test_a_cap_is_refused_where_no_weight_is_the_coordinators(method: str, reason: str) -> None:
    """The error says what the method does instead, and which key to remove."""
    with pytest.raises(ConfigError, match=rf"method {method} {reason}; remove cohort\.max_share"):
        make_job(method, frequencies=None, cohort="max_share = 0.4")


def absent(reply: Reply) -> Reply:
    """A client that gives no answer."""
    raise UnavailableError(f"no {type(reply).__name__}")


@pytest.mark.parametrize(("method", "step"), [("fedavg", "fedavg.local_update"), ("newton", "newton.step")])
def test_each_round_tells_the_rows_behind_it(tmp_path: Path, method: str, step: str) -> None:
    """All of them, or those of the clients that answered in the step that has the fewest; metrics do not count."""
    tamper = {("ant", step): absent, ("bee", "evaluation.evaluate"): absent}
    outcome = bench(regression_rows(SIZES), tmp_path, tamper=tamper, from_round=2).run(make_job(method, rounds=3))
    assert [m.training["row_share"] for m in outcome.metrics] == [1.0, 50 / 90, 50 / 90]


def test_a_quorum_may_be_in_rows(tmp_path: Path) -> None:
    """Two of three clients are enough by number, and with 50 of 90 rows too few where three fifths are asked for."""
    tampered = bench(regression_rows(SIZES), tmp_path, tamper={("ant", "fedavg.local_update"): absent}, from_round=2)
    assert len(tampered.run(make_job("fedavg", rounds=3, cohort="min_rows_fraction = 0.5")).metrics) == 3
    lacking = r"2 of 2 clients .* answered; they have 55\.6 % of the rows, and cohort\.min_rows_fraction asks for 0\.6"
    with pytest.raises(QuorumNotMetError, match=lacking):
        tampered.run(make_job("fedavg", rounds=3, cohort="min_rows_fraction = 0.6"))


@pytest.mark.parametrize("method", STREAMING)
def test_a_quorum_in_rows_is_refused_on_streams(method: str) -> None:
    """Nobody knows how many rows a stream will bring; the error says which key to remove."""
    with pytest.raises(ConfigError, match=r"counts the rows that each stream brings; remove cohort\.min_rows_fraction"):
        make_job(method, frequencies=None, cohort="min_rows_fraction = 0.4")


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in ("fedavg", "newton", "reweight") if name in METHODS])
def test_a_cap_of_one_changes_nothing(tmp_path: Path, method: str) -> None:
    """The bits of a job without the key, and a cap that nobody reaches gives them as well."""
    rows = regression_rows(SIZES)
    plain = bench(rows, tmp_path).run(make_job(method, rounds=2))
    capped = bench(rows, tmp_path).run(make_job(method, rounds=2, cohort="max_share = 0.9"))
    assert plain.weights.tobytes() == capped.weights.tobytes()
