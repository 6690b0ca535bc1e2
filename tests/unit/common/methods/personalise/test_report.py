"""The report's section on personalisation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernfed.methods.personalise.finding import Learner, PersonaliseFinding
from kernfed.methods.personalise.report import cluster, gain_metric, personalise_section, teachers
from kernfed.report.charts import heat_map
from kernfed.report.sections import sections


def finding(num: int = 3) -> dict[str, Any]:
    names = [f"<site-{i}>" for i in range(num)]
    matrix = np.full((num, num), 0.1 / (num - 1))
    np.fill_diagonal(matrix, 0.9)
    scores = {"local": {"mse": 0.5}, "global": {"mse": 0.3}, "personal": {"mse": 0.2}}
    clients = [
        {
            "client": name,
            "num_rows": 20,
            "told": i > 0,
            "choice": "embedding, h 0.5",
            "learns_from": [{"client": name, "weight": 0.9}, {"client": names[i - 1], "weight": 0.1 / (num - 1)}],
            "effective_rows": 24.5,
            "scores": scores if i else {},
        }
        for i, name in enumerate(names)
    ]
    return {
        "weights": "crossfit",
        "trainer": "exact",
        "words": ["chosen for all", "<site-0>, b: not told"],
        "clients": clients,
        "matrix": matrix.tolist(),
        "distances": (1 - np.eye(num)).tolist(),
    }


def test_the_section_shows_weights_distances_and_gains() -> None:
    """Two heat maps, escaped names, and each client's gain over both references."""
    section = personalise_section(PersonaliseFinding.from_json(finding()))
    assert [chart.title for chart in section.charts] == [
        "Collaboration weights",
        "Distance between clients' embeddings (MMD)",
    ]
    assert "<site-1>" not in "".join(chart.svg for chart in section.charts)
    assert "Chosen for all. <site-0>, b: not told." in section.text
    assert section.table is not None
    found = ["<site-1>", "20", "itself 90 %, <site-0> 5 %, others 5 %", "24", "embedding, h 0.5", "0.2", "+0.3", "+0.1"]
    assert section.table.rows[1] == found
    assert section.table.rows[0][2:] == ["not told", "–", "embedding, h 0.5", "–", "–", "–"]


def test_many_clients_are_a_table_alone() -> None:
    """What cannot be drawn is left out."""
    section = personalise_section(PersonaliseFinding.from_json(finding(60)))
    assert section.charts == []
    assert section.table is not None
    assert len(section.table.rows) == 60


def test_clients_that_are_near_are_neighbours() -> None:
    """Two pairs, interleaved by name, come out pair by pair."""
    distances = np.array([[0, 5, 1, 5], [5, 0, 5, 1], [1, 5, 0, 5], [5, 1, 5, 0]], dtype=float)
    order = cluster(distances)
    assert {frozenset(order[:2]), frozenset(order[2:])} == {frozenset({0, 2}), frozenset({1, 3})}


def test_gains_are_told_in_log_loss_for_classes() -> None:
    """Of regression in squared error; without metrics not at all."""
    assert gain_metric([Learner("a", scores={"personal": {"mse": 1.0, "log_loss": 2.0}})]) == "log_loss"
    assert gain_metric([Learner("a")]) is None
    assert teachers(Learner("a", told=False)) == "not told"
    assert teachers(Learner("a", learns=False)) == "–"


@pytest.mark.parametrize("num", [1, 3, 30])
def test_heat_maps_are_the_same_bytes_again(num: int) -> None:
    """And have one cell per value above 0."""
    values = np.eye(num)
    first = heat_map("t", [f"c{i}" for i in range(num)], values, "w")
    assert first == heat_map("t", [f"c{i}" for i in range(num)], values, "w")
    assert first.startswith("<svg")


def test_the_report_has_the_section() -> None:
    """Under the name that the workflow publishes."""
    assert sections()["personalise"](finding()).title == "Who learns from whom"
