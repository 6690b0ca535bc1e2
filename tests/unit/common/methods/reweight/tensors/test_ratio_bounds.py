"""Bounds of density ratios from counts."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from kernfed.methods.reweight.tensors.ratio_bounds import cluster_bins, count_bins
from kernfed_testing import places
from kernfed_testing.methods.reweight_oracles import fixed_bins, histogram_bins

GOLDEN: dict[str, Any] = json.loads((places.GOLDEN / "reweight.json").read_text())["bins"]


def normal(n: int, d: int, seed: int, shift: float = 0.0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, d)) + shift)


def equal(num: int, total: float = 1.0) -> torch.Tensor:
    return torch.full((num,), total / num, dtype=torch.float64)


def test_bins_match_the_independent_program() -> None:
    """Fixed centres, two clients of three points: ratios, 0 where no training row is, and C."""
    x, xt, centres = (torch.tensor(GOLDEN[k], dtype=torch.float64) for k in ("X_tr", "X_te", "centres"))
    found = fixed_bins(x, xt, torch.full((6,), 1 / 3, dtype=torch.float64), centres)
    np.testing.assert_allclose(found.ratios, GOLDEN["r"], atol=1e-12)
    assert found.c == pytest.approx(GOLDEN["C"], abs=1e-12)
    assert found.uncovered == pytest.approx(2 / 6)
    by_hand = count_bins(np.array(GOLDEN["assign_tr"]), np.array(GOLDEN["assign_te"]), np.full(6, 1 / 3), 4)
    np.testing.assert_array_equal(by_hand.ratios, found.ratios)


def test_a_bin_with_few_rows_does_not_count() -> None:
    """One training row among many test points makes a ratio of 30; asking for 2 rows leaves it out."""
    train, test = np.array([0] * 29 + [1]), np.array([0] * 10 + [1] * 10)
    assert count_bins(train, test, np.full(20, 1 / 20), 2).bound == pytest.approx(15.0)
    assert count_bins(train, test, np.full(20, 1 / 20), 2, min_rows=2).bound == pytest.approx(0.5 * 30 / 29)


def test_disjoint_samples_share_no_bin() -> None:
    """All test points are uncovered, and there is no bound."""
    found = cluster_bins(normal(60, 2, 0), normal(60, 2, 1, 50.0), equal(60), 10)
    assert found.uncovered == 1.0
    assert found.bound == 0.0
    assert found.c == 0.0


def test_a_sample_has_bound_1_to_itself() -> None:
    """Every bin has as many of both."""
    x = normal(80, 2, 3)
    assert cluster_bins(x, x, equal(80), 8).bound == pytest.approx(1.0)
    assert histogram_bins(x, x, equal(80), 4).bound == pytest.approx(1.0)


def test_repeated_points_get_fewer_bins() -> None:
    """Three different points fill two clusters; nothing warns."""
    x = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64).repeat(10, 1)
    assert len(cluster_bins(x, x, equal(30), 10).ratios) == 2


def test_histogram_finds_a_known_ratio() -> None:
    """Uniform against uniform on the upper half: the ratio there is 2, by counts of 4000 points within 10 %."""
    random = np.random.default_rng(5)
    x = torch.from_numpy(random.random((4000, 1)))
    xt = torch.from_numpy(0.5 + random.random((4000, 1)) / 2)
    found = histogram_bins(x, xt, equal(4000), 4, min_rows=5)
    assert found.bound == pytest.approx(2.0, rel=0.1)
    assert found.uncovered == 0.0
