"""Columns of few values, of whose combinations some have one row: random features tell the targets of each of these."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kernfed.arrays import Floats
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, draw_frequencies, make_spec
from kernfed.jobs.job_file import JobFile
from kernfed.jobs.job_sections import FeaturesSection
from kernfed.tensors.feature_maps import FeatureMap
from kernfed_testing.hostile.adversary import ON, Target, foreseen, moment_job, told_open
from kernfed_testing.methods.variants import METHODS, job_of

BITS = tuple(f"b{i}" for i in range(6))
GRID: Floats = np.array(list(itertools.product([0.0, 1.0], repeat=6)))
ALLOW = 'few_values = "allow"'
guards = pytest.mark.parametrize("policy", [ALLOW, ON])


def table_of(num: int = 240, **more: Sequence[object]) -> dict[str, Sequence[object]]:
    """Six yes-or-no columns and a target."""
    draw = np.random.default_rng(4)
    x = (draw.uniform(size=(num, 6)) < 0.4).astype(int)
    return {**dict(zip(BITS, x.T.tolist(), strict=True)), "y": draw.normal(size=num).tolist(), **more}


def sums_of(table: Mapping[str, Sequence[object]]) -> tuple[Floats, Floats]:
    """Sum of the targets, and number of the rows, of each combination of the grid."""
    place = np.array([table[name] for name in BITS], dtype=int).T @ 2 ** np.arange(6)[::-1]
    sums, counts = np.zeros(64), np.zeros(64)
    np.add.at(sums, place, np.array(table["y"], dtype=float))
    np.add.at(counts, place, 1.0)
    return sums, counts


def features_job(lengthscale: float | list[float], more: Sequence[str] = (), **method: Any) -> JobFile:
    """One gradient step on 200 random features, whose weights are Σ φ(x) y / n."""
    job = moment_job(data={"features": [*BITS, *more]}, **method)
    section = FeaturesSection(num_frequencies=200, lengthscale=lengthscale, seed=3, origin="zero", intercept=False)
    return job.model_copy(update={"features": section})


def solved(weights: Floats, lengthscale: float) -> Floats:
    """The sums of the targets of all combinations, by linear equations, (64,)."""
    spec = make_spec(Kernel.GAUSSIAN, FeatureForm.COSINE, 6, lengthscale, 200, 3)
    features = FeatureMap(spec, frequencies=draw_frequencies(spec))(torch.from_numpy(GRID)).numpy()
    found: Floats = np.linalg.lstsq(features.T, weights, rcond=None)[0]
    return found


@guards
@pytest.mark.parametrize("lengthscale", [0.5, 1.7, 12.0])
def test_a_combination_that_one_row_has(tmp_path: Path, policy: str, lengthscale: float) -> None:
    """One step of one job: the target of each row whose combination no other has."""
    table = table_of()
    sums, counts = sums_of(table)
    assert (counts == 1).any()
    told = Target(tmp_path, table, policy).ask(features_job(lengthscale))
    if policy == ALLOW:
        found = solved(len(told.train) * told.weights.ravel(), lengthscale)
        np.testing.assert_allclose(found[counts == 1], sums[counts == 1], atol=1e-6)
    else:
        assert 'policy.few_values = "allow"' in told.refusal
        assert not any(str(value) in told.refusal for value in table["y"])


@guards
def test_a_column_that_features_hardly_see(tmp_path: Path, policy: str) -> None:
    """A column of numbers with a lengthscale of a million: features are still of the others alone."""
    table = table_of(x=np.random.default_rng(8).normal(size=240).tolist())
    sums, counts = sums_of(table)
    told = Target(tmp_path, table, policy).ask(features_job([0.5] * 6 + [1e6], ["x"]))
    if policy == ALLOW:
        spec = make_spec(Kernel.GAUSSIAN, FeatureForm.COSINE, 7, [0.5] * 6 + [1e6], 200, 3)
        grid = np.column_stack([GRID, np.zeros(64)])
        features = FeatureMap(spec, frequencies=draw_frequencies(spec))(torch.from_numpy(grid)).numpy()
        found = np.linalg.lstsq(features.T, len(told.train) * told.weights.ravel(), rcond=None)[0]
        np.testing.assert_allclose(found[counts == 1], sums[counts == 1], atol=1e-3)
    else:
        assert "policy.few_values" in told.refusal


@guards
def test_batches_of_combinations_that_many_rows_have(tmp_path: Path, policy: str) -> None:
    """Each combination of two columns has sixty rows, and two or three of a batch of ten."""
    table = table_of()
    table["b0"], table["b1"] = [0, 1] * 120, [0, 0, 1, 1] * 60
    job = features_job(0.5, batch_size=10)
    assert job.data is not None
    job = job.model_copy(update={"data": job.data.model_copy(update={"features": ["b0", "b1"]})})
    told = Target(tmp_path, table, policy).ask(job)
    kind = np.array(table["b0"]) + 2 * np.array(table["b1"])
    fewest = min(np.bincount(kind[np.array(sorted(block)) - 2]).min() for block in told.blocks)
    assert (fewest < 10) == (policy == ALLOW)
    assert fewest == 0 or fewest >= 10 or policy == ALLOW


def test_test_rows_of_a_combination_are_told_of_and_the_site_is_told_so(tmp_path: Path) -> None:
    """Errors of a dozen models over test rows: the sum of the targets of the two that share two values."""
    table = {"b0": [0, 1] * 120, "b1": [0, 0, 1, 1] * 60, "y": np.random.default_rng(4).normal(size=240).tolist()}
    kind = np.repeat(np.arange(4), [6, 6, 6, 2])
    y = np.random.default_rng(5).normal(size=20)
    lines = ["b0,b1,y", *(f"{k // 2},{k % 2},{value}" for k, value in zip(kind, y, strict=True))]
    target = Target(tmp_path, table, ON, test="\n".join(lines) + "\n")
    grid: Floats = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    equations, errors = [], []
    for lengthscale in (0.5, 1.0, 2.0):
        spec = make_spec(Kernel.GAUSSIAN, FeatureForm.COSINE, 2, lengthscale, 200, 3)
        features = FeatureMap(spec, frequencies=draw_frequencies(spec))(torch.from_numpy(grid)).numpy()
        for steps in (1, 2, 5, 20):
            job = features_job(lengthscale, local_steps=steps, learning_rate=1.3)
            job = job.model_copy(update={"data": job.data and job.data.model_copy(update={"features": ["b0", "b1"]})})
            (note,) = (note for note in told_open(target, job) if "so few values" in note)
            told = target.ask(job)
            f = features @ told.weights.ravel()
            equations.append([1.0, *(-2 * f), *(f * f)])
            errors.append(told.done.final.pooled["global"]["mse"] * 20)
    found = np.linalg.lstsq(np.array(equations), np.array(errors), rcond=None)[0]
    assert found[4] == pytest.approx(y[-2:].sum(), rel=0.01)
    assert "column 'b0', 'b1': so few values that the errors of several models over the test rows tell" in note


EIGHT = np.repeat(np.arange(8), [12] * 7 + [3])
LINEAR: dict[str, Any] = {"features": {"kernel": "linear"}}
EXACT = 'features.kernel = "linear"'
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "newton": ({}, EXACT),
    "head": ({}, EXACT),
    "distill": ({}, "a model of this client's own"),
    "personalise": (LINEAR, 'method.embedding_kernel = "linear"'),
    "personalise fedavg": (LINEAR, 'method.embedding_kernel = "linear"'),
    "reweight": (LINEAR, 'method.scope = "own"'),
    "reweight own": ({}, "a method or trainer without networks"),
}


def eight(seed: int) -> dict[str, Sequence[object]]:
    """Three columns of two values, of whose eight combinations one has three rows."""
    x = EIGHT[:, None] >> np.arange(3) & 1
    y = x.sum(axis=1) + np.random.default_rng(seed).normal(size=len(x))
    return {**{f"x{i}": x[:, i].tolist() for i in range(3)}, "y": y.tolist()}


@pytest.mark.parametrize("variant", [name for name in REFUSED if name in METHODS])
def test_what_tells_more_than_linear_sums_is_refused(tmp_path: Path, variant: str) -> None:
    """Random features, embeddings, density ratios, networks and kernels, with what to use; check-data foresees each."""
    targets = [Target(tmp_path / name, eight(seed), ON) for seed, name in enumerate(("ant", "bee", "cat"))]
    job, files = job_of(METHODS[variant], tmp_path)
    sections, remedy = REFUSED[variant]
    for name, section in sections.items():
        job = job.model_copy(update={name: FeaturesSection.model_validate(section)})
    before = foreseen(targets[0], job)
    refusal = targets[0].ask(job, files, targets[1:]).refusal
    assert before
    assert before in refusal
    assert "policy.few_values" in refusal
    assert f"; use {remedy}" in refusal


@pytest.mark.parametrize("kernel", ["linear", "polynomial2"])
def test_the_remedy_holds(tmp_path: Path, kernel: str) -> None:
    """Exact maps of the same columns are answered."""
    job, files = job_of(METHODS["newton"], tmp_path)
    job = job.model_copy(update={"features": FeaturesSection(kernel=Kernel(kernel))})
    assert not foreseen(Target(tmp_path / "ant", eight(1), ON), job)
    told = Target(tmp_path / "ant", eight(1), ON).ask(
        job, files, [Target(tmp_path / name, eight(seed), ON) for seed, name in enumerate(("bee", "cat"))]
    )
    assert told.done.error is None, told.refusal
