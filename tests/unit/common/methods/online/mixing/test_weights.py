"""Weights over kernels: on the simplex, without under- or overflow, and within their regret bounds."""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernfed.methods.online.learner import Batch, Learner, LearnerRules, Mixing
from kernfed.methods.online.losses import LOSSES, Loss
from kernfed.methods.online.mixing.weights import KEEPS, FewHedge, Hedge, Tracking
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
def test_many_rows_neither_underflow_nor_overflow() -> None:
    """Weights of the paper's rule stay exact where products of factors would stick at a subnormal number.

    Twenty thousand rows at ten times the default's rate: their losses add up to those of two hundred thousand.
    """
    hedge, losses = Hedge.start(3), np.array([0.05, 0.06, 0.5])
    state = Tracking.start(3)
    f = np.array([0.4, 0.45, 0.1])
    for _ in range(20_000):
        hedge = hedge.update(losses, 0.5)
    np.testing.assert_allclose(hedge.log_weights, [0.0, -0.5 * 0.01 * 2e4, -0.5 * 0.45 * 2e4], rtol=1e-9)
    np.testing.assert_allclose(hedge.weights(), [1.0, 0.0, 0.0], atol=1e-12)
    for t in range(9_000):
        mixture = state.mixture()
        state = state.update(mixture, f, slope(0.42 if t % 2 else 0.41))
        if t % 2999 == 0:
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


def test_rounding_decides_nothing() -> None:
    """Inputs that differ in the last bit give the same predictions: members that agree up to rounding are equal."""

    def predicted(factor: float, seed: int) -> npt.NDArray[np.float64]:
        random = np.random.default_rng(seed)
        x, y = factor * random.normal(size=(40, 2)), random.uniform(size=40)
        projection = np.einsum("td,ned->tne", x, random.normal(size=(11, 8, 2)) / np.logspace(-1, 1, 11)[:, None, None])
        z = np.concatenate([np.sin(projection), np.cos(projection)], axis=-1) / math.sqrt(8)
        theta, state, told = np.zeros((11, 16)), Tracking.start(11), []
        for row, target in zip(z, y.tolist(), strict=True):
            f = (row * theta).sum(axis=1)
            mixture = state.mixture()
            told.append(float(mixture.kernels @ f))
            state = state.update(mixture, f, slope(target))
            theta = theta - 0.2 * (f - target)[:, None] * row
        return np.array(told)

    apart = [np.abs(predicted(1.0, seed) - predicted(1.0 + 2.3e-16, seed)).max() for seed in range(20)]
    assert max(apart) < 1e-11


def test_theorem_1_says_nothing_once_a_loss_left_its_range() -> None:
    """The bound is for losses in [0, 1]; a target far outside takes it away, and it does not come back."""
    rules = LearnerRules(Mixing.HEDGE, Loss.SQUARED, 0.1, 2, 1.0, 0.0)
    theta, z = np.full((2, 2), 0.1), np.full((1, 2, 2), 0.5)
    learner = Learner.start(rules, 2)
    for y, bound in ((0.5, True), (3.0, False), (0.5, False)):
        learner = learner.learn(rules, Batch(z, np.array([y]), np.array([math.nan])), theta).learner
        assert (learner.regret_bound(rules) is not None) is bound
        learner = Learner.from_arrays(learner.to_arrays())
