"""What leaves a client in a job of every method: no number of rows that is above 0 and below the policy's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernfed_testing.hostile.adversary import MIN_ROWS, Target, Told, rows, small_counts
from kernfed_testing.methods.distill import made_job
from kernfed_testing.methods.variants import METHODS, NETWORK, job_of

ON = f"min_rows = {MIN_ROWS}"
SMALL_BATCHES: dict[str, dict[str, Any]] = {
    "fedavg": {"local_steps": 1, "batch_size": 1},
    "fedavg head": {"batch_size": 9},
    "fedprox head": {"batch_size": 1},
    "fedsophia": {"batch_size": 1},
    "personalise fedavg": {"network": NETWORK, "batch_size": 1},
    "reweight fedavg": {"batch_size": 1},
    "reweight own": {"batch_size": 1},
}
"""Variants that train on batches, with too small ones."""


def three(folder: Path) -> list[Target]:
    """The target and two others."""
    return [Target(folder / name, rows(seed=seed), ON) for seed, name in enumerate(("ant", "bee", "cat"))]


def ask(folder: Path, variant: dict[str, Any], targets: list[Target]) -> Told:
    """Run a job of a variant on three clients."""
    job, files = job_of(variant, folder)
    return targets[0].ask(job, files, targets[1:])


@pytest.mark.parametrize("variant", METHODS)
def test_no_method_tells_of_few_rows(tmp_path: Path, variant: str) -> None:
    """A job of every method and variant, which a client with enough rows answers."""
    told = ask(tmp_path, METHODS[variant], three(tmp_path))
    assert told.done.error is None, told.refusal
    assert not small_counts(told)


@pytest.mark.parametrize("variant", [name for name in SMALL_BATCHES if name in METHODS])
def test_small_batches_are_refused(tmp_path: Path, variant: str) -> None:
    """Batches below the policy's least number of rows, in every method that has batches."""
    targets = three(tmp_path)
    told = ask(tmp_path, {**METHODS[variant], **SMALL_BATCHES[variant]}, targets)
    assert "set method.batch_size to at least that" in told.refusal
    assert not small_counts(told)


def test_a_public_set_of_one_point(tmp_path: Path) -> None:
    """What a client predicts for one point is of a model on all its rows."""
    targets = three(tmp_path)
    job, _, files = made_job(tmp_path, num_points=1)
    told = targets[0].ask(job, files, targets[1:])
    assert not small_counts(told)
