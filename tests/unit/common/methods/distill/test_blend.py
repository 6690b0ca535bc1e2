"""How much of the distilled model a client keeps: much where rows kept apart ask for it, little where they are few."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernfed.features.kernels import KernelSpec, PointKernel
from kernfed.maths.folds import units
from kernfed.methods.distill.blend import SPREAD, distilled_share, gain
from kernfed.methods.distill.consensus import mean_predictions
from kernfed.methods.distill.tensors.distillation import DistilledRidge, kernel_ridge, leave_out
from kernfed.methods.distill.tensors.shrinkage import Unshrunk

SPEC = KernelSpec(PointKernel.GAUSSIAN, (1.4,), False)
RIDGE = 1e-3
ALL = np.ones(400, dtype=bool)


def test_the_share_is_that_of_least_squares_and_shrinks_with_its_variance() -> None:
    """By hand: s = -e'(d - e)/|d - e|², divided by 1 + v/SPREAD²."""
    random = np.random.default_rng(1)
    alone = random.normal(size=(400, 2))
    distilled = 0.6 * alone + 0.6 * random.normal(size=(400, 2))
    step = distilled - alone
    plain = -(alone * step).sum() / np.square(step).sum()
    scores = (step * (alone + plain * step)).sum(axis=1) / np.square(step).sum()
    expected = plain / (1 + np.square(scores).sum() / SPREAD**2)
    found = distilled_share(alone, distilled, np.arange(400), ALL[:400])
    assert found == pytest.approx(expected, rel=1e-12)
    assert 0.9 * plain < found < plain < 1.0
    assert distilled_share(alone[:6], distilled[:6], np.arange(6), ALL[:6]) < found


@pytest.mark.parametrize("distilled", [1.0, 3.0, np.inf, np.nan, 1e200])
def test_nothing_is_taken_of_a_model_that_does_not_help(distilled: float) -> None:
    """Equal errors, worse ones and those that are no numbers leave own rows alone."""
    ones = np.ones((8, 1))
    assert distilled_share(ones, distilled * ones, np.arange(8), ALL[:8]) == 0.0


def test_all_is_taken_of_a_model_without_errors() -> None:
    """And no more than all."""
    alone = np.linspace(1.0, 2.0, 30)[:, None]
    assert distilled_share(alone, np.zeros_like(alone), np.arange(30), ALL[:30]) == 1.0
    assert distilled_share(alone, 0.5 * alone, np.arange(30), ALL[:30]) == 1.0


def test_copies_of_rows_say_nothing_more() -> None:
    """Four copies of each row give the share that the rows give once."""
    random = np.random.default_rng(2)
    alone, distilled = random.normal(size=(9, 1)), 0.5 * random.normal(size=(9, 1))
    once = distilled_share(alone, distilled, np.arange(9), ALL[:9])
    again = distilled_share(np.tile(alone, (4, 1)), np.tile(distilled, (4, 1)), np.tile(np.arange(9), 4), ALL[:36])
    assert again == pytest.approx(once, rel=1e-12)
    assert 0.0 < once < 1.0


def test_rows_far_from_every_public_point_say_nothing_of_it() -> None:
    """The share is that of the other rows, times the part that they are of all; without any, or where these lose, 0."""
    random = np.random.default_rng(3)
    alone = random.normal(size=(40, 1))
    distilled = 0.5 * alone + 0.2 * random.normal(size=(40, 1))
    near = np.arange(40) % 4 == 0
    of_near = distilled_share(alone[near], distilled[near], np.arange(10), ALL[:10])
    distilled[~near] = alone[~near]
    assert distilled_share(alone, distilled, np.arange(40), near) == pytest.approx(0.25 * of_near, rel=1e-12)
    assert distilled_share(alone, distilled, np.arange(40), ~ALL[:40]) == 0.0
    distilled[~near] = 5.0
    assert distilled_share(alone, distilled, np.arange(40), near) == 0.0


def test_the_gain_has_the_scatter_of_fresh_draws() -> None:
    """Its standard error is that of the gain over many draws; copies of rows add nothing; nothing taken is no gain."""
    random = np.random.default_rng(5)
    found = []
    for _ in range(400):
        alone = random.normal(size=(50, 1))
        distilled = 0.5 * alone + 0.5 * random.normal(size=(50, 1))
        found.append(gain(alone, distilled, 0.5, np.arange(50)))
    less, error = np.array(found).T
    assert less.mean() == pytest.approx(1 - (0.75**2 + 0.25**2), abs=0.02)
    assert np.sqrt(np.mean(error**2)) == pytest.approx(less.std(), rel=0.25)
    again = gain(np.tile(alone, (4, 1)), np.tile(distilled, (4, 1)), 0.5, np.tile(np.arange(50), 4))
    assert again == pytest.approx(found[-1], rel=1e-9)
    assert gain(alone, np.full_like(alone, np.nan), 0.0, np.arange(50)) == (0.0, 0.0)
    assert gain(np.zeros((5, 1)), np.ones((5, 1)), 1.0, np.arange(5)) == (0.0, 0.0)


def _draw(seed: int, num_points: int) -> tuple[float, float, float]:
    """Mean squared errors of own rows alone, of what is kept, and of the distilled model: 40, 60 and 25 rows."""
    random = np.random.default_rng(seed)

    def rows(num: int, centre: tuple[float, float]) -> tuple[torch.Tensor, torch.Tensor]:
        x = random.normal(size=(num, 2)) * 1.1 + centre
        y = 10 * np.sin(1.7 * x[:, 0] + 0.5) * np.cos(1.7 * x[:, 1]) + 5 * np.tanh(x.sum(axis=1))
        return torch.from_numpy(x), torch.from_numpy(106 + y + random.normal(size=num))[:, None]

    sites = ((40, (-0.8, 0.5)), (60, (0.6, 0.6)), (25, (0.2, -1.0)))
    clients = [(rows(n, c), rows(300, c)) for n, c in sites]
    public = torch.from_numpy(random.normal(size=(num_points, 2)) * 1.4)
    undo = Unshrunk(SPEC, public, RIDGE, free=True)
    own = [kernel_ridge(SPEC, x, y, RIDGE, free=True) for (x, y), _ in clients]
    taught = [DistilledRidge(SPEC, x, y, public, RIDGE, len(x) / 125, free=True) for (x, y), _ in clients]
    v = mean_predictions([model(public).numpy() for model in own])
    for _ in range(40):
        v = mean_predictions([t.predict_public(undo(torch.from_numpy(v))).numpy() for t in taught])
    w, sums = torch.from_numpy(v), np.zeros(3)
    for ((x, y), (x_test, y_test)), alone, teach in zip(clients, own, taught, strict=True):
        unit = units(x.numpy())
        held_out = leave_out(SPEC, x, y, RIDGE, unit, free=True).errors, teach.leave_out(w, unit).errors
        share = distilled_share(held_out[0].numpy(), held_out[1].numpy(), unit, ALL[: len(unit)])
        a, d = alone(x_test), teach.model(w)(x_test)
        sums += [float((p - y_test).square().mean()) / 3 for p in (a, a + share * (d - a), d)]
    return float(sums[0]), float(sums[1]), float(sums[2])


@pytest.mark.parametrize("num_points", [1, 3, 20, 80])
def test_what_is_kept_is_no_worse_than_own_rows_alone(num_points: int) -> None:
    """Over draws, with few points as with many; and it keeps most of what distillation gains."""
    alone, kept, distilled = np.mean([_draw(seed, num_points) for seed in range(500, 512)], axis=0)
    assert kept < 1.01 * alone
    assert alone - kept > 0.7 * (alone - distilled)
