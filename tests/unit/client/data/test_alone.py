"""Tests of `kernfed_client.data.alone`: what a client prepares by itself knows nothing of the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kernfed_client.data.alone import alone
from kernfed_simulation.federation import Rows, from_rows
from kernfed_simulation.run import simulate
from kernfed_testing.in_process import make_job, regression_rows


def two(other: float) -> dict[str, Rows]:
    """Two clients; the second has its columns and targets times a factor."""
    rows = regression_rows({"ant": 40, "bee": 30})
    bee = rows["bee"]
    return rows | {"bee": replace(bee, x_train=other * bee.x_train, y_train=other * bee.y_train)}


@pytest.mark.parametrize("settings", [{}, {"features": "lengthscale = 1.5"}, {"features": 'kernel = "linear"'}])
def test_features_do_not_depend_on_the_others(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Scales, lengthscale and means are own ones: the same bits, whatever the others have. Shared ones move."""
    found = []
    for i, factor in enumerate((1.0, 7.0)):
        jobs = from_rows(two(factor), (), tmp_path / str(i))
        assert simulate(make_job("local", **settings), jobs).error is None
        found.append((jobs["ant"], alone(jobs["ant"])))
    (first, own), (second, same) = found
    assert not np.array_equal(first.z_train.numpy(), second.z_train.numpy())
    assert torch.equal(own.z_train, same.z_train)
    assert torch.equal(own.test_rows.whole(), same.test_rows.whole())
    assert torch.equal(own.y_train, same.y_train)
    assert np.abs(own.z_train.mean(0).numpy()).max() < 1e-12
    assert np.abs(own.y_train.mean(0).numpy()).max() < 1e-12
    if "features" in settings:
        assert own.features == first.features
    else:
        assert own.features.lengthscales != first.features.lengthscales
        assert own.features.seed == first.features.seed


def test_what_a_job_does_without_is_not_done(tmp_path: Path) -> None:
    """No scales, no intercept: the rows alone are those of the job, and the job's own rows stay as they were."""
    job = make_job(
        "local", data="standardise = false", features='lengthscale = 1.5\nintercept = false\norigin = "zero"'
    )
    jobs = from_rows(two(1.0), (), tmp_path)
    simulate(job, jobs)
    before = jobs["ant"].z_train.clone()
    own = alone(jobs["ant"])
    assert torch.equal(own.z_train, before)
    assert torch.equal(jobs["ant"].z_train, before)
    assert not own.centred
