"""Bins of kernels: Algorithm 1 against golden numbers, probabilities, and that the step is unbiased."""

from __future__ import annotations

import json

import numpy as np
import pytest

from kernfed.methods.online.mixing.bins import bin_probabilities, bins, draw_bin, num_bins
from kernfed.methods.online.mixing.weights import softmax
from kernfed.methods.online.server_step import AdaptiveStep, ClientStep, Pooled, paper_step, pool
from kernfed_testing import places

GOLDEN = json.loads((places.GOLDEN / "online.json").read_text())["algorithm1"]


def test_algorithm_1_gives_the_golden_numbers() -> None:
    """Order, bin weights and the bins that given uniforms choose are those of an independent program."""
    log_weights, size, xi = np.array(GOLDEN["logw"]), GOLDEN["M"], GOLDEN["xi"]
    weights = softmax(log_weights)
    parts = bins(-log_weights, size)
    assert [int(i) for part in parts for i in part] == GOLDEN["order"]
    np.testing.assert_allclose([weights[part].sum() for part in parts], GOLDEN["u"], atol=1e-12)
    for uniform, (kernels, probability) in GOLDEN["selected"].items():
        drawn = draw_bin(weights, -log_weights, size, xi, float(uniform))
        assert sorted(drawn.kernels.tolist()) == sorted(kernels)
        assert drawn.probability == pytest.approx(probability, abs=1e-12)


@pytest.mark.parametrize(
    ("n", "m", "sizes"), [(51, 25, [25, 25, 1]), (51, 51, [51]), (51, 1, [1] * 51), (5, 2, [2, 2, 1])]
)
def test_bins_hold_at_most_m_kernels(n: int, m: int, sizes: list[int]) -> None:
    """Every kernel is in one bin; only the last is smaller."""
    parts = bins(np.random.default_rng(0).normal(size=n), m)
    assert [len(part) for part in parts] == sizes
    assert num_bins(n, m) == len(sizes)
    assert sorted(np.concatenate(parts).tolist()) == list(range(n))


@pytest.mark.parametrize("xi", [0.01, 0.3, 1.0])
def test_probabilities_are_at_least_their_floor(xi: float) -> None:
    """Each bin's probability is at least xi/m, however small its weight, and they sum to 1."""
    weights = np.array([1.0, 1e-300, 1e-9, 0.0, 0.0])
    weights /= weights.sum()
    q = bin_probabilities(weights, bins(-weights, 2), xi)
    assert q.sum() == pytest.approx(1.0)
    assert (q >= xi / 3 - 1e-15).all()
    for uniform in (1e-9, 0.5, 1 - 1e-9):
        assert draw_bin(weights, -weights, 2, xi, uniform).probability >= xi / 3 - 1e-15


@pytest.mark.parametrize("xi", [0.2, 1.0])
def test_the_importance_weighted_step_is_unbiased(xi: float) -> None:
    """Over all draws of two clients, enumerated, the mean of the coordinator's step is that of all kernels."""
    random = np.random.default_rng(3)
    n, size = 5, 2
    gradients = random.normal(size=(2, n, 4))
    weights = random.dirichlet(np.ones(n), 2)
    parts = [bins(-w, size) for w in weights]
    q = [bin_probabilities(w, p, xi) for w, p in zip(weights, parts, strict=True)]
    mean = np.zeros((n, 4))
    for i, a in enumerate(parts[0]):
        for j, b in enumerate(parts[1]):
            sent = [
                ClientStep(a, gradients[0, a] / q[0][i], 1),
                ClientStep(b, gradients[1, b] / q[1][j], 1),
            ]
            mean += q[0][i] * q[1][j] * pool(sent, n, 4, xi / 3).gradient
    np.testing.assert_allclose(mean, gradients.mean(axis=0), atol=1e-12)


def test_rows_weigh_alike_whoever_sends_them() -> None:
    """Three rows of one client and one of another count as four clients with a row each."""
    g = np.arange(8.0).reshape(4, 1, 2)
    kernels = np.array([0])
    apart = pool([ClientStep(kernels, g[i], 1) for i in range(4)], 2, 2, 0.5)
    together = pool([ClientStep(kernels, g[:3].mean(axis=0), 3), ClientStep(kernels, g[3], 1)], 2, 2, 0.5)
    np.testing.assert_allclose(together.gradient, apart.gradient)
    np.testing.assert_allclose(together.pull, apart.pull)
    assert apart.pull.tolist() == [2.0, 0.0]


def test_the_papers_step_is_bounded_where_it_would_not_be_stable() -> None:
    """With a limit the step of a kernel that many importance weights pull at is at most limit/s."""
    pooled = Pooled(np.ones((3, 2)), np.array([0.5, 4.0, 0.0]))
    free, none = paper_step(np.zeros((3, 2)), pooled, 1.0)
    bounded, count = paper_step(np.zeros((3, 2)), pooled, 1.0, limit=1.0)
    np.testing.assert_allclose(free, -1.0)
    np.testing.assert_allclose(bounded, [[-1.0, -1.0], [-0.25, -0.25], [-1.0, -1.0]])
    assert (none, count) == (0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("num_clients", [1, 40])
def test_the_adaptive_step_stays_bounded(num_clients: int) -> None:
    """With noise, few clients and one kernel in 20 sent at a time, parameters stay of the size of the targets."""
    random = np.random.default_rng(0)
    n, state, kernels = 20, AdaptiveStep.start(20, 4), None
    for _ in range(1500):
        sent = []
        for _ in range(num_clients):
            kernels = random.integers(n, size=1)
            z = random.normal(size=4)
            z /= np.linalg.norm(z)
            y = 0.5 + 0.3 * z[0] + 0.2 * random.normal()
            error = float(state.theta[kernels[0]] @ z - y)
            sent.append(ClientStep(kernels, 2 * error * z[None] * n, 1))
        state = state.update(pool(sent, n, 4, 1.0 / n))
    assert np.abs(state.theta).max() < 4.0
