"""The experiment runs as it stands, and writes what it promises."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kernfed_testing.forked import run_script
from kernfed_testing.places import EXPERIMENTS


@pytest.mark.slow
def test_newton_heads_writes_published_beside_measured(tmp_path: Path) -> None:
    """On made-up features of ten classes every method learns, and the default is not behind FedAvg."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(10, 12))
    for name, rows in (("train", 400), ("test", 200)):
        y = np.arange(rows) % 10
        np.savez(tmp_path / f"{name}.npz", x=centres[y] + 0.5 * rng.normal(size=(rows, 12)), y=y)
    images = ("--fashion", tmp_path, "--cifar-train", tmp_path / "train.npz", "--cifar-test", tmp_path / "test.npz")
    done = run_script(EXPERIMENTS, "newton-heads", "--quick", "--clients", 4, "--out", tmp_path, *images)
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
