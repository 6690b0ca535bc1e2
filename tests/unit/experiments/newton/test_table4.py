"""The experiment runs as it stands, and writes what it promises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernfed_testing.forked import run_script
from kernfed_testing.places import EXPERIMENTS


@pytest.mark.slow
def test_newton_table4_writes_published_beside_measured(tmp_path: Path) -> None:
    """With few features and one repetition: every method has a number, near that of pooled ridge without label skew."""
    done = run_script(EXPERIMENTS, "newton-table4", "--quick", "--set", "dna", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    lines = json.loads((tmp_path / "newton-table4.json").read_text())["rows"]
    assert all(
        list(line) == ["setting", "method", "published", "measured", "standard_error", "draws"] for line in lines
    )
    near_iid = {line["method"]: line for line in lines if line["setting"] == "dna, quantity skew Dir(1)"}
    assert near_iid["FedNewton #1"]["published"] == 92.23
    assert near_iid["FedNewton default"]["published"] is None
    pooled = near_iid["KRR"]["measured"]
    assert 80 < pooled < 95
    assert abs(near_iid["FedNewton default"]["measured"] - pooled) < 0.1
    assert {line["setting"] for line in lines} == {"dna, quantity skew Dir(1)", "dna, label skew Dir(0.5)"}
    assert (tmp_path / "newton-table4.png").read_bytes().startswith(b"\x89PNG")
