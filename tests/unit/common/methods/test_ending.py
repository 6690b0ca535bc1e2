"""The finding on a job's end is written as JSON and read back."""

from __future__ import annotations

from kernfed.methods.ending import Comparison, EndFinding, Loser
from kernfed_testing.findings import written


def test_it_is_written_and_read_back() -> None:
    """Keys and their order are those of earlier releases; the value read back is the same."""
    assert written(
        EndFinding(
            "arrived: ...",
            True,
            None,
            "relative distance, at most",
            (Comparison("global", "local", "alone", "mse", 2, 1, (Loser("a", 0.5, 0.25),), 0.4),),
        )
    ) == list(
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
        }.items()
    )
