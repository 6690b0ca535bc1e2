"""Tests of `kernfed.tensors.ridge`: local solves, steps and gradient descent."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernfed.errors import DataError, NumericalError
from kernfed.features.spec import FeatureForm
from kernfed.tensors.feature_maps import random_features
from kernfed.tensors.in_place import factor_in_place
from kernfed.tensors.ridge import LocalRidge, one_hot
from kernfed_testing.methods.ridge_clients import Matrix, RidgeClients, load_golden
from kernfed_testing.properties import examples

SHAPES = [(40, 12), (12, 40), (20, 40), (21, 40), (1, 5), (0, 5)]


def problem(n: int, m: int, ridge: float = 0.05, seed: int = 0) -> tuple[LocalRidge, torch.Tensor, torch.Tensor]:
    """A client, its Hessian and its moment from their definitions."""
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(n, m, generator=g, dtype=torch.float64)
    y = torch.randn(n, 2, generator=g, dtype=torch.float64)
    rows = max(1, n)
    return LocalRidge(z, y, ridge), z.T @ z / rows + ridge * torch.eye(m, dtype=torch.float64), z.T @ y / rows


def direction(m: int) -> torch.Tensor:
    return torch.randn(m, 2, generator=torch.Generator().manual_seed(9), dtype=torch.float64)


def golden_clients() -> tuple[dict[str, Any], RidgeClients]:
    golden = load_golden("newton")
    omega, phase = (torch.tensor(golden[key], dtype=torch.float64) for key in ("Omega", "b"))
    parts = [
        (random_features(torch.tensor(x, dtype=torch.float64), omega.T, phase, FeatureForm.HALF_COSINE), y)
        for x, y in zip(golden["X"], golden["Y"], strict=True)
    ]
    return golden, RidgeClients.of(parts, golden["lam"])


@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_methods_follow_their_definitions(n: int, m: int) -> None:
    """Primal, dual and empty clients all compute with H = Z'Z/n + ridge I and c = Z'Y/n."""
    client, h, c = problem(n, m)
    v = direction(m)
    close: dict[str, Any] = {"rtol": 0, "atol": 1e-11}
    torch.testing.assert_close(client.moment(), c, **close)
    torch.testing.assert_close(client.solve(), torch.linalg.solve(h, c), **close)
    torch.testing.assert_close(client.gradient(v), h @ v - c, **close)
    torch.testing.assert_close(client.newton_step(v), torch.linalg.solve(h, v), **close)
    torch.testing.assert_close(client.hessian_product(v), h @ v, **close)
    prox = h + 0.3 * torch.eye(m, dtype=torch.float64)
    torch.testing.assert_close(client.proximal_solve(v, 0.3), torch.linalg.solve(prox, c + 0.3 * v), **close)
    assert client.largest_eigenvalue() == pytest.approx(float(torch.linalg.eigvalsh(h)[-1]), rel=1e-12)


def test_a_client_without_rows_answers_numbers() -> None:
    """Zero rows: H = ridge I, c = 0, nothing is NaN."""
    client = LocalRidge(torch.empty(0, 4, dtype=torch.float64), torch.empty(0, 2, dtype=torch.float64), 0.5)
    v = direction(4)
    assert client.largest_eigenvalue() == 0.5
    assert torch.equal(client.moment(), torch.zeros(4, 2, dtype=torch.float64))
    assert torch.equal(client.solve(), torch.zeros(4, 2, dtype=torch.float64))
    torch.testing.assert_close(client.newton_step(v), 2 * v)
    torch.testing.assert_close(client.gradient_descent(v, learning_rate=1.0, num_steps=1, batch_size=3), 0.5 * v)


def test_woodbury_keeps_its_digits_at_a_small_ridge() -> None:
    """With ridge 1e-6 and a right side in the rows' span, where Woodbury cancels, the backward error is rounding."""
    client, h, _ = problem(20, 60, ridge=1e-6)
    b = h @ direction(60)
    x = client.newton_step(b)
    assert float((h @ x - b).norm() / (h.norm() * x.norm())) < 1e-14


def test_factors_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop of solves with one ridge factors once."""
    made: list[str] = []

    def counted(matrix: torch.Tensor, *, name: str) -> torch.Tensor:
        made.append(name)
        return factor_in_place(matrix, name=name)

    monkeypatch.setattr("kernfed.tensors.shifted_gram.factor_in_place", counted)
    client, _, _ = problem(40, 12)
    for _ in range(3):
        client.newton_step(direction(12))
    client.solve()
    assert len(made) == 1


def test_golden_local_solutions_average_to_krr_and_newton() -> None:
    """Pooled ridge, FedNewton's iterates (the first is DKRR) and eigenvalues of P H, of an independent program."""
    golden, clients = golden_clients()
    state = clients.start_paper()
    for iterate in golden["fednewton"]:
        np.testing.assert_allclose(state.weights, iterate, rtol=0, atol=1e-9)
        clients.step_paper(state)
    eye = np.eye(4)
    h, p = clients.hessian_product(eye), clients.newton_step(eye)
    np.testing.assert_allclose(np.sort(np.linalg.eigvals(p @ h).real), golden["eigenvalues"], rtol=0, atol=1e-9)
    c = clients.mean(LocalRidge.moment)
    np.testing.assert_allclose(np.linalg.solve(h, c), golden["krr"], rtol=0, atol=1e-9)


