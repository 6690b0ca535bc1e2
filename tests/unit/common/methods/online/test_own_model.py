"""A client's own experts: the recursive ridge against its closed form, and what the mix of experts promises."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from kernfed.methods.online.losses import LOSSES, Loss
from kernfed.methods.online.mixing.gate import LEEWAY, Leeway
from kernfed.methods.online.own_model import HEAD_START, LENGTHSCALES, OwnModel, own_features
from kernfed.methods.online.pooled_ridge import RIDGE


def streams(num_rows: int, seed: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Features of *alone*, (n, N, F), and targets in [0, 1]."""
    random = np.random.default_rng(seed)
    z = own_features(random.normal(size=(num_rows, len(LENGTHSCALES), 4)) / 2.0)
    return z, random.uniform(size=num_rows)


def test_the_recursive_ridge_is_the_ridge() -> None:
    """After any number of rows the parameters are those of the closed form, (Z'Z + λ)^-1 Z'y."""
    z, y = streams(30, 0)
    model, f, cost = OwnModel.start(z.shape[2], 2), np.array([0.4, 0.6]), LOSSES[Loss.SQUARED]
    for row, target in zip(z, y.tolist(), strict=True):
        pull = model.ridges.pull(row)
        model = model.learn(pull, row, f, model.tell(row, f, 0.5, cost), target, cost)
    for i in range(len(LENGTHSCALES)):
        of_kernel = z[:, i]
        want = np.linalg.solve(of_kernel.T @ of_kernel + RIDGE * np.eye(z.shape[2]), of_kernel.T @ y)
        np.testing.assert_allclose(model.ridges.theta[i], want, rtol=0, atol=1e-10)


RULES = {"own": {}, "evidence": {"bounded": False}, "gated": {"gated": True}}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("loss", list(Loss))
def test_no_expert_of_the_mix_is_far_better_than_it(loss: Loss, rule: str) -> None:
    """The total loss stays within the certificate of each expert's, also where the common mix is far off."""
    z, y = streams(200, 1)
    y = np.round(y) if loss is Loss.LOGISTIC else y
    model, f, cost = OwnModel.start(z.shape[2], 2, **RULES[rule]), np.array([-3.0, 3.0]), LOSSES[loss]
    gated = rule == "gated"
    total, mixed, experts = 0.0, 0.0, np.zeros(3)
    for row, target in zip(z, y.tolist(), strict=True):
        told = model.tell(row, f, 2.0, cost)
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
    assert again.tell(z[0], f, 2.0, cost).personal == model.tell(z[0], f, 2.0, cost).personal


@pytest.mark.parametrize("gated", [False, True], ids=["evidence", "gated"])
@pytest.mark.parametrize("know", [True, False], ids=["the others know", "they do not"])
def test_the_others_count_once_rows_have_shown_it(know: bool, gated: bool) -> None:
    """Without evidence the client predicts what it would alone, to the last bit; with it, by the mix."""
    random = np.random.default_rng(5)
    z = own_features(random.normal(size=(80, len(LENGTHSCALES), 4)) / 2.0)
    y = random.uniform(size=80)
    others = y if know else random.uniform(size=80)
    cost, apart = LOSSES[Loss.SQUARED], 0.0
    model = OwnModel.start(z.shape[2], 2, gated=gated, bounded=False)
    for row, target, f in zip(z, y.tolist(), others.tolist(), strict=True):
        told = model.tell(row, np.array([f, f]), f, cost)
        apart = max(apart, abs(told.personal - told.alone))
        model = model.learn(model.ridges.pull(row), row, np.array([f, f]), told, target, cost)
    assert (model.share > 0.0) is know
    assert (apart > 0.0) is know
    assert sum(model.expert_weights) == pytest.approx(1.0)


def test_what_a_client_kept_formerly_goes_on_by_the_former_rule() -> None:
    """A state of three mixed experts, and of a gate without a bend, predicts as before."""
    z, y = streams(60, 4)
    model, cost = OwnModel.start(z.shape[2], 2, gated=True), LOSSES[Loss.SQUARED]
    for row, target in zip(z, y.tolist(), strict=True):
        f = np.array([target, target])
        model = model.learn(model.ridges.pull(row), row, f, model.tell(row, f, target, cost), target, cost)
    arrays = model.to_arrays()
    again = OwnModel.from_arrays({**arrays, "gate": arrays["gate"][:4]})
    assert again.gated
    assert again.share == model.share == 1.0
    f = np.array([0.2, 0.4])
    assert again.tell(z[0], f, 0.3, cost).personal == model.tell(z[0], f, 0.3, cost).personal
    assert again.tell(z[0], f, 0.3, cost).personal == again.tell(z[0], f, 0.3, cost).mixed


@pytest.mark.parametrize("loss", list(Loss))
@pytest.mark.parametrize("held", [True, False], ids=["held", "not held"])
@pytest.mark.parametrize("friend", [True, False], ids=["friend", "false friend"])
def test_a_client_is_never_behind_itself_by_more_than_its_leeway(
    loss: Loss, held: bool, friend: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each row the total loss is within 3 % of that alone, as it is not without leeway; and others still help."""
    if not held:
        monkeypatch.setattr(Leeway, "held", lambda _, share, most: share)
    random = np.random.default_rng(7)
    z = own_features(random.normal(size=(120, len(LENGTHSCALES), 4)) / 2.0)
    law = 0.5 + 0.4 * np.sin(3.0 * z[:, 0, 0])
    y = np.clip(law + 0.05 * random.normal(size=120), 0.0, 1.0)
    others = law if friend else np.where(np.arange(120) < 40, law, -4.0)
    if loss is Loss.LOGISTIC:
        y, others = np.round(y), 8.0 * (others - 0.5)
    model, cost, total, alone, behind = OwnModel.start(z.shape[2], 2), LOSSES[loss], 0.0, 0.0, 0.0
    for row, target, f in zip(z, y.tolist(), others.tolist(), strict=True):
        told = model.tell(row, np.array([f, f]), f, cost)
        total += float(cost.value(told.personal, target))
        alone += float(cost.value(told.alone, target))
        behind = max(behind, total / alone - 1.0)
        model = model.learn(model.ridges.pull(row), row, np.array([f, f]), told, target, cost)
    if held:
        assert behind <= LEEWAY + 1e-12
    elif not friend:
        assert behind > LEEWAY
    if friend:
        assert total < 0.9 * alone
    assert model.evidence == 0.0
    again = OwnModel.from_arrays(model.to_arrays())
    f = np.array([0.3, 0.3])
    assert again.share == model.share
    assert again.tell(z[0], f, 0.3, cost).personal == model.tell(z[0], f, 0.3, cost).personal
