"""How far a client leans on the others: by the share that rows have shown, held within what that may cost."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kernfed.methods.online.losses import LOSSES, Loss
from kernfed.methods.online.mixing.gate import DEVIATIONS, GATE_KEEP, LEEWAY, MOST_EVIDENCE, Gate, Leeway, most_cost


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
    assert gate.best == gate.share(DEVIATIONS + 1e-9, False) == pytest.approx(best)
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


@pytest.mark.parametrize("loss", list(Loss))
def test_no_target_costs_more_than_was_foreseen(loss: Loss) -> None:
    """For targets in [0, 1] a share of the mix costs at most that share of `most_cost`, and a target attains it."""
    random, cost = np.random.default_rng(2), LOSSES[loss]
    for alone, mixed, share in random.uniform(-1.5, 1.5, size=(50, 3)).tolist():
        most, v = most_cost(alone, mixed, cost), abs(share) / 1.5
        y = np.linspace(0.0, 1.0, 21)
        told = cost.value(alone + v * (mixed - alone), y) - cost.value(alone, y)
        assert told.max() <= v * most + 1e-12
        assert (cost.value(mixed, y) - cost.value(alone, y)).max() == pytest.approx(most)


def test_leeway_is_a_part_of_the_loss_alone_and_what_was_gained() -> None:
    """A share is held so far down that it could cost what is left and no more; a mix that costs nothing is free."""
    assert Leeway().held(1.0, 0.5) == 0.0
    assert Leeway().held(1.0, -0.1) == 1.0
    some = Leeway().update(2.0, 2.0, 0.5)
    assert some.held(1.0, 0.5) == pytest.approx(LEEWAY * 2.0 / 0.5)
    assert some.held(0.01, 0.5) == 0.01
    gained = some.update(1.0, 0.7, 0.5)
    assert gained.held(1.0, 0.5) == pytest.approx((LEEWAY * 3.0 + 0.3) / 0.5)
    assert gained.update(0.0, 5.0, 0.5).held(1.0, 1e-9) == 0.0
