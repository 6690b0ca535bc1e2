"""Findings of methods: what is written as JSON is read back, and so is what earlier releases wrote."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kernfed.methods.distill.finding import ClientDistance, DistillationFinding
from kernfed.methods.ending import Comparison, EndFinding, Loser
from kernfed.methods.finding import Finding
from kernfed.methods.heads.finding import Course, HeadFinding
from kernfed.methods.online.finding import OnlineFinding, StreamOfClient
from kernfed.methods.personalise.finding import Learner, PersonaliseFinding, Teacher
from kernfed.methods.reweight.finding import RatiosOfClient, ReweightFinding
from kernfed.report.sections import sections

MIX = Learner("a", 20, True, "embedding, h 0.5", (Teacher("a", 0.9),), 24.5, {"personal": {"mse": 0.25}})
RATIOS = RatiosOfClient("a", "nothing", 9, 3.0, 2.9, 4.25, 5.5, 2, 12.0, 0.1, 0, (1, 0), {"global": {"mse": 0.5}})

WRITTEN: list[tuple[Finding, dict[str, Any]]] = [
    (
        DistillationFinding(2, 30, "arrived", (0.5,), (ClientDistance("a", 0.4, 0.1),)),
        {
            "rounds": 2,
            "num_points": 30,
            "words": "arrived",
            "movements": [0.5],
            "clients": [{"client": "a", "first": 0.4, "last": 0.1, "far_rows": 0.0, "alone": False, "share": 1.0}],
            "arrived": None,
            "distance": None,
            "ridge": None,
            "lengthscales": [],
        },
    ),
    (
        HeadFinding(method="fedavg", loss="softmax", ridge=1e-4, course=Course("auc").then(1, 0.5, 0.75)),
        {
            "method": "fedavg",
            "loss": "softmax",
            "ridge": 1e-4,
            "course": {"metric": "auc", "rounds": [1], "seconds": [0.5], "values": [0.75]},
        },
    ),
    (
        OnlineFinding(method="ofskl", num_kernels=1, rows=4, clients={"a": StreamOfClient(4, 0.1, 0.2, None, 1.0)}),
        {
            "method": "ofskl",
            "num_kernels": 1,
            "rows": 4,
            "bytes_up": 0.0,
            "bytes_down": 0.0,
            "clients": {"a": {"rows": 4, "mse": 0.1, "regret": 0.2, "regret_bound": None, "effective_kernels": 1.0}},
        },
    ),
    (
        PersonaliseFinding("crossfit", "exact", ("a word",), (MIX,)),
        {
            "weights": "crossfit",
            "trainer": "exact",
            "words": ["a word"],
            "clients": [
                {
                    "client": "a",
                    "num_rows": 20,
                    "told": True,
                    "choice": "embedding, h 0.5",
                    "learns_from": [{"client": "a", "weight": 0.9}],
                    "effective_rows": 24.5,
                    "scores": {"personal": {"mse": 0.25}},
                }
            ],
        },
    ),
    (
        EndFinding(
            "arrived: ...",
            True,
            None,
            "relative distance, at most",
            (Comparison("global", "local", "alone", "mse", 2, 1, (Loser("a", 0.5, 0.25),), 0.4),),
        ),
        {
            "words": "arrived: ...",
            "arrived": True,
            "distance": None,
            "measure": "relative distance, at most",
            "comparisons": [
                {
                    "model": "global",
                    "against": "local",
                    "called": "alone",
                    "metric": "mse",
                    "num_clients": 2,
                    "num_better": 1,
                    "worse": [{"client": "a", "value": 0.5, "against": 0.25}],
                    "pooled": 0.4,
                }
            ],
        },
    ),
    (
        ReweightFinding("all", "all", None, "matching", "newton", "equal", (), (RATIOS,), {}),
        {
            "scope": "all",
            "asked_scope": "all",
            "target": None,
            "source": "matching",
            "trainer": "newton",
            "client_weights": "equal",
            "words": [],
            "clients": [
                {
                    "client": "a",
                    "shared": "nothing",
                    "num_rows": 9,
                    "total": 3.0,
                    "mean": 2.9,
                    "greatest": 4.25,
                    "effective_rows": 5.5,
                    "num_cut": 2,
                    "bound": 12.0,
                    "uncovered": 0.1,
                    "num_steps": 0,
                    "histogram": [1, 0],
                    "scores": {"global": {"mse": 0.5}},
                    "held_out": 0.0,
                }
            ],
            "pooled": {},
        },
    ),
]


@pytest.mark.parametrize(("finding", "written"), WRITTEN, ids=[f.name for f, _ in WRITTEN])
def test_a_finding_is_written_and_read_back(finding: Finding, written: dict[str, Any]) -> None:
    """Keys and their order are those of earlier releases; the value read back is the same."""
    assert json.dumps(finding.to_json()) == json.dumps(written)
    assert type(finding).from_json(json.loads(json.dumps(written))) == finding


@pytest.mark.parametrize("finding", [f for f, _ in WRITTEN], ids=[f.name for f, _ in WRITTEN])
def test_the_report_shows_every_finding(finding: Finding) -> None:
    """A section takes the JSON of the finding of its name."""
    assert sections()[finding.name](finding.to_json()).title


def test_missing_keys_are_defaults_and_unknown_ones_are_passed_over() -> None:
    """Job folders of other releases are read."""
    assert HeadFinding.from_json({"method": "newton", "colour": "red"}) == HeadFinding(method="newton")
    assert PersonaliseFinding.from_json({"clients": [{"client": "a"}]}).clients == (Learner("a"),)
    with pytest.raises(TypeError, match="num_points"):
        DistillationFinding.from_json({"rounds": 1})
