"""What the report and a terminal say of scores."""

from __future__ import annotations

from dataclasses import replace

from kernfed.methods.scores import ScoresFinding
from kernfed.report.sections import at_a_glance, sections
from kernfed_server.jobs.scores.over_clients import finding_of
from kernfed_server.jobs.verdict import ALONE
from kernfed_testing.methods.scores import client_scores


def finding(num_clients: int = 2) -> ScoresFinding:
    """Of clients of which the second loses."""
    clients = [client_scores(f"c{k:02}", 0.20, 0.15 + 0.09 * (k % 2)) for k in range(num_clients)]
    clients[0] = replace(clients[0], positives=None, threshold=0.4, left_out=("auc", "sensitivity"))
    found = finding_of(clients, num_clients, {c.client: 40 for c in clients}, ALONE)
    assert found is not None
    return found


def test_a_terminal_shows_rows_intervals_and_gains() -> None:
    """A line a client, then the means; few positive rows are said to be few."""
    (overview,) = at_a_glance({"scores": finding().to_json()})
    assert overview.title == "what the scores are worth (95 % intervals), over 2 of 2 clients, 80 of 80 measured rows"
    assert list(overview.table.columns) == ["client", "rows", "positive", "Brier global", "Brier local", "Brier gain"]
    rows = [list(row) for row in overview.table.rows]
    assert rows[0] == ["c00", "40", "few", "0.15 [0.13, 0.17]", "0.2 [0.18, 0.22]", "+0.050 ± 0.010"]
    assert [row[0] for row in rows] == ["c00", "c01", "(mean)", "(pooled)"]


def test_the_report_says_who_loses_and_what_is_left_out() -> None:
    """Verdict, equity and metrics of few rows, each in a sentence."""
    section = sections()["scores"](finding().to_json())
    assert "Over 2 of 2 clients" in section.text
    assert "At c01 (global model, Brier score by 0.040 ± 0.010) the model that the job gives is worse" in section.text
    assert (
        "Left out at c00, where fewer rows than the policy's min_rows are behind them: AUC, sensitivity."
        in section.text
    )
    assert section.table is not None
    assert list(section.table.rows[0])[:3] == ["c00", "Brier score", "40"]


def test_of_many_clients_those_are_shown_that_lose_most() -> None:
    """A table has 40 clients at most."""
    (overview,) = at_a_glance({"scores": finding(100).to_json()})
    assert len(overview.table.rows) == 42
    assert all(row[-1].startswith("-") for row in list(overview.table.rows)[:40])


def test_a_terminal_shows_the_model_that_clients_are_given() -> None:
    """Where clients have personal models, the global one is in the report alone."""
    found = finding()
    clients = [
        replace(c, scores=(*c.scores, replace(c.scores[0], model="personal", value=0.11))) for c in found.clients
    ]
    (overview,) = at_a_glance({"scores": replace(found, clients=tuple(clients)).to_json()})
    assert list(overview.table.columns)[3:5] == ["Brier personal", "Brier local"]