def descended(w: Matrix, client: LocalRidge) -> torch.Tensor:
    return client.gradient_descent(torch.from_numpy(w), learning_rate=0.1, num_steps=2)


def solved(w: Matrix, client: LocalRidge) -> torch.Tensor:
    return client.proximal_solve(torch.from_numpy(w), 0.1)


def test_golden_fedavg() -> None:
    """Two rounds of two gradient steps at rate 0.1, from the average of local solutions."""
    golden, clients = golden_clients()
    start, *rounds = golden["fedavg_lr01_s2"]
    w = clients.mean(LocalRidge.solve)
    np.testing.assert_allclose(w, start, rtol=0, atol=1e-9)
    for want in rounds:
        w = clients.mean(functools.partial(descended, w))
        np.testing.assert_allclose(w, want, rtol=0, atol=1e-9)


def test_golden_fedprox() -> None:
    """Two rounds of exact proximal solves with mu = 0.1, from the average of local solutions."""
    golden, clients = golden_clients()
    start, *rounds = golden["fedprox_exact_mu01"]
    w = clients.mean(LocalRidge.solve)
    np.testing.assert_allclose(w, start, rtol=0, atol=1e-9)
    for want in rounds:
        w = clients.mean(functools.partial(solved, w))
        np.testing.assert_allclose(w, want, rtol=0, atol=1e-9)


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 100))
def test_gradient_vanishes_at_the_solution(n: int, m: int, seed: int) -> None:
    """Any shape: the local solution has gradient 0."""
    client, h, _ = problem(n, m, seed=seed)
    assert float(client.gradient(client.solve()).abs().max()) < 1e-11 * float(h.norm())


def test_gradient_descent_converges_below_its_stated_rate() -> None:
    """At learning rate 1/L full-batch descent reaches the solution at the rate of its condition number."""
    client, h, _ = problem(40, 6)
    rate = 1 / client.largest_eigenvalue()
    start = torch.zeros(6, 2, dtype=torch.float64)
    w = client.gradient_descent(start, learning_rate=rate, num_steps=200)
    contraction = 1 - float(torch.linalg.eigvalsh(h)[0]) * rate
    assert float((w - client.solve()).norm()) <= contraction**200 * float(client.solve().norm()) + 1e-13
    assert not start.any()


def test_batches_visit_every_row_once_an_epoch() -> None:
    """With one feature per row (Z = I) an epoch of batches moves every weight exactly as often as every other."""
    eye = torch.eye(10, dtype=torch.float64)
    client = LocalRidge(eye, torch.ones(10, 1, dtype=torch.float64), 1e-300)
    w = client.gradient_descent(torch.zeros(10, 1, dtype=torch.float64), learning_rate=1.0, num_steps=5, batch_size=2)
    torch.testing.assert_close(w, torch.full((10, 1), 0.5, dtype=torch.float64), rtol=0, atol=1e-15)


def test_batches_follow_the_seed() -> None:
    """The same seed gives the same bits, another seed other batches; a batch of all rows is the full gradient."""
    client, _, _ = problem(30, 5)
    start = torch.zeros(5, 2, dtype=torch.float64)

    def run(seed: int, batch_size: int = 4) -> torch.Tensor:
        return client.gradient_descent(start, learning_rate=0.05, num_steps=9, batch_size=batch_size, seed=seed)

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))
    assert torch.equal(run(1, batch_size=30), run(2, batch_size=0))


def test_a_runaway_learning_rate_is_named() -> None:
    """Infinite weights are an error that tells the limit, not a reply."""
    client, _, _ = problem(40, 6)
    with pytest.raises(NumericalError, match="learning rate 1e\\+50"):
        client.gradient_descent(direction(6), learning_rate=1e50, num_steps=10)


@pytest.mark.parametrize("ridge", [0.0, -1.0, float("nan")])
def test_a_ridge_must_be_positive(ridge: float) -> None:
    """A ridge that leaves H singular is refused."""
    with pytest.raises(NumericalError, match="ridge"):
        problem(4, 3, ridge=ridge)


def test_rows_must_pair_up() -> None:
    """Features and targets of different lengths are refused."""
    with pytest.raises(DataError, match="row by row"):
        LocalRidge(torch.zeros(3, 2), torch.zeros(4, 1), 1.0)


def test_float32_stays_float32() -> None:
    """The caller's type is kept, in both forms."""
    for n in (3, 30):
        client = LocalRidge(torch.ones(n, 8), torch.ones(n, 1), 1.0)
        for result in (client.solve(), client.moment(), client.gradient(torch.ones(8, 1))):
            assert result.dtype is torch.float32


def test_one_hot() -> None:
    """A single one per row, at the class; classes that do not exist are refused."""
    assert one_hot(torch.tensor([2, 0]), 3).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert one_hot(torch.empty(0, dtype=torch.int64), 3).shape == (0, 3)
    for bad in (-1, 3):
        with pytest.raises(DataError, match="0 to 2"):
            one_hot(torch.tensor([0, bad]), 3)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_cuda_agrees_with_cpu(n: int, m: int) -> None:
    """Solves and products on CUDA are those of the CPU to 1e-10."""
    client, _, _ = problem(n, m)
    there = LocalRidge(client._rows.whole().cuda(), client._y.cuda(), client.ridge)
    v = direction(m)
    for name in ("newton_step", "hessian_product", "gradient"):
        want = getattr(client, name)(v)
        torch.testing.assert_close(getattr(there, name)(v.cuda()).cpu(), want, rtol=0, atol=1e-10)
