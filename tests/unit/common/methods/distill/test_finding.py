"""The finding: what is written as JSON is read back, and so is what earlier releases wrote."""

from __future__ import annotations

import pytest

from kernfed.methods.distill.finding import ClientDistance, DistillationFinding
from kernfed_testing.findings import written


def test_it_is_written_and_read_back() -> None:
    """Keys and their order are those of earlier releases; the value read back is the same."""
    assert written(DistillationFinding(2, 30, "arrived", (0.5,), (ClientDistance("a", 0.4, 0.1),))) == list(
        {
            "rounds": 2,
            "num_points": 30,
            "words": "arrived",
            "movements": [0.5],
            "clients": [
                {
                    "client": "a",
                    "first": 0.4,
                    "last": 0.1,
                    "far_rows": 0.0,
                    "alone": False,
                    "share": 1.0,
                    "gain": 0.0,
                    "gain_error": 0.0,
                    "answered": 0,
                }
            ],
            "arrived": None,
            "distance": None,
            "ridge": None,
            "lengthscales": [],
        }.items()
    )


def test_findings_of_other_releases_are_read() -> None:
    """A key that has no default is missed by name."""
    with pytest.raises(TypeError, match="num_points"):
        DistillationFinding.from_json({"rounds": 1})
