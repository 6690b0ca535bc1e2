"""A client's own experts: the recursive ridge against its closed form, and what the mix of experts promises."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from kernfed.methods.online.losses import LOSSES, Loss
from kernfed.methods.online.own_model import (
    DEVIATIONS,
    GATE_KEEP,
    HEAD_START,
    LENGTHSCALES,
    MOST_EVIDENCE,
    Gate,
    OwnModel,
    own_features,
)
from kernfed.methods.online.pooled_ridge import RIDGE


def streams(num_rows: int, seed: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Features of *alone*, (n, N, F), and targets in [0, 1]."""
    random = np.random.default_rng(seed)
    z = own_features(random.normal(size=(num_rows, len(LENGTHSCALES), 4)) / 2.0)
    return z, random.uniform(size=num_rows)


def test_the_recursive_ridge_is_the_ridge() -> None:
    """After any number of rows the parameters are those of the closed form, (Z'Z + λ)^-1 Z'y."""
    z, y = streams(30, 0)
    model, f = OwnModel.start(z.shape[2], 2), np.array([0.4, 0.6])
    for row, target in zip(z, y.tolist(), strict=True):
        pull = model.ridges.pull(row)
        model = model.learn(pull, row, f, model.tell(row, f, 0.5), target, LOSSES[Loss.SQUARED])
    for i in range(len(LENGTHSCALES)):
        of_kernel = z[:, i]
        want = np.linalg.solve(of_kernel.T @ of_kernel + RIDGE * np.eye(z.shape[2]), of_kernel.T @ y)
        np.testing.assert_allclose(model.ridges.theta[i], want, rtol=0, atol=1e-10)


@pytest.mark.parametrize("gated", [False, True], ids=["gradual", "gated"])
@pytest.mark.parametrize("loss", list(Loss))
def test_no_expert_of_the_mix_is_far_better_than_it(loss: Loss, gated: bool) -> None:
    """The total loss stays within the certificate of each expert's, also where the common mix is far off."""
    z, y = streams(200, 1)
    y = np.round(y) if loss is Loss.LOGISTIC else y
    model, f, cost = OwnModel.start(z.shape[2], 2, gated=gated), np.array([-3.0, 3.0]), LOSSES[loss]
    total, mixed, experts = 0.0, 0.0, np.zeros(3)
    for row, target in zip(z, y.tolist(), strict=True):
        told = model.tell(row, f, 2.0)
        total += float(cost.value(told.personal, target))
        mixed += float(cost.value(told.mixed, target))
        experts += cost.value(told.experts, target)
        model = model.learn(model.ridges.pull(row), row, f, told, target, cost)
    first = experts[2] if gated else experts[0]
    assert mixed <= first + model.top.regret_bound
    assert mixed <= experts[: 3 if gated else 2].min() + HEAD_START + model.top.regret_bound
    assert model.excess == pytest.approx(total - mixed, abs=1e-9)
    assert total <= experts[: 3 if gated else 2].min() + model.regret_bound + 1e-9
    again = OwnModel.from_arrays(model.to_arrays())
    assert again.tell(z[0], f, 2.0).personal == model.tell(z[0], f, 2.0).personal


@pytest.mark.parametrize("gated", [False, True], ids=["gradual", "gated"])
@pytest.mark.parametrize("know", [True, False], ids=["the others know", "they do not"])
def test_the_others_count_once_rows_have_shown_it(know: bool, gated: bool) -> None:
    """Without evidence the client predicts what it would alone, to the last bit; with it, by the mix."""
    random = np.random.default_rng(5)
    z = own_features(random.normal(size=(80, len(LENGTHSCALES), 4)) / 2.0)
    y = random.uniform(size=80)
    others = y if know else random.uniform(size=80)
    model, cost, apart = OwnModel.start(z.shape[2], 2, gated=gated), LOSSES[Loss.SQUARED], 0.0
    for row, target, f in zip(z, y.tolist(), others.tolist(), strict=True):
        told = model.tell(row, np.array([f, f]), f)
        apart = max(apart, abs(told.personal - told.alone))
        model = model.learn(model.ridges.pull(row), row, np.array([f, f]), told, target, cost)
    assert (model.share > 0.0) is know
    assert (apart > 0.0) is know
    assert sum(model.expert_weights) == pytest.approx(1.0)


def test_a_client_leans_on_others_as_far_as_rows_have_shown() -> None:
    """The share is that of least squares for the pull beyond chance; with sure others, that for all of the pull."""
    random = np.random.default_rng(3)
    alone, mix = random.normal(size=(2, 60))
    y = 0.4 * alone + 0.6 * mix + 0.05 * random.normal(size=60)
    gate, loss = Gate(), LOSSES[Loss.SQUARED]
    pull, bend, faded = np.zeros(60), np.zeros(60), GATE_KEEP ** np.arange(60)[::-1]
    for t, (a, m, target) in enumerate(zip(alone.tolist(), mix.tolist(), y.tolist(), strict=True)):
        gate = gate.update(float(loss.slope(a, target)), float(loss.slope(m, target)), m - a)
        pull[t], bend[t] = 2.0 * (target - a) * (m - a), 2.0 * (m - a) ** 2
    best = float(faded @ pull / (faded @ bend))
    chance = float(np.sqrt(np.square(faded * pull).sum()) / (faded @ bend))
    assert best == pytest.approx(0.6, abs=0.03)
    assert gate.share(DEVIATIONS + 1e-9, False) == pytest.approx(best)
    assert gate.share(DEVIATIONS, False) == pytest.approx(best - DEVIATIONS * chance)
    assert gate.share(DEVIATIONS, True) == 1.0


def test_evidence_of_all_others_lowers_what_a_client_needs() -> None:
    """Two rows that pull alike are no evidence by themselves, but with that of all others."""
    gate = Gate().update(-1.0, -0.8, 0.1).update(-1.0, -0.8, 0.1)
    assert gate.evidence == pytest.approx(math.sqrt(2.0), rel=0.01)
    for gated in (False, True):
        assert gate.share(DEVIATIONS, gated) == 0.0
        assert gate.share(DEVIATIONS + 1e-9, gated) == 1.0
    apart = Gate().update(1.0, 1.2, 0.1)
    assert apart.share(1e9, False) == 0.0
    many = Gate()
    for _ in range(30):
        many = many.update(-1.0, -0.8, 0.1)
    assert many.share(-1e9, False) == 1.0
    assert many.evidence == MOST_EVIDENCE
    saturated = Gate().update(-1.0, -1.0, 5.0).update(-1.0, -1.0, 5.0)  # a slope that does not change
    assert saturated.share(1e9, False) == 1.0


def test_what_a_client_kept_formerly_goes_on_by_the_former_rule() -> None:
    """A state of three mixed experts, and of a gate without a bend, predicts as before."""
    z, y = streams(60, 4)
    model, cost = OwnModel.start(z.shape[2], 2, gated=True), LOSSES[Loss.SQUARED]
    for row, target in zip(z, y.tolist(), strict=True):
        f = np.array([target, target])
        model = model.learn(model.ridges.pull(row), row, f, model.tell(row, f, target), target, cost)
    arrays = model.to_arrays()
    again = OwnModel.from_arrays({**arrays, "gate": arrays["gate"][:4]})
    assert again.gated
    assert again.share == model.share == 1.0
    f = np.array([0.2, 0.4])
    assert again.tell(z[0], f, 0.3).personal == model.tell(z[0], f, 0.3).personal == model.tell(z[0], f, 0.3).mixed
