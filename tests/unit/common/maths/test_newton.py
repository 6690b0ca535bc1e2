"""Tests of `kernfed.maths.newton`: the paper's step, the default, and their certificate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernfed.errors import DivergedError, InvalidReplyError, NumericalError
from kernfed.maths.newton import BlockConjugateGradients, PaperNewton, not_a_gradient, not_of_its_start
from kernfed.tensors.ridge import LocalRidge
from kernfed_testing.methods.ridge_clients import Matrix, RidgeClients, load_golden
from kernfed_testing.properties import examples


def pooled_solution(clients: RidgeClients) -> tuple[Matrix, Matrix]:
    """W* and H from the pooled system."""
    c = clients.mean(LocalRidge.moment)
    h = clients.hessian_product(np.eye(c.shape[0]))
    return np.linalg.solve(h, c).astype(np.float64, copy=False), h


def distance(w: Matrix, solution: Matrix, h: Matrix) -> float:
    return float(np.sqrt(np.einsum("mc,mk,kc->", w - solution, h, w - solution)))


def run_paper(clients: RidgeClients, state: PaperNewton, num_rounds: int) -> None:
    for _ in range(num_rounds):
        clients.step_paper(state)


def few_rows(seed: int = 0, num_clients: int = 8, n: int = 15, m: int = 60) -> RidgeClients:
    """Clients with fewer rows than features."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(m, 3))
    parts = []
    for _ in range(num_clients):
        z = rng.normal(size=(n, m)) / np.sqrt(m)
        parts.append((z, z @ w + rng.normal(size=(n, 3))))
    return RidgeClients.of(parts, 1e-3)


def label_skew(seed: int = 0, m: int = 30) -> RidgeClients:
    """Each client holds one of four classes, one of them in a row or two of the others."""
    rng = np.random.default_rng(seed)
    centres = 3 * rng.normal(size=(4, 6))
    omega, phase = rng.normal(size=(6, m)) / 3, rng.uniform(0, 2 * np.pi, m)
    parts = []
    for k in range(4):
        labels = np.array([k] * 60 + [(k + 1) % 4] * 2)
        x = centres[labels] + rng.normal(size=(62, 6))
        parts.append((np.cos(x @ omega + phase) * np.sqrt(2 / m), np.eye(4)[labels]))
    return RidgeClients.of(parts, 1e-6)


def many_rows(seed: int = 0) -> RidgeClients:
    """An even split with many rows per feature."""
    rng = np.random.default_rng(seed)
    parts = [(rng.normal(size=(400, 10)), rng.normal(size=(400, 2))) for _ in range(4)]
    return RidgeClients.of(parts, 1e-3)


def test_golden_iterates_and_certificates() -> None:
    """Iterates after trips 1, 2, 4, 6 and 8 and the certificates between, of an independent program."""
    golden = load_golden("newton-default")
    clients = RidgeClients.of(list(zip(golden["X"], golden["Y"], strict=True)), golden["lam"])
    close: dict[str, Any] = {"rtol": 0, "atol": 1e-9}
    np.testing.assert_allclose(clients.mean(LocalRidge.solve), golden["iterates"][0], **close)
    state = clients.start_auto()
    for k, bound in enumerate(golden["certificate"]):
        np.testing.assert_allclose(state.weights, golden["iterates"][1 + k], **close)
        z = clients.newton_step(state.residual)
        assert state.bound(z) == pytest.approx(bound, abs=1e-9)
        if k + 2 < len(golden["iterates"]):
            state.absorb(z, clients.hessian_product(z))
    np.testing.assert_allclose(state.weights, golden["krr"], **close)
    np.testing.assert_allclose(pooled_solution(clients)[0], golden["krr"], **close)


@pytest.mark.parametrize("make", [few_rows, label_skew])
def test_the_default_reaches_pooled_ridge_where_the_papers_step_is_stopped(make: object) -> None:
    """Too few rows per client, and label skew: 1e-8 of the pooled solution, against a diagnosis within 30 rounds."""
    clients: RidgeClients = make()  # type: ignore[operator]  # one of the makers above
    solution, h = pooled_solution(clients)
    state = clients.start_auto()
    for _ in range(30):
        if clients.step_auto(state) < 1e-10:
            break
    assert np.linalg.norm(state.weights - solution) < 1e-8 * np.linalg.norm(solution)

    paper = clients.start_paper()
    with pytest.raises(DivergedError, match=r"largest eigenvalue of P H is at least \d") as caught:
        run_paper(clients, paper, num_rounds=30)
    stated = float(str(caught.value).split("at least ")[1].split(",")[0])
    eye = np.eye(h.shape[0])
    largest = np.linalg.eigvals(clients.newton_step(eye) @ h).real.max()
    assert 2 < stated <= largest * 1.001
    assert np.isfinite(paper.weights).all()


