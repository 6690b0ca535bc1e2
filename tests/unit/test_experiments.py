"""The experiments run as they stand, and write what they promise."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kernfed_testing.forked import run_script
from kernfed_testing.places import EXPERIMENTS


@pytest.mark.slow
def test_newton_table4_writes_published_beside_measured(tmp_path: Path) -> None:
    """With few features and one repetition: every method has a number, near that of pooled ridge without label skew."""
    done = run_script(EXPERIMENTS / "newton_table4.py", "--quick", "--set", "dna", "--out", tmp_path)
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


@pytest.mark.slow
def test_online_table1_writes_published_beside_measured(tmp_path: Path) -> None:
    """On four clients adaptive rates beat those of the text, and every regret is below its bound."""
    chosen = ("--set", "naval", "--methods", "(51, 9)")
    done = run_script(EXPERIMENTS / "online_table1.py", "--quick", *chosen, "--out", tmp_path)
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


@pytest.mark.slow
def test_personalise_concept_shift_beats_the_paper(tmp_path: Path) -> None:
    """On sixteen clients of two groups: the default is near the oracle, and ahead of Q-aggregation as printed."""
    done = run_script(EXPERIMENTS / "personalise_concept_shift.py", "--quick", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    lines = json.loads((tmp_path / "personalise-concept-shift.json").read_text())["rows"]
    error = {row["method"]: row["measured"] for row in lines if row["setting"] == "sigma_c^2 = 0"}
    assert error["default (crossfit)"] < 1.3 * error["oracle, best ridge"]
    assert error["default (crossfit)"] < 0.7 * error["Q-aggregation, as printed, best ridge"]
    assert (tmp_path / "personalise-concept-shift.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_newton_heads_writes_published_beside_measured(tmp_path: Path) -> None:
    """On made-up features of ten classes every method learns, and the default is not behind FedAvg."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(10, 12))
    for name, rows in (("train", 600), ("test", 200)):
        y = np.arange(rows) % 10
        np.savez(tmp_path / f"{name}.npz", x=centres[y] + 0.5 * rng.normal(size=(rows, 12)), y=y)
    images = ("--fashion", tmp_path, "--cifar-train", tmp_path / "train.npz", "--cifar-test", tmp_path / "test.npz")
    done = run_script(EXPERIMENTS / "newton_heads.py", "--quick", "--out", tmp_path, *images)
    assert done.returncode == 0, done.stderr
    assert "Fashion-MNIST is left out" in done.stdout
    lines = json.loads((tmp_path / "newton-heads.json").read_text())["rows"]
    assert all(
        list(line) == ["setting", "method", "published", "measured", "standard_error", "draws"] for line in lines
    )
    table5 = {
        line["method"]: line for line in lines if line["setting"] == "CIFAR-10, Dir(10): accuracy, last 5 of 50 rounds"
    }
    assert table5["FedAvg"]["published"] == 85.22
    assert table5["FedNewton default"]["measured"] >= table5["FedAvg"]["measured"] - 1.0
    assert (tmp_path / "newton-heads-cifar-10.png").read_bytes().startswith(b"\x89PNG")
