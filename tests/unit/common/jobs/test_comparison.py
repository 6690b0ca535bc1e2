"""Jobs side by side, by client."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from kernfed.errors import ConfigError, DataError
from kernfed.jobs.comparison import compare_jobs
from kernfed.methods.scores import ClientScores, ScoresFinding
from kernfed_testing.methods.scores import client_scores

VALUES = {"ant": (0.20, 0.15), "bee": (0.22, 0.19), "cat": (0.18, 0.19)}


def findings(*clients: ClientScores) -> dict[str, Any]:
    """`findings.json` of a job."""
    finding = ScoresFinding(clients, (), len(clients), len(clients), 0, 0)
    return {"scores": finding.to_json(), "end": {}}


FIRST = findings(*(client_scores(name, 0.3, first) for name, (first, _) in VALUES.items()))
SECOND = findings(*(client_scores(name, 0.3, second) for name, (_, second) in VALUES.items()))


def test_a_mean_difference_has_the_error_of_paired_clients() -> None:
    """Gains are 0.05, 0.03 and -0.01; their mean has the deviation of the three over the root of three."""
    found = compare_jobs([("one", FIRST), ("two", SECOND)])
    (brier,) = found.metrics
    gain = brier.gains[0]
    assert gain is not None
    gains = [0.05, 0.03, -0.01]
    mean = sum(gains) / 3
    assert gain.gain == pytest.approx(mean)
    assert gain.error == pytest.approx(math.sqrt(sum((g - mean) ** 2 for g in gains) / 2 / 3))
    assert brier.means == pytest.approx((0.2, (0.15 + 0.19 + 0.19) / 3))
    at = brier.clients[0].gains[0]
    assert at is not None
    assert at.error == pytest.approx(math.hypot(0.01, 0.01))


def test_a_table_has_a_line_for_each_client_and_their_mean() -> None:
    """Jobs with the model that is compared, then gains over the first job."""
    found = compare_jobs([("one", FIRST), ("two", SECOND)])
    columns, rows = found.table(found.metrics[0])
    assert columns == ["client", "one (global)", "two (global)", "gain of two"]
    assert rows[0] == ["ant", "0.200 ± 0.010", "0.150 ± 0.010", "+0.050 ± 0.014"]
    assert rows[-1][0] == "(mean of 3)"
    assert "two is better than one by 0.023 ± 0.018, mean over 3 clients" in str(found)


def test_clients_of_one_job_alone_have_no_part_in_the_mean() -> None:
    """They are in the table, and a note names them; so it does other test rows."""
    other = findings(client_scores("ant", 0.3, 0.1, rows=44), client_scores("dog", 0.3, 0.2))
    found = compare_jobs([("one", FIRST), ("two", other)])
    assert found.metrics[0].num_clients == 1
    assert [at.client for at in found.metrics[0].clients] == ["ant", "bee", "cat", "dog"]
    assert found.metrics[0].gains[0] is not None
    assert found.metrics[0].gains[0].error is None
    assert "two has other test rows than one at ant" in found.notes[0]
    assert "bee, cat, dog: in one of one and two alone" in found.notes[1]


def test_another_model_may_be_compared() -> None:
    """The clients' own models of both jobs are the same here."""
    found = compare_jobs([("one", FIRST), ("two", SECOND)], model="local")
    assert found.metrics[0].gains[0] is not None
    assert found.metrics[0].gains[0].gain == 0.0


@pytest.mark.parametrize(
    ("second", "metrics", "model", "words"),
    [
        (SECOND, ["luck"], "", "there is no metric 'luck'; choose among auc"),
        (SECOND, ["auc"], "", "have no metric of auc in common"),
        (SECOND, [], "personal", "job one measured no model 'personal'; it has global, local"),
        ({}, [], "", "job two has no scores with errors: it is not over"),
        ({"scores": {"clients": 3}}, [], "", "job two: findings.json holds no scores that can be read"),
        (findings(client_scores("dog", 0.3, 0.2)), [], "", "have no client in common"),
    ],
)
def test_what_cannot_be_compared_is_said(second: dict[str, Any], metrics: list[str], model: str, words: str) -> None:
    """One sentence: which job, and why."""
    with pytest.raises((ConfigError, DataError), match=words):
        compare_jobs([("one", FIRST), ("two", second)], metrics, model)


def test_one_job_alone_is_refused() -> None:
    """There is nothing to compare it with."""
    with pytest.raises(ConfigError, match="one job alone"):
        compare_jobs([("one", FIRST)])


def test_a_finding_of_a_later_release_is_read() -> None:
    """Keys that this release does not know are passed over."""
    later = replace(client_scores("ant", 0.3, 0.1))
    data = findings(later)
    data["scores"]["more"] = 1
    assert compare_jobs([("one", FIRST), ("two", data)]).metrics
