"""The experiments on distillation run as they stand, and write what they promise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernfed_testing.forked import run_script
from kernfed_testing.places import EXPERIMENTS

KEYS = ["setting", "method", "published", "measured", "standard_error", "draws"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "methods", "chosen"),
    [
        ("table1", {"local"}, ()),
        ("table2", {"de-regularised"}, ("--rounds", "30")),
        (
            "figure2",
            {"local", "one-shot", "plain", "de-regularised", "central"},
            ("--set", "D1", "D3", "--rows", "10", "--rounds", "30"),
        ),
        ("figure6", {"C = 10, q = 0.501", "C = 2, q = 0.501, stale", "C = 2, remembered, to y*"}, ()),
        ("figure1", {"de-regularised", "plain"}, ()),
        ("figure7", {"Algorithm 2, 200 rounds", "Algorithm 3, 60 rounds"}, ()),
        ("fedmd", {"FedMD", "networks alone", "de-regularised, kernel ridge"}, ()),
    ],
)
def test_each_writes_numbers_and_a_picture(
    tmp_path: Path, name: str, methods: set[str], chosen: tuple[str, ...]
) -> None:
    """With few draws: every method has a number above 0, and errors of distilled models are below those alone."""
    done = run_script(EXPERIMENTS, f"distill-{name}", "--quick", "--out", tmp_path, *chosen)
    assert done.returncode == 0, done.stderr
    lines = json.loads((tmp_path / f"distill-{name}.json").read_text())["rows"]
    assert all(list(line)[:6] == KEYS for line in lines)
    assert methods <= {line["method"] for line in lines}
    assert all(line["measured"] > 0 for line in lines)
    found = {(line["setting"], line["method"]): line["measured"] for line in lines}
    for (setting, method), value in found.items():
        if method == "de-regularised" and (setting, "local") in found:
            assert value < found[setting, "local"]
    assert (tmp_path / f"distill-{name}.png").read_bytes().startswith(b"\x89PNG")
