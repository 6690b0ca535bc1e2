"""The divergences of Table 4 and the non-negative objective."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from kernfed.errors import NumericalError
from kernfed.methods.reweight.ratio_spec import Divergence
from kernfed.methods.reweight.tensors.bregman import Bregman
from kernfed_testing import places

GOLDEN: dict[str, Any] = json.loads((places.GOLDEN / "reweight.json").read_text())
NAMES = {"lsif": Divergence.LSIF, "ukl": Divergence.UKL, "lr": Divergence.LOGISTIC, "robust": Divergence.ROBUST}
TRAIN = torch.tensor(GOLDEN["r_tr"], dtype=torch.float64)
TEST = torch.tensor(GOLDEN["r_te"], dtype=torch.float64)
WEIGHTS = torch.full((6,), 1 / 3, dtype=torch.float64)


@pytest.mark.parametrize("key", [k for k in GOLDEN["nnbd"] if not k.startswith("pu")])
def test_objective_matches_the_independent_program(key: str) -> None:
    """S, tail and both sums of (3.2) for two clients of three test points each."""
    name, scale = key.split(" r_tr*")
    found = Bregman(NAMES[name]).objective(TRAIN * float(scale), TEST, WEIGHTS, GOLDEN["C"])
    want = GOLDEN["nnbd"][key]
    assert float(found.s) == pytest.approx(want["S"], abs=1e-12)
    assert float(found.tail) == pytest.approx(want["tail"], abs=1e-12)
    assert float(found.value) == pytest.approx(want["nnbd"], abs=1e-12)
    assert float(found.plain) == pytest.approx(want["bd"], abs=1e-12)


def test_pu_matches_the_independent_program() -> None:
    """The same for positive and unlabelled points, whose ratios are below 1."""
    found = Bregman(Divergence.PU, scale=0.3).objective(TRAIN / 3, TEST / 3, WEIGHTS, GOLDEN["C"])
    want = GOLDEN["nnbd"]["pu(0.3), both / 3"]
    assert float(found.s) == pytest.approx(want["S"], abs=1e-12)
    assert float(found.value) == pytest.approx(want["nnbd"], abs=1e-12)


@pytest.mark.parametrize("divergence", Divergence)
def test_l1_is_what_f_says(divergence: Divergence) -> None:
    """l1 = f' z - f, and f' is the derivative of f, which is convex."""
    z = torch.linspace(0.05, 0.95, 19, dtype=torch.float64, requires_grad=True)
    b = Bregman(divergence, power=1.7, scale=0.4)
    (slope,) = torch.autograd.grad(b.f(z).sum(), z, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.sum(), z)
    assert bool((curvature > 0).all())
    torch.testing.assert_close(slope, b.slope(z), atol=1e-12, rtol=0)
    torch.testing.assert_close(b.l1(z), b.slope(z) * z - b.f(z), atol=1e-12, rtol=0)


def test_algorithm_1_switches_sign_below_zero() -> None:
    """With S at or above 0 it descends on S + tail; below, on -S alone."""
    b = Bregman(Divergence.LSIF)
    above = b.objective(TRAIN, TEST, WEIGHTS, 0.3)
    below = b.objective(0.2 * TRAIN, TEST, WEIGHTS, 0.3)
    assert float(above.s) > 0 > float(below.s)
    assert float(above.loss) == float(above.plain)
    assert float(below.loss) == -float(below.s)


def test_c_moves_the_switch_alone() -> None:
    """S + tail is the same for every C."""
    b = Bregman(Divergence.UKL)
    values = [float(b.objective(TRAIN, TEST, WEIGHTS, c).plain) for c in (0.0, 0.1, 0.7)]
    assert values == pytest.approx([values[0]] * 3, abs=1e-12)


def test_the_papers_lsif_drops_a_constant() -> None:
    """z²/2 in place of (z² - 1)/2 adds (1 - C K)/2 to S."""
    one = Bregman(Divergence.LSIF).objective(TRAIN, TEST, WEIGHTS, 0.3)
    other = Bregman(Divergence.LSIF, lsif_constant=False).objective(TRAIN, TEST, WEIGHTS, 0.3)
    assert float(other.s - one.s) == pytest.approx((1 - 0.3 * 2) / 2)


@pytest.mark.parametrize(
    ("divergence", "value"), [(Divergence.UKL, 0.0), (Divergence.PU, 1.0), (Divergence.LSIF, float("nan"))]
)
def test_ratios_outside_the_range_are_refused(divergence: Divergence, value: float) -> None:
    """No logarithm of 0, and no NaN, ends up in a sum."""
    with pytest.raises(NumericalError, match="density ratio"):
        Bregman(divergence).objective(torch.tensor([value]), torch.tensor([0.5]), torch.tensor([1.0]), 0.0)
