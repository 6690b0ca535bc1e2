"""Nyström features: the kernel on landmarks, repeats, and jobs with them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kernfed.errors import ConfigError, DataError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, draw_frequencies, fingerprint, make_spec
from kernfed.maths.points.kernels import gram
from kernfed.maths.points.landmarks import landmark_kernel, landmark_root
from kernfed.tensors.feature_maps import FeatureMap
from kernfed_testing.in_process import bench, make_job, regression_rows


@pytest.mark.parametrize("kernel", [Kernel.GAUSSIAN, Kernel.LAPLACE, Kernel.MATERN32, Kernel.MATERN52])
def test_inner_products_are_the_kernel_between_landmarks(kernel: Kernel) -> None:
    """Elsewhere features are no longer than the kernel allows; columns may have lengthscales of their own."""
    spec = make_spec(kernel, FeatureForm.NYSTROEM, 4, (1.0, 2.0, 3.0, 4.0), 30, 7)
    landmarks = draw_frequencies(spec).omega
    made = FeatureMap(spec)(torch.as_tensor(landmarks)).numpy()
    np.testing.assert_allclose(made @ made.T, gram(landmark_kernel(spec), landmarks), atol=1e-8)
    rows = np.random.default_rng(1).normal(size=(50, 4))
    assert np.square(FeatureMap(spec)(torch.as_tensor(rows)).numpy()).sum(axis=1).max() <= 1 + 1e-8


def test_repeated_landmarks_add_no_dimension() -> None:
    """The rank counts different ones, and products between landmarks are exact all the same."""
    spec = make_spec(Kernel.MATERN32, FeatureForm.NYSTROEM, 3, 1.5, 12, 3)
    points = np.tile(np.random.default_rng(2).normal(size=(4, 3)), (3, 1))
    found = landmark_root(spec, points)
    assert found.rank == 4
    k = gram(landmark_kernel(spec), points)
    np.testing.assert_allclose(k @ found.matrix @ found.matrix @ k, k, atol=1e-10)
    assert landmark_root(spec).rank == 12


def test_smooth_kernels_on_few_columns_depend() -> None:
    """200 landmarks of one column span few dimensions of a Gaussian kernel, and features stay finite and right."""
    spec = make_spec(Kernel.GAUSSIAN, FeatureForm.NYSTROEM, 1, 1.0, 200, 3)
    assert landmark_root(spec).rank < 30
    x = np.linspace(-2, 2, 40)[:, None]
    made = FeatureMap(spec)(torch.as_tensor(x)).numpy()
    np.testing.assert_allclose(made @ made.T, gram(landmark_kernel(spec), x), atol=1e-4)


def test_too_many_landmarks_are_refused() -> None:
    """Their matrix has a row and a column for each."""
    with pytest.raises(DataError, match=r"a map of 1,000,000 landmarks needs.*lower value"):
        landmark_root(make_spec(Kernel.GAUSSIAN, FeatureForm.NYSTROEM, 2, 1.0, 1_000_000, 1))


def test_the_landmarks_are_in_the_fingerprint() -> None:
    """Another seed is another map."""
    spec = make_spec(Kernel.GAUSSIAN, FeatureForm.NYSTROEM, 2, 1.0, 10, 1)
    assert fingerprint(spec) != fingerprint(replace(spec, seed=2))
    assert fingerprint(spec) == fingerprint(spec)


def test_jobs_have_nystroem_features(tmp_path: Path) -> None:
    """A job reaches the pooled solution on them, tells the rank, and its model predicts what clients measured."""
    rows = regression_rows({"ant": 60, "bee": 50})
    job = make_job("newton", frequencies=40, features='form = "nystroem"', ridge=1e-4, rounds=40)
    done = bench(rows, tmp_path).run(job)
    assert any(re.match("40 landmarks give [0-9]+ feature", note) for note in done.notes)
    assert any(note.startswith("end: arrived") for note in done.notes)
    assert done.model is not None
    done.model.save(tmp_path / "model")
    errors = np.square(done.model.predict(rows["ant"].x_test).ravel() - rows["ant"].y_test)
    assert errors.mean() == pytest.approx(done.metrics[-1].clients["ant"]["global"]["mse"], rel=1e-6)
    assert errors.mean() < 0.5


def test_landmarks_need_standardised_rows() -> None:
    """They are drawn for columns of mean 0 and deviation 1."""
    settings: dict[str, Any] = {"data": "standardise = false", "features": 'form = "nystroem"'}
    with pytest.raises(ConfigError, match=r"landmarks stand for standardised rows.*remove that key"):
        make_job("newton", **settings)