def test_the_papers_step_converges_linearly_on_even_splits() -> None:
    """With enough rows the certificate falls in every round, to 1e-8 within 30, and stops nowhere."""
    clients = many_rows()
    solution, _ = pooled_solution(clients)
    state = clients.start_paper()
    bounds = []
    for _ in range(30):
        clients.step_paper(state)
        bounds.append(state.relative_bound)
    assert np.linalg.norm(state.weights - solution) < 1e-8 * np.linalg.norm(solution)
    falling = [b for b in bounds if b > 1e-8]
    assert falling == sorted(falling, reverse=True)


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 1000), st.integers(2, 5), st.integers(1, 30), st.integers(2, 12))
def test_certificate_bounds_the_distance_and_the_loss_never_rises(seed: int, clients: int, n: int, m: int) -> None:
    """For any clients: |W - W*|_H is at most the certificate and falls in every iteration."""
    rng = np.random.default_rng(seed)
    parts = [(rng.normal(size=(n + k, m)), rng.normal(size=(n + k, 2))) for k in range(clients)]
    federation = RidgeClients.of(parts, 0.01)
    solution, h = pooled_solution(federation)
    state = federation.start_auto()
    before = distance(federation.mean(LocalRidge.solve), solution, h)
    for _ in range(4):
        now = distance(state.weights, solution, h)
        z = federation.newton_step(state.residual)
        assert now <= before * (1 + 1e-9) + 1e-9
        assert now <= state.bound(z) * (1 + 1e-9) + 1e-9
        before = now
        state.absorb(z, federation.hessian_product(z))


def test_a_preconditioner_of_few_clients_still_descends() -> None:
    """Newton steps of two of eight clients: slower, never worse, and at the solution in the end."""
    clients = few_rows()
    part = RidgeClients(clients.clients[:2])
    solution, h = pooled_solution(clients)
    state = clients.start_auto()
    before = distance(state.weights, solution, h)
    for _ in range(25):
        z = part.newton_step(state.residual)
        state.absorb(z, clients.hessian_product(z))
        now = distance(state.weights, solution, h)
        assert now <= before * (1 + 1e-9)
        before = now
    assert np.linalg.norm(state.weights - solution) < 1e-8 * np.linalg.norm(solution)


def test_order_of_clients_changes_only_rounding() -> None:
    """The same clients in reverse: the same weights to 1e-10."""
    clients = few_rows()
    results = []
    for order in (clients, RidgeClients(clients.clients[::-1])):
        state = order.start_auto()
        for _ in range(6):
            order.step_auto(state)
        results.append(state.weights)
    np.testing.assert_allclose(results[0], results[1], rtol=0, atol=1e-10)


def test_state_survives_as_arrays_bit_for_bit() -> None:
    """A run resumed from its arrays, copied, gives the bits of one that never stopped."""
    clients = few_rows()
    straight = clients.start_auto()
    resumed = clients.start_auto()
    for _ in range(5):
        clients.step_auto(straight)
        arrays = {name: array.copy() for name, array in resumed.to_arrays().items()}
        assert all(array.dtype == np.float64 for array in arrays.values())
        resumed = BlockConjugateGradients.from_arrays(arrays)
        clients.step_auto(resumed)
    for name, array in straight.to_arrays().items():
        assert np.array_equal(array, resumed.to_arrays()[name]), name


def test_the_papers_state_survives_too() -> None:
    """The watch on the certificate goes on after a resume."""
    clients = many_rows()
    state = clients.start_paper()
    clients.step_paper(state)
    again = PaperNewton.from_arrays(state.to_arrays())
    assert (again.bound, again.relative_bound, again.num_steps, again.eps) == (
        state.bound,
        state.relative_bound,
        1,
        state.eps,
    )
    assert np.array_equal(again.weights, state.weights)


def test_the_basis_is_orthonormal_in_h() -> None:
    """V'H V = I after many iterations, and HV is H V."""
    clients = few_rows()
    _, h = pooled_solution(clients)
    state = clients.start_auto()
    for _ in range(8):
        clients.step_auto(state)
    np.testing.assert_allclose(state.basis.T @ state.basis_image, np.eye(state.basis.shape[1]), rtol=0, atol=1e-10)
    np.testing.assert_allclose(h @ state.basis, state.basis_image, rtol=0, atol=1e-9)


def test_repeated_and_zero_directions_add_nothing() -> None:
    """Dependent outputs, an output of zeros, a direction seen before: no division by 0, no new direction."""
    clients = few_rows()
    w = clients.mean(LocalRidge.solve)
    c = clients.mean(LocalRidge.moment)
    w = np.stack([w[:, 0], 2 * w[:, 0], 0 * w[:, 0]], axis=1)
    state = BlockConjugateGradients.start(w, clients.hessian_product(w), c)
    assert state.basis.shape[1] == 1
    assert state.absorb(w, clients.hessian_product(w)) == 0
    assert np.isfinite(state.weights).all()


