"""The experiments on reweighting run as they stand, and write what they promise."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
KEYS = ["setting", "method", "published", "measured", "repetitions"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "methods", "published"),
    [
        ("table1", {"FTW-ERM", "FITW-ERM", "FedAvg"}, 0.8245),
        ("table2", {"FTW-ERM", "FITW-ERM", "FedAvg", "FedBN"}, 0.4934),
        ("table3", {"FTW-ERM", "FITW-ERM", "FedAvg", "Grayscale"}, 0.68),
        ("table10", {"FTW-ERM", "FedAvg, by rows"}, 0.76),
        ("table13", {"every bin counts", "bins of 5 training rows or more"}, 10.31),
    ],
)
def test_each_writes_numbers_and_a_picture(tmp_path: Path, name: str, methods: set[str], published: float) -> None:
    """On made-up images: every method has a number in its range, beside what was published."""
    command = [sys.executable, str(EXPERIMENTS / f"reweight_{name}.py"), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    lines = json.loads((tmp_path / f"reweight-{name}.json").read_text())
    assert all(list(line)[:5] == KEYS for line in lines)
    assert methods <= {line["method"] for line in lines}
    assert published in {line["published"] for line in lines}
    highest = 1.0 if name != "table13" else 1000.0
    assert all(0 <= line["measured"] <= highest for line in lines)
    assert (tmp_path / f"reweight-{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_missing_images_are_said(tmp_path: Path) -> None:
    """Without files the command says how to get them."""
    command = [sys.executable, str(EXPERIMENTS / "reweight_table1.py"), "--fashion", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 1
    assert "dataset-fashion-mnist" in done.stdout
