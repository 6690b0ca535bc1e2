"""Targets and points of a distillation: their scale, their constant and the names of classes change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import DataError
from kernfed.jobs.job_file import parse_job
from kernfed.methods.distill.consensus_file import PublicConsensus
from kernfed_server.methods.distill.targets import check_points
from kernfed_simulation.federation import Rows, from_rows
from kernfed_simulation.run import simulate
from kernfed_testing.in_process import Bench
from kernfed_testing.methods.distill import made_job, made_rows, run, units


def test_a_constant_in_the_targets_is_one_in_the_predictions(tmp_path: Path) -> None:
    """With an intercept, in the consensus as in the errors of own, distilled and pooled models."""
    found = []
    for shift in (0.0, 1e4):
        job, text, files = made_job(tmp_path, intercept=True)
        done = simulate(job, from_rows(units(made_rows(), shift), (), tmp_path), text=text, files=files)
        assert isinstance(done.left, PublicConsensus)
        found.append((done.left.values - shift, done.final.pooled))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=0, atol=1e-8)
    for model in ("local", "personal", "central"):
        assert found[1][1][model]["mse"] == pytest.approx(found[0][1][model]["mse"], rel=1e-7)


@pytest.mark.parametrize("task", ["binary", "classification"])
def test_the_order_of_classes_changes_nothing(tmp_path: Path, task: str) -> None:
    """Accuracies are the same when classes are named the other way round."""
    random = np.random.default_rng(4)
    num = 2 if task == "binary" else 3
    centres = random.random((num, 3))
    y = [
        np.concatenate([np.arange(num), random.choice(num, 40, p=[0.8] + [0.2 / (num - 1)] * (num - 1))]) for _ in "abc"
    ]
    x = [centres[c] + 0.25 * random.normal(size=(len(c), 3)) for c in y]
    names, found = ("a", "b", "c")[:num], []
    for turn in (False, True):
        z = [num - 1 - c if turn else c for c in y]
        rows = {f"site-{i}": Rows(x[i][:20], z[i][:20], x[i][20:], z[i][20:]) for i in range(3)}
        settings: dict[str, Any] = {"kernel": "gaussian", "lengthscale": 0.3, "ridge": 1e-2, "intercept": True}
        job, text, files = made_job(tmp_path, task=task, **settings)
        done = simulate(job, from_rows(rows, names, tmp_path), text=text, files=files)
        found.append({model: scores["accuracy"] for model, scores in done.final.pooled.items()})
    assert found[0] == found[1]


def test_another_scale_is_found_before_round_1(tmp_path: Path) -> None:
    """A client in thousandths is refused, or left out where a quorum does; a factor of ten is noted."""
    rows = units(made_rows(), shift=3.0, site_1=1e5)
    job, text, files = made_job(tmp_path)
    refused = simulate(job, from_rows(rows, (), tmp_path), text=text, files=files)
    assert "site-1" in str(refused.error)
    assert "units" in str(refused.error)
    assert "nothing was trained" in str(refused.error)
    job, _, files = made_job(tmp_path, cohort='preflight = "quorum"')
    found = run(job, files, Bench(from_rows(rows, (), tmp_path)))
    assert any(note.startswith("site-1 is left out of this job") for note in found.notes)
    assert np.abs(found.values).max() < 10.0
    job, _, files = made_job(tmp_path)
    noted = run(job, files, Bench(from_rows(units(made_rows(), shift=3.0, site_1=10.0), (), tmp_path)))
    assert any(note.startswith("site-1: its targets lie") for note in noted.notes)


def test_a_range_for_the_target_lifts_the_rule_on_units(tmp_path: Path) -> None:
    """Such a client is noted and takes part, as in the other methods."""
    _, text, files = made_job(tmp_path, rounds=1)
    job = parse_job(f"{text}\n[data.ranges]\ny = [-1e9, 1e9]\n")
    done = run(job, files, Bench(from_rows(units(made_rows(), shift=3.0, site_1=1e5), (), tmp_path)))
    assert any(note.startswith("site-1: its targets lie") for note in done.notes)
    assert not any("left out" in note for note in done.notes)


def test_impossible_public_points_are_refused() -> None:
    """A point a million deviations off is named with its column; unscaled columns are not judged."""
    points = np.array([[0.1, 0.2], [0.3, 1e6]])
    with pytest.raises(DataError, match=r"point 2 .* column 'b'"):
        check_points(points, np.array([0.1, 0.0]), np.array([2.0, 1.0]), ("a", "b"))
    check_points(points, np.zeros(2), np.ones(2), ("a", "b"))
