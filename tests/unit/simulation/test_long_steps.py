"""Steps that are too long for numbers end a job as DIVERGED, and the error names the keys that the job can lower."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kernfed.errors import DivergedError
from kernfed.jobs.job_file import JobFile
from kernfed_simulation.run import simulate
from kernfed_testing.methods.installed import installed
from kernfed_testing.methods.personalise import clients
from kernfed_testing.methods.variants import COLUMNS, rows_of

NETWORK: dict[str, Any] = {"kind": "mlp", "widths": [3, 3, 3]}
PERSONAL: dict[str, Any] = {"name": "personalise", "trainer": "fedavg", "num_frequencies": 10, "network": NETWORK}
WEIGHED: dict[str, Any] = {"name": "reweight", "network": NETWORK, "ratios": {"num_frequencies": 10}}
LONG = installed(
    {
        "fedavg": {"name": "fedavg", "learning_rate": 1e6, "rounds": 9},
        "fedavg head": {"name": "fedavg", "loss": "squared", "learning_rate": 1e3, "rounds": 9},
        "personalise": {**PERSONAL, "judge": "ridge", "step_size": 1e40, "rounds": 4},
        "personalise judged": {**PERSONAL, "step_size": 1e60, "rounds": 4},
        "personalise last": {**PERSONAL, "judge": "ridge", "step_size": 1e308, "rounds": 2},
        "personalise average": {**PERSONAL, "optimiser": "average", "learning_rate": 1e9, "rounds": 4},
        "reweight": {**WEIGHED, "trainer": "adam", "step_size": 1e60, "rounds": 3},
        "reweight once": {**WEIGHED, "trainer": "adam", "step_size": 1e90, "rounds": 1},
        "reweight fedavg": {**WEIGHED, "trainer": "fedavg", "learning_rate": 1e9, "rounds": 3},
    }
)


@pytest.mark.parametrize("case", list(LONG))
def test_steps_that_are_too_long_are_divergence(tmp_path: Path, case: str) -> None:
    """The error is typed, and says which keys of the job to lower."""
    method = LONG[case]
    key = "step_size" if "step_size" in method else "learning_rate"
    data = {"task": "regression", "target": "y", "features": COLUMNS}
    whole: dict[str, Any] = {"name": "job", "report": False, "method": method, "data": data}
    if "features" in JobFile.model_validate(whole).plan():
        whole["features"] = {"num_frequencies": 10}
    done = simulate(JobFile.model_validate(whole), clients(rows_of(), tmp_path))
    assert isinstance(done.error, DivergedError), done.error
    assert re.search(rf"lower .*method\.{key}", str(done.error))
