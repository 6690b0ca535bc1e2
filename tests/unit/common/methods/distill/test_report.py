"""The report's section on distillation."""

from __future__ import annotations

from typing import Any

from kernfed.methods.distill.finding import DistillationFinding
from kernfed.methods.distill.report import distillation_section
from kernfed.report.sections import sections


def finding(num_clients: int = 2, movements: tuple[float, ...] = (0.5, 0.05, 0.001)) -> dict[str, Any]:
    clients: list[dict[str, Any]] = [
        {"client": f"<site-{i}>", "first": 0.4 + i, "last": 0.1} for i in range(num_clients)
    ]
    return {
        "rounds": 4,
        "num_points": 30,
        "words": "still moving: a lot",
        "movements": list(movements),
        "clients": clients,
    }


def test_the_section_shows_movement_clients_and_words() -> None:
    """Two charts, one row a client, and convergence in words; names are escaped."""
    section = distillation_section(DistillationFinding.from_json(finding()))
    assert [chart.title for chart in section.charts] == [
        "Movement of the consensus",
        "Clients' predictions against the consensus",
    ]
    assert "30 public points, 4 rounds. Still moving: a lot" in section.text
    assert section.table is not None
    assert section.table.rows[1] == ["<site-1>", "1.4", "0.1", "0%", "distilled"]
    assert "<site-1>" not in "".join(chart.svg for chart in section.charts)


def test_what_clients_keep_is_said() -> None:
    """The distilled model, own rows alone, or a mean of both with its weight."""
    found = finding(3)
    found["clients"][0] |= {"alone": True, "share": 0.0}
    found["clients"][1] |= {"share": 0.625, "answered": 3}
    table = distillation_section(DistillationFinding.from_json(found)).table
    assert table is not None
    assert [row[-1] for row in table.rows] == ["own rows alone", "62% distilled", "distilled"]
    assert [row[2] for row in table.rows] == ["0.1", "0.1 (round 3)", "0.1"]


def test_one_round_has_no_movement_and_many_clients_no_bars() -> None:
    """What cannot be drawn is left out; the table stays."""
    section = distillation_section(DistillationFinding.from_json(finding(60, ())))
    assert section.charts == []
    assert section.table is not None
    assert len(section.table.rows) == 60


def test_the_report_has_the_section() -> None:
    """Under the name that the workflow publishes."""
    assert sections()["distillation"](finding()).title == "Consensus on the public points"
