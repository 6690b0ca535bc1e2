"""Weights over kernels: on the simplex, without under- or overflow, and within their regret bounds."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernfed.methods.online.learner import Learner, LearnerRules, Mixing
from kernfed.methods.online.losses import LOSSES, Loss
from kernfed.methods.online.weights import KEEPS, FewHedge, Hedge, Tracking
from kernfed_testing.properties import examples

Floats = npt.NDArray[np.float64]


def slope(y: float) -> functools.partial[Floats]:
    return functools.partial(LOSSES[Loss.SQUARED].slope, y=y)


def track(f: Floats, y: Floats, keeps: tuple[float, ...] = KEEPS) -> tuple[Tracking, Floats]:
    """Predictions of a tracker on experts' predictions, (T, N)."""
    state, told = Tracking.start(f.shape[1], keeps), np.zeros(len(f))
    for t, row in enumerate(f):
        mixture = state.mixture()
        told[t] = mixture.kernels @ row
        state = state.update(mixture, row, slope(float(y[t])))
    return state, told


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 10**6), num=st.integers(1, 12), scale=st.sampled_from([1e-150, 1e-6, 1.0, 1e6, 1e100]))
def test_weights_are_on_the_simplex(seed: int, num: int, scale: float) -> None:
    """Whatever the size of predictions, weights are finite, not negative and sum to 1."""
    random = np.random.default_rng(seed)
    f, y = scale * random.normal(size=(30, num)), scale * random.normal(size=30)
    state, _ = track(f, y)
    w = state.mixture().kernels
    assert np.isfinite(w).all()
    assert (w >= 0).all()
    assert w.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("drift", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_regret_against_every_fixed_mix_is_below_the_certificate(seed: int, drift: bool) -> None:
    """Total squared loss is at most the certificate above that of any convex mix of the experts, drift or not."""
    random = np.random.default_rng(seed)
    y = random.uniform(size=300)
    f = y[:, None] + random.normal(size=(300, 5)) * np.linspace(0.05, 1.0, 5)
    if drift:
        f[150:] = f[150:, ::-1]
    state, told = track(f, y)
    loss = np.square(told - y).sum()
    mixes = [*np.eye(5), *random.dirichlet(np.full(5, 0.3), 200)]
    assert max(loss - np.square(f @ u - y).sum() for u in mixes) <= state.regret_bound


@pytest.mark.parametrize("tie", [0.0, 1e-17, 0.3])
def test_a_leader_without_a_gap_is_left_when_it_loses(tie: float) -> None:
    """Losses that differ while the gap is 0 do not make the learner follow one expert for ever without a bound."""
    state = FewHedge(0.0, (0.0, tie, 1.0))
    regret, totals = 0.0, np.array(state.losses)
    for t in range(400):
        rate, raw = state.opinion()
        w = np.array(raw) / sum(raw)
        losses = np.array([1.0, 0.0, 0.5]) if t % 2 == 0 else np.array([0.0, 1.0, 0.5])
        regret += float(w @ losses)
        totals += losses
        state = state.update(rate, raw, (losses - w @ losses).tolist())
    assert regret - totals.min() <= 2.0 * state.gap + 1e-9
    assert state.gap < 30.0


def test_drift_is_followed() -> None:
    """Where the best expert changes every 200 rows, learners that forget err less than one that does not."""
    random = np.random.default_rng(1)
    y = random.uniform(size=2000)
    noise = np.array([0.02, 0.5, 0.5, 0.5, 0.5, 0.5])
    f = y[:, None] + random.normal(size=(2000, 6)) * np.stack([np.roll(noise, t // 200) for t in range(2000)])
    _, following = track(f, y)
    _, stubborn = track(f, y, keeps=(1.0,))
    assert np.square(following - y).sum() < 0.7 * np.square(stubborn - y).sum()


@pytest.mark.slow
@pytest.mark.timeout(600)  # a million updates, on a machine that may have other work
def test_a_million_rows_neither_underflow_nor_overflow() -> None:
    """Weights of the paper's rule stay exact where products of factors would stick at a subnormal number."""
    hedge, losses = Hedge.start(3), np.array([0.05, 0.06, 0.5])
    state = Tracking.start(3)
    f = np.array([0.4, 0.45, 0.1])
    for _ in range(1_000_000):
        hedge = hedge.update(losses, 0.05)
    np.testing.assert_allclose(hedge.log_weights, [0.0, -0.05 * 0.01 * 1e6, -0.05 * 0.45 * 1e6], rtol=1e-9)
    np.testing.assert_allclose(hedge.weights(), [1.0, 0.0, 0.0], atol=1e-12)
    for t in range(100_000):
        mixture = state.mixture()
        state = state.update(mixture, f, slope(0.42 if t % 2 else 0.41))
        if t % 9973 == 0:
            assert np.isfinite(mixture.kernels).all()
            assert mixture.kernels.sum() == pytest.approx(1.0)
    assert np.isfinite(state.members.losses).all()


def test_a_learner_is_what_its_arrays_say() -> None:
    """Arrays of each kind of learner give it back."""
    for mixing in Mixing:
        rules = LearnerRules(mixing, Loss.SQUARED, 0.1, 2, 1.0, 0.0)
        learner = Learner.start(rules, 4)
        again = Learner.from_arrays(learner.to_arrays())
        np.testing.assert_array_equal(again.weights(), learner.weights())
        assert again.tally == learner.tally
