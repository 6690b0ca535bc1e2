"""Tests of `kernfed_simulation.sweep` and `kernfed-simulate --sweep`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernfed.errors import ConfigError
from kernfed_simulation.federation import from_rows
from kernfed_simulation.run import simulate
from kernfed_simulation.sweep import combinations, parse_axis, run_sweep, table
from kernfed_testing.commands import run_command
from kernfed_testing.in_process import label_skewed_rows, make_job
from kernfed_testing.places import HEART


def test_axes_are_read_as_toml() -> None:
    """Numbers, booleans and words, each of its kind."""
    axis = parse_axis("damping = 0.001, 1, auto,true")
    assert (axis.key, axis.values) == ("damping", (0.001, 1, "auto", True))
    for text in ("damping", "damping=", "=3", "a b=3"):
        with pytest.raises(ConfigError, match="write KEY=VALUE"):
            parse_axis(text)


def test_combinations_are_checked_before_anything_runs() -> None:
    """Unknown keys, values out of range and doubled keys are refused; the first axis varies slowest."""
    job = make_job("fedavg", task="classification", rounds=3)
    found = combinations(job, [parse_axis("learning_rate=0.1,0.2"), parse_axis("rounds=1,2")])
    assert [list(settings.values()) for settings, _ in found] == [[0.1, 1], [0.1, 2], [0.2, 1], [0.2, 2]]
    assert [j.method.model_dump()["rounds"] for _, j in found] == [1, 2, 1, 2]
    for texts, message in (
        (["nonsense=1"], "--sweep nonsense 1: method.nonsense: unknown key"),
        (["rounds=0"], "rounds 0"),
        (["rounds=1", "rounds=2"], "twice"),
        (["damping=0.1"], "damping 0.1"),
        (["rounds=" + ",".join(map(str, range(1, 1002)))], "1001 runs"),
    ):
        with pytest.raises(ConfigError, match=message):
            combinations(job, [parse_axis(text) for text in texts])


def test_a_run_that_diverges_is_an_outcome_too(tmp_path: Path) -> None:
    """Its reason stands in the table, beside the others' scores."""
    job = make_job(
        "newton",
        task="classification",
        num_columns=6,
        data="classes = ['a', 'b', 'c']",
        features='kernel = "linear"',
        loss="cross-entropy",
        step="paper",
        rounds=20,
        ridge=1e-6,
        solver="exact",
    )
    runs = combinations(job, [parse_axis("damping=1e-6,1.0"), parse_axis("step_size=1.0")])
    outcomes = run_sweep(
        runs, lambda chosen: simulate(chosen, from_rows(label_skewed_rows(), ("a", "b", "c"), tmp_path)), "accuracy"
    )
    assert [o.error for o in outcomes] == ["DIVERGED", ""]
    columns, rows = table(outcomes, "accuracy")
    assert columns[:3] == ["damping", "step_size", "accuracy"]
    assert rows[0][-1] == "DIVERGED"
    assert float(rows[1][2]) > 0.5
    assert len(outcomes[1].curve) == 20


@pytest.mark.slow
async def test_the_command_prints_a_table_and_writes_a_plot(tmp_path: Path) -> None:
    """On the example's hospitals: one row a combination, JSON and PNG in the folder."""
    files = [arg for site in ("cleveland", "va") for arg in ("--client-file", str(HEART / "clients" / f"{site}.toml"))]
    job = tmp_path / "job.toml"
    job.write_text((HEART / "head.toml").read_text().replace('"hungarian", "switzerland", ', ""))
    sweep = ["--sweep", "damping=0.1,auto", "--sweep", "solver=cg,exact", "--sweep", "rounds=2"]
    done = await run_command("kernfed-simulate", str(job), *files, *sweep, "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert len([line for line in done.stdout.splitlines() if line.split()[:1] in (["0.1"], ["auto"])]) == 4
    facts = json.loads((tmp_path / "out" / "sweep.json").read_text())
    assert [f["settings"]["solver"] for f in facts] == ["cg", "exact", "cg", "exact"]
    assert all(0.5 < f["scores"]["auc"] <= 1 for f in facts)
    assert (tmp_path / "out" / "sweep.png").read_bytes().startswith(b"\x89PNG")