def test_messages_in_float32_reach_their_floor_and_stay() -> None:
    """Rounding every message to float32 still gives 1e-4, and further trips do not undo it."""
    clients = few_rows()
    solution, _ = pooled_solution(clients)

    def single(a: Matrix) -> Matrix:
        return a.astype(np.float32).astype(np.float64)

    w, c = single(clients.mean(LocalRidge.solve)), single(clients.mean(LocalRidge.moment))
    state = BlockConjugateGradients.start(w, single(clients.hessian_product(w)), c, eps=6e-8)
    for _ in range(25):
        z = single(clients.newton_step(single(state.residual)))
        state.absorb(z, single(clients.hessian_product(z)))
    assert np.linalg.norm(state.weights - solution) < 1e-4 * np.linalg.norm(solution)


def test_nonsense_from_clients_is_refused() -> None:
    """NaN, a wrong shape, and steps of an indefinite matrix are errors, not iterations."""
    clients = few_rows()
    state = clients.start_auto()
    z = clients.newton_step(state.residual)
    with pytest.raises(NumericalError, match="at least 0"):
        state.bound(-z)
    with pytest.raises(NumericalError, match="NaN"):
        state.absorb(z * np.nan, z)
    with pytest.raises(InvalidReplyError):
        state.absorb(z[:-1], z[:-1])
    with pytest.raises(InvalidReplyError):
        state.bound(z[:-1])


def test_another_ridge_needs_no_trip() -> None:
    """Shifted, the iteration holds the minimiser over its directions with that ridge, and its true residual."""
    draw = np.random.default_rng(4)
    a = draw.normal(size=(30, 12))
    gram, c = a.T @ a / 30, draw.normal(size=(12, 2))
    state = BlockConjugateGradients.start(c, (gram + 0.1 * np.eye(12)) @ c, c)
    for _ in range(2):
        z = draw.normal(size=(12, 2))
        state.absorb(z, (gram + 0.1 * np.eye(12)) @ z)
    moved = state.shifted(-0.09)
    hessian, basis = gram + 0.01 * np.eye(12), np.linalg.qr(state.basis)[0]
    best = basis @ np.linalg.solve(basis.T @ hessian @ basis, basis.T @ c)
    np.testing.assert_allclose(moved.weights, best, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(moved.residual, hessian @ moved.weights - c, rtol=0, atol=1e-10)
    np.testing.assert_allclose(moved.shifted(0.09).weights, state.weights, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("lie", ["none", "sign", "ones", "long"])
def test_a_gradient_fits_the_own_solution(lie: str) -> None:
    """Of a quadratic with its minimum at W_j and eigenvalues up to a bound; rounding next to W_j is no lie."""
    random = np.random.default_rng(6)
    z = random.normal(size=(60, 20)) / np.sqrt(20)
    h = z.T @ z / 60 + 1e-3 * np.eye(20)
    own, at = random.normal(size=(20, 1)), random.normal(size=(20, 1))
    gradient = h @ (at - own)
    told = {"none": gradient, "sign": -gradient, "ones": np.full((20, 1), -5.0), "long": 1e5 * gradient}[lie]
    found = list(not_a_gradient(at, own, told.astype(np.float32), 1e-3, 2.0))
    assert bool(found) == (lie != "none")
    assert not list(not_a_gradient(own * (1 + 1e-7), own, told, 1e-3, 2.0))


@pytest.mark.parametrize("ridge", [1e-8, 1e-2])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_products_and_solves_fit_the_own_solution(ridge: float, dtype: type) -> None:
    """Of one symmetric matrix, rounded or not; with a turned sign, numbers of -1, or another length they do not."""
    random = np.random.default_rng(5)
    x, y = random.normal(size=(30, 12)) * np.logspace(0, -4, 12), random.normal(size=(30, 2))
    h, moment, z = x.T @ x / 30 + ridge * np.eye(12), x.T @ y / 30, random.normal(size=(12, 4))
    own: Matrix = np.linalg.solve(h, moment).astype(dtype)
    product: Matrix = (h @ z).astype(dtype)
    solve: Matrix = np.linalg.solve(h, z).astype(dtype)
    moment = moment.astype(dtype)
    assert not list(not_of_its_start(own, moment, z, product))
    assert not list(not_of_its_start(own, moment, solve, z))
    for lie in (-product, 0 * product, 0 * product - 1, 20 * product, np.full_like(product, 1e30)):
        assert list(not_of_its_start(own, moment, z, lie))
    for lie in (-solve, 20 * solve):
        assert list(not_of_its_start(own, moment, lie, z))
