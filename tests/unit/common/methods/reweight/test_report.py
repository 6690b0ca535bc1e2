"""The report's section on reweighting."""

from __future__ import annotations

from typing import Any

from kernfed.methods.reweight.finding import ReweightFinding
from kernfed.methods.reweight.report import edge_labels, gains, metric_of, reweight_section, worst_served
from kernfed.report.sections import sections


def finding(num: int = 3, metric: str = "accuracy") -> dict[str, Any]:
    clients = [
        {
            "client": f"<site-{i}>",
            "num_rows": 100,
            "shared": "20 unlabelled points",
            "total": 3.0,
            "mean": 2.9,
            "greatest": 4.25,
            "effective_rows": 50.0 + i,
            "num_cut": 2,
            "bound": 12.0,
            "uncovered": 0.12,
            "num_steps": 0,
            "held_out": 0.125,
            "histogram": [1, *[0] * 6, 40, 59, *[0] * 7],
            "scores": {
                "global": {metric: 0.8 - 0.1 * i},
                "fedavg": {metric: 0.65},
                "own": {metric: 0.6},
                "local": {metric: 0.9},
            },
        }
        for i in range(num)
    ]
    return {
        "scope": "all",
        "asked_scope": "all",
        "target": None,
        "source": "matching",
        "trainer": "newton",
        "client_weights": "equal",
        "words": ["a client refuses"],
        "clients": clients,
        "pooled": {},
    }


def test_the_section_shows_weights_and_who_gains() -> None:
    """Histograms, effective rows, a table with gains over each reference; names are escaped."""
    section = reweight_section(ReweightFinding.from_json(finding()))
    assert [c.title for c in section.charts] == [
        "Weights of the training rows",
        "Effective sample size, of the training rows",
    ]
    assert "<site-1>" not in "".join(chart.svg for chart in section.charts)
    assert "A client refuses." in section.text
    assert "gain" not in section.text, "the job's end says it, by one rule for all methods"
    assert "Worst served is <site-2>: accuracy 0.6." in section.text
    assert section.table is not None
    assert section.table.rows[0][:8] == [
        "<site-0>",
        "100",
        "50.0",
        "4.25",
        "+12.5 %",
        "2",
        "12 %",
        "20 unlabelled points",
    ]
    assert section.table.rows[0][8:] == ["0.8", "+0.15", "+0.2", "-0.1"]


def test_smaller_errors_are_better() -> None:
    """For numbers a gain is a smaller error, and the worst client the one with the largest."""
    clients = ReweightFinding.from_json(finding(metric="mse")).clients
    assert metric_of(clients) == "mse"
    assert gains(clients, "fedavg")["<site-2>"] > 0
    assert "Worst served is <site-0>" in worst_served(clients)


def test_nothing_measured_says_nothing() -> None:
    """A job without test rows has weights alone."""
    told = finding()
    for client in told["clients"]:
        client["scores"] = {}
    section = sections()["reweight"](told)
    assert worst_served(ReweightFinding.from_json(told).clients) == ""
    assert section.table is not None
    assert len(section.table.columns) == 8


def test_edges_are_those_of_the_histogram() -> None:
    """One label per bin."""
    assert edge_labels()[:3] == ["0", "1/64", "1/32"]
    assert edge_labels()[-2:] == ["128", "more"]
    assert len(edge_labels()) == 16
