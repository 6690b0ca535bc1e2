"""The finding: what is written as JSON is read back, and so is what earlier releases wrote."""

from __future__ import annotations

from kernfed.methods.reweight.finding import RatiosOfClient, ReweightFinding
from kernfed_testing.findings import written


def test_it_is_written_and_read_back() -> None:
    """Keys and their order are those of earlier releases; the value read back is the same."""
    assert written(
        ReweightFinding(
            "all",
            "all",
            None,
            "matching",
            "newton",
            "equal",
            (),
            (
                RatiosOfClient(
                    "a", "nothing", 9, 3.0, 2.9, 4.25, 5.5, 2, 12.0, 0.1, 0, (1, 0), {"global": {"mse": 0.5}}
                ),
            ),
            {},
        )
    ) == list(
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
        }.items()
    )
