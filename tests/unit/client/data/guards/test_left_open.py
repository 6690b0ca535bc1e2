"""What a site is told before a job of what its answers may tell of few rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.jobs.job_sections import FeaturesSection
from kernfed_testing.hostile.adversary import ON, Target, moment_job, rows, told_open
from kernfed_testing.methods.variants import METHODS, job_of

SETS = "tell the sum of the targets of rows that two or three columns together single out"
NETWORKS = "a coordinator that sends networks of its own making"


def three_marks() -> dict[str, Any]:
    """Three columns of two values, of which four rows have all; any two have enough rows."""
    x = np.zeros((200, 3), dtype=int)
    for places, first in (((0, 1), 0), ((1, 2), 30), ((0, 2), 60)):
        x[first : first + 25][:, places] = 1
    x[100:104] = 1
    draw = np.random.default_rng(3)
    x = x[draw.permutation(200)]
    return {**rows(200), **{f"m{j}": x[:, j].tolist() for j in range(3)}}


def test_columns_that_single_out_rows_are_named_for_random_features_alone(tmp_path: Path) -> None:
    """Sums over columns and over products of two tell nothing of three; nor is a site told that asks for no rows."""
    job = moment_job(data={"features": ["x0", "x1", "x2", "m0", "m1", "m2"]})
    curved = job.model_copy(update={"features": FeaturesSection(num_frequencies=20, lengthscale=1.0)})
    target = Target(tmp_path / "on", three_marks(), ON)
    assert not told_open(target, job)
    (note,) = told_open(target, curved)
    assert SETS in note
    assert "'m0' x 'm1' x 'm2'" in note
    assert "x0" not in note
    assert not told_open(Target(tmp_path / "off", three_marks(), "min_rows = 1"), curved)


@pytest.mark.parametrize("variant", [name for name in ("personalise fedavg", "reweight own") if name in METHODS])
def test_networks_are_told_of(tmp_path: Path, variant: str) -> None:
    """Once, whatever else is told; a linear job is not."""
    job, _ = job_of(METHODS[variant], tmp_path)
    target = Target(tmp_path / "target", rows(80), ON)
    assert [NETWORKS in note for note in told_open(target, job)] == [True]
    assert not told_open(target, moment_job())
