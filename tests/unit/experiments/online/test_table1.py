"""The experiment runs as it stands, and writes what it promises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernfed_testing.forked import run_script
from kernfed_testing.places import EXPERIMENTS


@pytest.mark.slow
def test_online_table1_writes_published_beside_measured(tmp_path: Path) -> None:
    """On four clients adaptive rates beat those of the text, and every regret is below its bound."""
    chosen = ("--set", "naval", "--methods", "(51, 9)", "--repetitions", 1)
    done = run_script(EXPERIMENTS, "online-table1", "--quick", *chosen, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    lines = json.loads((tmp_path / "online-table1.json").read_text())["rows"]
    assert all(
        list(line) == ["setting", "method", "published", "measured", "standard_error", "draws"] for line in lines
    )
    error = {line["method"]: line for line in lines if line["setting"] == "Naval, MSE x 1000"}
    assert {line["published"] for line in error.values()} == {16.65}
    adaptive, text = error["POF-MKL (51, 9), adaptive"], error["POF-MKL (51, 9), rates of the text"]
    assert adaptive["measured"] < 0.5 * text["measured"]
    regret = [line["measured"] for line in lines if line["setting"] == "Naval, greatest regret / bound"]
    assert len(regret) == 3
    assert max(regret) < 1.0
    assert (tmp_path / "online-table1.png").read_bytes().startswith(b"\x89PNG")
