"""Scores of clients put together: the same clients for every model, verdicts, and whom the job's model serves."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from kernfed.methods.scores import ScoresFinding
from kernfed_server.jobs.scores.over_clients import finding_of
from kernfed_server.jobs.verdict import ALONE
from kernfed_testing.methods.scores import client_scores

CLIENTS = [
    client_scores("ant", 0.20, 0.15, rows=40),
    client_scores("bee", 0.20, 0.19, rows=60),
    client_scores("cat", 0.20, 0.24, rows=80),
]
ROWS = {"ant": 40, "bee": 60, "cat": 80, "dog": 6}


def found(clients: list[object] | None = None) -> ScoresFinding:
    """The finding of a job of four clients."""
    finding = finding_of(clients or CLIENTS, 4, ROWS, ALONE)  # type: ignore[arg-type]  # clients
    assert finding is not None
    return finding


def test_means_over_clients_and_over_their_rows() -> None:
    """Each client counts the same in the one, and each row in the other; errors follow."""
    over = {(o.model, o.metric): o for o in found().pooled}["global", "brier"]
    assert over.mean == pytest.approx((0.15 + 0.19 + 0.24) / 3)
    assert over.mean_error == pytest.approx(0.01 / math.sqrt(3))
    assert over.pooled == pytest.approx((40 * 0.15 + 60 * 0.19 + 80 * 0.24) / 180)
    assert over.pooled_error == pytest.approx(0.01 * math.sqrt(40**2 + 60**2 + 80**2) / 180)
    assert found().behind == "3 of 4 clients, 180 of 186 measured rows"


def test_errors_whose_squares_are_beyond_all_numbers_have_a_mean() -> None:
    """Errors of squares of targets near the largest that tables may hold."""
    huge = [
        replace(
            c,
            gains=tuple(replace(g, error=1e200) for g in c.gains),
            scores=tuple(replace(s, error=1e200) for s in c.scores),
        )
        for c in CLIENTS
    ]
    finding = found([*huge])
    assert finding.verdicts[0].error == pytest.approx(1e200 / math.sqrt(3))
    assert all(o.mean_error == pytest.approx(1e200 / math.sqrt(3)) for o in finding.pooled)


def test_models_are_compared_over_the_same_clients() -> None:
    """A client without a global model has no part in what is pooled, of no model."""
    lacking = replace(CLIENTS[2], scores=CLIENTS[2].scores[1:], gains=())
    finding = found([*CLIENTS[:2], lacking])
    assert finding.behind == "2 of 4 clients, 100 of 186 measured rows"
    assert {o.model: o.pooled for o in finding.pooled}["local"] == pytest.approx(0.2)
    assert {o.clients for o in finding.pooled} == {2}


def test_a_verdict_says_by_how_much_and_at_which_clients() -> None:
    """Gains are of the job's model, above 0 where its Brier score is less."""
    (verdict,) = found().verdicts
    assert verdict.gain == pytest.approx((0.05 + 0.01 - 0.04) / 3)
    assert (verdict.better, verdict.worse, verdict.clients) == (("ant",), ("cat",), 3)
    assert "better than the client's model alone by 0.0067 ± 0.0058, which is within its errors" in verdict.words
    assert "surely better at 1: ant; surely worse at 1: cat; not to be told at 1" in verdict.words


def test_nobody_is_served_a_worse_model_without_a_word() -> None:
    """The client that surely loses is named, and the one that loses within the errors too."""
    words = found().equity_words()
    assert words.startswith("at cat (global model, Brier score by 0.040 ± 0.010) the model that the job gives is worse")
    assert "let it predict with its own" in words
    slightly = found([CLIENTS[0], client_scores("bee", 0.20, 0.21)])
    assert "it is less good within the errors at bee" in slightly.equity_words()
    assert found([CLIENTS[0]]).equity_words() == ""
    assert {s.client: s.state for s in found().equity} == {"ant": "gains", "bee": "level", "cat": "loses"}


def test_a_finding_comes_back_from_its_json() -> None:
    """What a later command reads is what was published."""
    assert ScoresFinding.from_json(found().to_json()) == found()
