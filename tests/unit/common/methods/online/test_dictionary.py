"""Tests of online multi-kernel learning: dictionary, features, losses, and whole runs against golden numbers."""

from __future__ import annotations

import functools
import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kernfed.arrays import Array
from kernfed.errors import ConfigError
from kernfed.methods.online import dictionary as online
from kernfed.methods.online.dictionary import Dictionary
from kernfed.methods.online.losses import LOSSES, Loss
from kernfed.methods.online.mixing.bins import draw_bin
from kernfed.methods.online.mixing.weights import Hedge, Tracking, softmax
from kernfed.methods.online.server_step import AdaptiveStep, ClientStep, paper_step, pool
from kernfed_testing.places import GOLDEN

Floats = npt.NDArray[np.float64]


def golden(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / name).read_text())
    return found


class Setting:
    """Features, targets and draws of a golden file: T rounds of K clients."""

    def __init__(self, name: str) -> None:
        self.golden = golden(name)
        self.y = np.array(self.golden["y"])
        omega = np.array(self.golden["rho"]).transpose(1, 2, 0)
        self.z = np.array([online.features(np.array(x), omega) for x in self.golden["X"]])
        self.num_rounds, self.num_clients = self.y.shape
        self.num_kernels, self.num_features = self.z.shape[2:]

    def draws(self, name: str) -> Floats:
        return np.array(self.golden[name].get("u01", self.golden["subset"]["u01"] if "subset" in self.golden else 0.5))


def run_paper(s: Setting, name: str) -> tuple[Floats, Floats, Floats]:
    """Algorithm 2 as the parts of the library make it: predictions, parameters, log-weights."""
    want = s.golden[name]
    eta, eta_k, lam, size = want["eta"], want["eta_k"], want.get("lam", 0.0), want["M"]
    xi = want.get("xi", 1.0)
    draws = np.array(want["u01"]) if "u01" in want else np.full(s.y.shape, 0.5)
    theta = np.zeros((s.num_kernels, s.num_features))
    log_weights = np.zeros((s.num_clients, s.num_kernels))
    told = np.zeros(s.y.shape)
    for t in range(s.num_rounds):
        steps = np.zeros_like(theta)
        for k in range(s.num_clients):
            z, y = s.z[t, k], s.y[t, k : k + 1]
            f = online.predictions(z, theta)
            told[t, k] = softmax(log_weights[k]) @ f
            penalty = lam * np.square(theta).sum(axis=1)
            log_weights[k] -= eta_k * (LOSSES[Loss.SQUARED].value(f, y[0]) + penalty)
            drawn = draw_bin(softmax(log_weights[k]), -log_weights[k], size, xi, draws[t, k])
            g = online.kernel_gradients(z[None], f[None], y, theta, drawn.kernels, regularisation=lam)
            steps[drawn.kernels] += g / drawn.probability / s.num_clients
        theta = theta - eta * steps
    return told, theta, log_weights


@pytest.mark.parametrize("name", ["pof_all", "pof_subset"])
def test_the_papers_algorithm_gives_the_golden_numbers(name: str) -> None:
    """Predictions, parameters and log-weights of four rounds are those of an independent program."""
    s = Setting("online.json")
    told, theta, log_weights = run_paper(s, name)
    np.testing.assert_allclose(told, s.golden[name]["pred"], rtol=0, atol=1e-10)
    np.testing.assert_allclose(theta, s.golden[name]["theta"], rtol=0, atol=1e-10)
    np.testing.assert_allclose(log_weights, s.golden[name]["logw"], rtol=0, atol=1e-10)


def run_default(s: Setting, name: str) -> tuple[Floats, AdaptiveStep, list[Tracking]]:
    want = s.golden[name]
    keeps = tuple(want.get("keeps", [1.0]))
    draws = np.array(s.golden["subset"]["u01"])
    size = want.get("M", s.num_kernels)
    bins = math.ceil(s.num_kernels / size)
    server = AdaptiveStep.start(s.num_kernels, s.num_features)
    clients = [Tracking.start(s.num_kernels, keeps) for _ in range(s.num_clients)]
    told = np.zeros(s.y.shape)
    for t in range(s.num_rounds):
        sent = []
        for k in range(s.num_clients):
            z, y = s.z[t, k], s.y[t, k]
            f = online.predictions(z, server.theta)
            mixture = clients[k].mixture()
            told[t, k] = mixture.kernels @ f
            clients[k] = clients[k].update(mixture, f, functools.partial(LOSSES[Loss.SQUARED].slope, y=y))
            drawn = draw_bin(mixture.kernels, clients[k].ranking, size, 1.0, draws[t, k])
            g = online.kernel_gradients(z[None], f[None], s.y[t, k : k + 1], server.theta, drawn.kernels)
            sent.append(ClientStep(drawn.kernels, g / drawn.probability, 1))
        server = server.update(pool(sent, s.num_kernels, s.num_features, 1.0 / bins))
    return told, server, clients


