"""Tests of online multi-kernel learning: dictionary, features, losses, and whole runs against golden numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kernfed import online
from kernfed.errors import ConfigError
from kernfed.messages.base import Array
from kernfed.online import Dictionary, Loss
from kernfed.online_bins import draw_bin
from kernfed.online_server import AdaptiveStep, ClientStep, paper_step, pool
from kernfed.online_weights import Hedge, Tracking, softmax

Floats = npt.NDArray[np.float64]
GOLDEN = Path(__file__).parents[2] / "golden"


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
            log_weights[k] -= eta_k * (online.loss_value(Loss.SQUARED, f, y[0]) + penalty)
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
            clients[k] = clients[k].update(mixture, f, lambda p, y=y: online.loss_slope(Loss.SQUARED, p, y))
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
        check(np.array([c.top.gap[0] for c in clients]), "S_top")
