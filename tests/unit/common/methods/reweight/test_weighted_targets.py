"""What a client states of its density ratios fits what it stated of its rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernfed.arrays import Floats
from kernfed.methods.reweight.messages import RatioSummary
from kernfed.methods.reweight.weighted_targets import are_of_targets, spread_of


def summary(weights: Floats, y: Floats) -> RatioSummary:
    """Of some weights of the rows, and their targets."""
    share = weights / weights.sum()
    return RatioSummary(
        num_rows=len(y),
        total=1.0,
        mean=1.0,
        greatest=float(weights.max()),
        effective_rows=1.0 / float(np.square(share).sum()),
        num_cut=0,
        bound=0.0,
        uncovered=0.0,
        num_steps=0,
        histogram=np.zeros(16, dtype=np.int64),
        target_mean=np.array([share @ y]),
        target_square=np.array([share @ np.square(y)]),
        target_spread=(float(share @ np.square(y - share @ y)),),
        note="",
    )


@pytest.mark.parametrize("power", [0.0, 1.0, 8.0, 60.0])
@pytest.mark.parametrize("shift", [0.0, 5.0, -1e4, 1.7e9])
def test_all_weights_make_means_that_can_be(power: float, shift: float) -> None:
    """Equal ones, and those by which one row, the farthest, counts for nearly all; whatever the targets' mean is."""
    draw = np.random.default_rng(int(power))
    for size in (10, 400):
        y = draw.exponential(size=size) + shift
        for weights in (draw.uniform(size=size) ** power, np.exp(power * (y - y.max()))):
            told = summary(weights, y)
            for one in (told, replace(told, target_spread=())):
                assert are_of_targets(one, float(y.mean()), float(y.std()))


@pytest.mark.parametrize(
    "lie", [{"target_mean": -1.0}, {"target_mean": 0.0}, {"target_mean": 3.0}, {"target_square": 0.0}]
)
def test_other_means_are_told(lie: dict[str, float]) -> None:
    """Another sign, another unit, or none; and a square that is 20 times as large, or negative."""
    draw = np.random.default_rng(2)
    y = 1.0 + 0.3 * draw.normal(size=60)
    true = summary(draw.uniform(size=60), y)
    former = replace(true, target_spread=())
    for changed in (lie, {"target_square": 20.0}, {"target_square": -1.0}):
        new: dict[str, Any] = {name: factor * getattr(true, name) for name, factor in changed.items()}
        assert not are_of_targets(replace(former, **new), float(y.mean()), float(y.std()))
    for spread in (20.0, -1.0):
        told = replace(true, target_spread=(spread * true.target_spread[0],))
        assert not are_of_targets(told, float(y.mean()), float(y.std()))


def test_the_spread_of_targets_far_from_0_keeps_its_digits() -> None:
    """Squares of 1.7e9 have no digit of a deviation of 1 left; those of an earlier release stand in where they can."""
    y = 1.7e9 + np.random.default_rng(2).normal(size=60)
    told = summary(np.ones(60), y)
    np.testing.assert_allclose(spread_of(told), [y.var()], rtol=1e-6)
    near = summary(np.ones(60), y - 1.7e9)
    np.testing.assert_allclose(spread_of(replace(near, target_spread=())), spread_of(near), rtol=1e-9)