@pytest.mark.parametrize("name", ["all", "subset", "tracking_all", "tracking_subset"])
def test_the_default_gives_the_golden_numbers(name: str) -> None:
    """Predictions, parameters, weights and gaps of six rounds are those of an independent program."""
    s = Setting("online-default.json")
    told, server, clients = run_default(s, name)
    want = s.golden[name]

    def check(found: Array, key: str) -> None:
        np.testing.assert_allclose(found, want[key], rtol=0, atol=1e-10, err_msg=key)

    check(told, "pred")
    check(server.theta, "theta")
    check(np.array([c.mixture().kernels for c in clients]), "weights")
    if "L" in want:
        check(np.array([c.ranking for c in clients]), "L")
        check(np.array([c.members.gap[0] for c in clients]), "S")
        check(server.squares, "G")
        check(server.distance, "dist")
    else:
        check(np.array([c.members.gap for c in clients]).T, "S_members")
        check(np.array([c.top.gap for c in clients]), "S_top")


@pytest.mark.parametrize(
    ("name", "shared", "sums"), [("avg", False, False), ("vm_mean", True, False), ("vm_sum", True, True)]
)
def test_the_baselines_give_the_golden_numbers(name: str, shared: bool, sums: bool) -> None:
    """Averaged kernels, and one mix of kernels for all clients, predict as an independent program does."""
    s = Setting("online.json")
    want = s.golden[name]
    theta, hedge = np.zeros((s.num_kernels, s.num_features)), Hedge.start(s.num_kernels)
    told = np.zeros(s.y.shape)
    for t in range(s.num_rounds):
        f = online.predictions(s.z[t], theta)
        told[t] = f @ hedge.weights()
        every = np.arange(s.num_kernels)
        sent = [
            ClientStep(
                every, online.kernel_gradients(s.z[t, k : k + 1], f[k : k + 1], s.y[t, k : k + 1], theta, every), 1
            )
            for k in range(s.num_clients)
        ]
        theta, _ = paper_step(theta, pool(sent, s.num_kernels, s.num_features, 1.0), want["eta"])
        if shared:
            losses = LOSSES[Loss.SQUARED].value(f, s.y[t][:, None])
            hedge = hedge.update(losses.sum(axis=0) if sums else losses.mean(axis=0), want["eta_g"])
    np.testing.assert_allclose(told, want["pred"], rtol=0, atol=1e-10)


def test_lengthscales_and_features_are_those_of_the_paper() -> None:
    """51 lengthscales from 0.01 to 100; features of the first row by all kernels, of norm 1."""
    want = golden("online.json")
    np.testing.assert_allclose(online.default_lengthscales(), want["sigmas51"], rtol=1e-12)
    s = Setting("online.json")
    np.testing.assert_allclose(s.z[0, 0], want["z00"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.square(s.z).sum(axis=-1), 1.0, atol=1e-12)


def test_features_approximate_the_kernel() -> None:
    """Inner products are near exp(-|x - x'|²/(2 s²)) for each kernel; Hoeffding over all pairs, delta = 1e-6."""
    scales = (0.3, 1.0, 4.0)
    dictionary = Dictionary(scales, 4000, 2, seed=5)
    x = np.array([[0.0, 0.0], [0.3, 0.1], [0.5, -0.6], [-0.7, 0.7]])
    z = online.features(x, online.draw(dictionary))
    distances = np.square(x[:, None] - x[None]).sum(axis=-1)
    bound = math.sqrt(2.0 * math.log(2 * len(scales) * 6 / 1e-6) / dictionary.num_frequencies)
    for i, scale in enumerate(scales):
        exact = np.exp(-distances / (2 * scale**2))
        assert np.abs(z[:, i] @ z[:, i].T - exact).max() < bound


def test_draws_are_a_matter_of_the_seed() -> None:
    """The same dictionary has the same fingerprint; another seed, scale or dimension another one."""
    first = Dictionary((1.0, 2.0), 3, 2, seed=1)
    others = [Dictionary((1.0, 2.0), 3, 2, 2), Dictionary((1.0, 2.5), 3, 2, 1), Dictionary((1.0, 2.0), 4, 2, 1)]
    assert online.fingerprint(first) == online.fingerprint(Dictionary((1.0, 2.0), 3, 2, seed=1))
    assert len({online.fingerprint(d) for d in (first, *others)}) == 4
    with pytest.raises(ConfigError, match="want 1 to 256"):
        online.draw(Dictionary((), 3, 2, 1))
    with pytest.raises(ConfigError, match="want 1 to 256"):
        online.default_lengthscales(300)


@pytest.mark.parametrize("loss", list(Loss))
def test_gradients_are_derivatives(loss: Loss) -> None:
    """The gradient by the parameters agrees with differences."""
    random = np.random.default_rng(0)
    y, h = random.integers(0, 2, 50).astype(float), 1e-6
    z, theta = random.normal(size=(3, 4, 6)), random.normal(size=(4, 6))

    def mean_loss(theta: Floats) -> float:
        value = LOSSES[loss].value(online.predictions(z, theta)[:, [2]], y[:3, None]).mean()
        return float(value + 0.1 * np.square(theta[2]).sum())

    f3 = online.predictions(z, theta)
    g = online.kernel_gradients(z, f3, y[:3], theta, np.array([2]), loss=loss, regularisation=0.1)
    for j in range(6):
        moved = np.zeros_like(theta)
        moved[2, j] = h
        assert g[0, j] == pytest.approx((mean_loss(theta + moved) - mean_loss(theta - moved)) / (2 * h), abs=1e-7)
