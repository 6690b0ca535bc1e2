"""The report's section on learning from streams."""

from __future__ import annotations

from typing import Any

from kernfed.methods.online.finding import OnlineFinding
from kernfed.methods.online.report import online_overview, online_section

FINDING: dict[str, Any] = {
    "method": "online",
    "num_kernels": 51,
    "kernels_per_round": 25,
    "num_frequencies": 20,
    "budget": 1000,
    "budget_unit": "parameters",
    "rows": 1000,
    "bytes_up": 8025.0,
    "bytes_down": 16200.0,
    "clients": {
        "b": {"rows": 500, "mse": 0.02, "regret": 0.3, "regret_bound": 1.2, "effective_kernels": 12.34},
        "a": {"rows": 500, "mse": 0.01, "regret": -0.1, "regret_bound": None, "effective_kernels": 3.0},
    },
}


def test_each_client_has_a_line_and_a_bar() -> None:
    """Rows are in the order of names; a client without a bound says so."""
    section = online_section(OnlineFinding.from_json(FINDING))
    assert section.table is not None
    assert section.table.rows == [
        ["a", "500", "0.01", "-0.1", "-", "3.0"],
        ["b", "500", "0.02", "0.3", "1.2", "12.3"],
    ]
    assert len(section.charts) == 1
    assert "<svg" in section.charts[0].svg


def test_what_was_sent_stands_beside_the_budget() -> None:
    """The text tells the parameters chosen, the budget, and the bytes that were measured."""
    text = online_section(OnlineFinding.from_json(FINDING)).text
    assert "1000 parameters per round; the budget is 1000 parameters" in text
    assert "8025 bytes" in text
    plain = {k: v for k, v in FINDING.items() if k not in ("budget", "budget_unit")}
    assert "budget" not in online_section(OnlineFinding.from_json({**plain, "clients": {}})).text


def test_the_regret_in_hindsight_is_told() -> None:
    """A column, a sentence and an overview hold it, where it was measured; else none of them is there."""
    found = {
        **FINDING,
        "clients": {**FINDING["clients"], "a": {**FINDING["clients"]["a"], "hindsight_regret": -0.5}},
        "hindsight": {"lengthscale": 1.5, "rows": 500, "loss": 2.0, "regret": 5.0, "bound": 60.0},
    }
    section = online_section(OnlineFinding.from_json(found))
    assert section.table is not None
    assert [row[-1] for row in section.table.rows] == ["-0.5", "-"]
    assert "is 5 in all, 0.01 a row, and at most 60 by Theorem 2" in section.text
    table = online_overview(OnlineFinding.from_json(found)).table
    assert table.rows == [["a", "500", "-0.5"], ["all", "500", "5"]]
    assert not online_overview(OnlineFinding.from_json(FINDING)).table.rows


def test_who_knows_the_probabilities_is_told() -> None:
    """With exploration 1 the coordinator does, below 1 it does not; without draws there is nothing to say."""
    texts = [
        online_section(OnlineFinding.from_json({**FINDING, "exploration": xi})).text
        if xi
        else online_section(OnlineFinding.from_json(FINDING)).text
        for xi in (1.0, 0.4, None)
    ]
    assert "which the coordinator knows" in texts[0]
    assert "up to an unknown factor" in texts[1]
    assert not any("exploration" in text for text in texts[2:])
