"""What is told of a convex function at two points: honest sums agree, whatever the rows, and others do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernfed.arrays import Floats
from kernfed.maths.likelihood.consistency import Part, contradiction
from kernfed.methods.glm.families import FAMILIES, FamilyName
from kernfed.methods.survival.partial import Point, Rows, Ties


def glm_part(family: FamilyName, x: Floats, y: Floats, at: Floats) -> Part:
    """Half of the deviance of rows."""
    law, eta = FAMILIES[family], x @ at
    hessian = (x * law.information(y, eta, expected=False)[:, None]).T @ x / len(y)
    return Part(at, float(law.deviance(y, eta).mean()) / 2.0, -x.T @ law.score(y, eta) / len(y), hessian)


def cox_part(rows: Rows, at: Floats) -> Part:
    """Minus the log-likelihood of rows."""
    point, num = Point.at(rows, at), len(rows.times)
    return Part(at, -point.log_likelihood() / num, -point.gradient() / num, point.hessian() / num)


@pytest.mark.parametrize("family", FamilyName)
@given(seed=st.integers(0, 10**6), size=st.integers(2, 40), step=st.floats(1e-9, 2.0), far=st.floats(-3.0, 3.0))
def test_honest_sums_agree(family: FamilyName, seed: int, size: int, step: float, far: float) -> None:
    """Of few rows and many, with outliers, on short ways and as long ones as the method goes."""
    random = np.random.default_rng(seed)
    x = np.column_stack([np.ones(size), random.standard_t(2, size=(size, 2)).clip(-15.0, 15.0)])
    at = np.array([far, 0.0, 0.0]) + 0.3 * random.normal(size=3)
    eta = (x @ at).clip(-10.0, 10.0)
    y = {
        FamilyName.GAUSSIAN: 1e6 + eta + random.standard_t(2, size=size),
        FamilyName.BINOMIAL: (random.random(size) < 1.0 / (1.0 + np.exp(-eta))).astype(float),
        FamilyName.POISSON: random.poisson(np.exp(eta)).astype(float),
        FamilyName.GAMMA: random.gamma(1.0, np.exp(eta)) + 1e-6,
    }[family]
    before = glm_part(family, x, y, at)
    way = random.normal(size=3)
    now = glm_part(family, x, y, at + step * way / np.abs(way).max())
    assert contradiction(before, now, curved=family is not FamilyName.GAUSSIAN) == ""


@given(seed=st.integers(0, 10**6), size=st.integers(2, 40), step=st.floats(1e-9, 2.0), ties=st.sampled_from(Ties))
def test_honest_sums_of_hazards_agree(seed: int, size: int, step: float, ties: Ties) -> None:
    """By either rule for ties."""
    random = np.random.default_rng(seed)
    x = random.standard_t(2, size=(size, 2)).clip(-15.0, 15.0)
    rows = Rows.of(x, random.exponential(size=size).round(1), random.random(size) < 0.7, ties)
    at, way = random.normal(size=2), random.normal(size=2)
    before, now = cox_part(rows, at), cox_part(rows, at + step * way / np.abs(way).max())
    assert contradiction(before, now, curved=True) == ""


@pytest.mark.parametrize("family", FamilyName)
@pytest.mark.parametrize(
    ("lie", "factor", "told"),
    [
        ("value", 1000.0, "a likelihood that moved by"),
        ("gradient", -1.0, "a likelihood that moved by"),
        ("hessian", 1000.0, "second derivatives"),
    ],
)
def test_other_numbers_do_not(family: FamilyName, lie: str, factor: float, told: str) -> None:
    """Told at both points, where the way between them is by such numbers of one client of four."""
    random = np.random.default_rng(5)
    x = np.column_stack([np.ones(60), random.normal(size=(60, 2))])
    y = {
        FamilyName.BINOMIAL: (random.random(60) < 0.4).astype(float),
        FamilyName.POISSON: random.poisson(2.0, 60).astype(float),
        FamilyName.GAMMA: random.gamma(2.0, size=60),
        FamilyName.GAUSSIAN: random.normal(size=60),
    }[family]
    at, curved = np.array([0.3, 0.0, 0.0]), family is not FamilyName.GAUSSIAN

    def lied(part: Part) -> Part:
        return replace(part, **{lie: getattr(part, lie) * factor})

    before = glm_part(family, x, y, at)
    step = -np.linalg.solve(before.hessian, before.gradient) / (250.0 if lie == "hessian" else 1.0)
    now = glm_part(family, x, y, at + step)
    assert contradiction(before, now, curved=curved) == ""
    assert told in contradiction(lied(before), lied(now), curved=curved)


@pytest.mark.parametrize("lie", ["value", "hessian"])
def test_numbers_whose_products_are_beyond_all_numbers_do_not(lie: str) -> None:
    """They are told of without a warning of numpy."""
    x = np.column_stack([np.ones(4), np.arange(4.0)])
    before, now = (glm_part(FamilyName.POISSON, x, np.arange(4.0), np.full(2, at)) for at in (0.1, 0.2))
    assert contradiction(before, replace(now, **{lie: getattr(now, lie) * 0 + 1e308}), curved=True)
