"""The finding: what is written as JSON is read back, and so is what earlier releases wrote."""

from __future__ import annotations

from kernfed.methods.online.finding import OnlineFinding, StreamOfClient
from kernfed_testing.findings import written


def test_it_is_written_and_read_back() -> None:
    """Keys and their order are those of earlier releases; the value read back is the same."""
    assert written(
        OnlineFinding(method="ofskl", num_kernels=1, rows=4, clients={"a": StreamOfClient(4, 0.1, 0.2, None, 1.0)})
    ) == list(
        {
            "method": "ofskl",
            "num_kernels": 1,
            "rows": 4,
            "bytes_up": 0.0,
            "bytes_down": 0.0,
            "clients": {"a": {"rows": 4, "mse": 0.1, "regret": 0.2, "regret_bound": None, "effective_kernels": 1.0}},
        }.items()
    )
