"""The finding: what is written as JSON is read back, and so is what earlier releases wrote."""

from __future__ import annotations

from kernfed.methods.heads.finding import Course, HeadFinding
from kernfed_testing.findings import written


def test_it_is_written_and_read_back() -> None:
    """Keys and their order are those of earlier releases; the value read back is the same."""
    assert written(
        HeadFinding(method="fedavg", loss="softmax", ridge=1e-4, course=Course("auc").then(1, 0.5, 0.75))
    ) == list(
        {
            "method": "fedavg",
            "loss": "softmax",
            "ridge": 1e-4,
            "course": {"metric": "auc", "rounds": [1], "seconds": [0.5], "values": [0.75]},
        }.items()
    )


def test_findings_of_other_releases_are_read() -> None:
    """Missing keys are defaults, and unknown ones are passed over."""
    assert HeadFinding.from_json({"method": "newton", "colour": "red"}) == HeadFinding(method="newton")
