"""The experiments on reweighting run as they stand, and write what they promise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernfed_testing.forked import run_script
from kernfed_testing.places import EXPERIMENTS

KEYS = ["setting", "method", "published", "measured", "standard_error", "draws"]


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
    """On made-up images: every method has a number in its range, beside what was published.

    Each says first on which device it runs, and what that takes.
    """
    sizes = ("--rounds", 3, "--repetitions", 1)
    done = run_script(EXPERIMENTS, f"reweight-{name}", "--quick", "--out", tmp_path, *sizes)
    assert done.returncode == 0, done.stderr
    if name != "table13":
        assert "3 iterations of 1 draw(s), on c" in done.stdout
    assert " models; " in done.stdout
    lines = json.loads((tmp_path / f"reweight-{name}.json").read_text())["rows"]
    assert all(list(line)[:6] == KEYS for line in lines)
    assert methods <= {line["method"] for line in lines}
    assert published in {line["published"] for line in lines}
    highest = 1.0 if name != "table13" else 1000.0
    assert all(0 <= line["measured"] <= highest for line in lines)
    assert (tmp_path / f"reweight-{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_ratios_are_matched_on_features(tmp_path: Path) -> None:
    """Table 1 with exact ratios beside those on components and on random convolutions."""
    chosen = ("--features", "components", "convolutions")
    done = run_script(EXPERIMENTS, "reweight-table1", "--quick", "--out", tmp_path, *chosen)
    assert done.returncode == 0, done.stderr
    lines = json.loads((tmp_path / "reweight-table1-features.json").read_text())["rows"]
    methods = {f"FTW-ERM, {words}" for words in ("exact ratios", "ratios on components", "ratios on convolutions")}
    assert methods | {"FedAvg"} <= {line["method"] for line in lines}


@pytest.mark.slow
def test_missing_images_are_said(tmp_path: Path) -> None:
    """Without files the command says how to get them."""
    done = run_script(EXPERIMENTS, "reweight-table1", "--fashion", tmp_path)
    assert done.returncode == 1
    assert "dataset-fashion-mnist" in done.stdout
