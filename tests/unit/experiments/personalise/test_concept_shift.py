"""The experiment runs as it stands, and writes what it promises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernfed_testing.forked import run_script
from kernfed_testing.places import EXPERIMENTS


@pytest.mark.slow
def test_personalise_concept_shift_beats_the_paper(tmp_path: Path) -> None:
    """On sixteen clients of two groups: the default is near the oracle, and ahead of Q-aggregation as printed."""
    chosen = ("--levels", 0, "--repetitions", 1)
    done = run_script(EXPERIMENTS, "personalise-concept-shift", "--quick", "--out", tmp_path, *chosen)
    assert done.returncode == 0, done.stderr
    assert "160 rows, 64 models; about 1.6 s on one core" in done.stdout
    lines = json.loads((tmp_path / "personalise-concept-shift.json").read_text())["rows"]
    error = {row["method"]: row["measured"] for row in lines if row["setting"] == "sigma_c^2 = 0"}
    assert error["default (crossfit)"] < 1.3 * error["oracle, best ridge"]
    assert error["default (crossfit)"] < 0.7 * error["Q-aggregation, as printed, best ridge"]
    assert (tmp_path / "personalise-concept-shift.png").read_bytes().startswith(b"\x89PNG")
