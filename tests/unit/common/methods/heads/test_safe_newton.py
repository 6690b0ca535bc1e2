"""Tests of `kernfed.methods.heads.safe_newton`: the default step on heads, which cannot raise the loss."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kernfed.errors import InvalidReplyError, NumericalError
from kernfed.methods.heads.lbfgs import History
from kernfed.methods.heads.messages import HeadSolver
from kernfed.methods.heads.safe_newton import Direction, Point, SafeNewton, Scaling, choose_step_size, line_search_sizes
from kernfed.tensors.threads import suited
from kernfed_testing.methods.heads import HeadClients
from kernfed_testing.methods.ridge_clients import load_golden


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with suited(1):
        yield


def golden_clients() -> tuple[HeadClients, dict[str, Any]]:
    golden = load_golden("newton-default")
    facts = golden["head"]
    return HeadClients.of(list(zip(golden["X"], facts["y"], strict=True)), 3, facts["lam"]), facts


def skewed_clients(seed: int, num_clients: int = 4, n: int = 30, d: int = 6) -> HeadClients:
    """Clients with rows of one class each, and two of the next."""
    rng = np.random.default_rng(seed)
    centres = 2 * rng.normal(size=(num_clients, d))
    rows = []
    for k in range(num_clients):
        y = np.array([k] * n + [(k + 1) % num_clients] * 2)
        rows.append((centres[y] + rng.normal(size=(len(y), d)), list(y)))
    return HeadClients.of(rows, num_clients, 1e-4)


def iterate(clients: HeadClients, state: SafeNewton, solver: HeadSolver) -> tuple[SafeNewton, float, int]:
    """One round: the state after it, its step size, and how many probes it took."""
    q, coefficients = state.preconditioned()
    direction = state.direction(clients.newton(state.point.weights, q, state.damping, solver), coefficients)
    step_size, probes = state.step_size, 0
    while True:
        at = clients.measure(state.point.weights - step_size * direction.matrix)
        probes += 1
        if state.accepts(direction, step_size, at.value):
            return state.moved(direction, step_size, at), step_size, probes
        step_size = state.shortened(direction, step_size, at.value)


def test_the_default_walks_like_the_independent_program() -> None:
    """Losses, step sizes, damping and weights after each of eight rounds."""
    clients, facts = golden_clients()
    w = np.zeros((8, 3))
    direction = clients.newton(w, clients.measure(w).gradient, 0.1)
    np.testing.assert_allclose(direction, facts["direction_damp01_at_zero"], atol=1e-12)
    losses = [clients.measure(w - size * direction).value for size in line_search_sizes(2.0)]
    np.testing.assert_allclose(losses, facts["losses_at_zero"], atol=1e-12)
    state = SafeNewton(clients.measure(w), History(5), clients.mean_curvature(w))
    trips = 1
    for row in facts["log"]:
        state, step_size, probes = iterate(clients, state, HeadSolver.EXACT)
        trips += 1 + probes
        np.testing.assert_allclose([trips, trips, state.point.value, step_size, state.damping], row, atol=1e-10)
    np.testing.assert_allclose(state.point.weights, facts["W"], atol=1e-10)


@pytest.mark.parametrize("solver", HeadSolver)
@pytest.mark.parametrize("seed", range(3))
def test_the_loss_never_rises_whatever_the_solver(solver: HeadSolver, seed: int) -> None:
    """On clients of one class each, every round lowers the pooled loss, with every solver."""
    clients = skewed_clients(seed)
    w = np.zeros((6, 4))
    state = SafeNewton(clients.measure(w), History(5), clients.mean_curvature(w))
    values = [state.point.value]
    for _ in range(8):
        state, _, _ = iterate(clients, state, solver)
        values.append(state.point.value)
    assert all(after < before for before, after in itertools.pairwise(values))


def test_a_state_survives_as_arrays() -> None:
    """Half a run, saved and loaded, goes on to the same bits."""
    clients, _ = golden_clients()
    w = np.zeros((8, 3))
    state = SafeNewton(clients.measure(w), History(2), clients.mean_curvature(w))
    for _ in range(3):
        state, _, _ = iterate(clients, state, HeadSolver.CG)
    again = SafeNewton.from_arrays(state.to_arrays())
    for _ in range(2):
        state, again = iterate(clients, state, HeadSolver.CG)[0], iterate(clients, again, HeadSolver.CG)[0]
    assert np.array_equal(state.point.weights, again.point.weights)
    assert (state.damping, state.step_size) == (again.damping, again.step_size)


def test_steps_that_are_none_are_refused() -> None:
    """A direction that climbs, is not finite, or has another shape is an error with a remedy."""
    clients, _ = golden_clients()
    state = SafeNewton(clients.measure(np.zeros((8, 3))), History(5), 0.1)
    q, coefficients = state.preconditioned()
    with pytest.raises(NumericalError, match="no descent direction"):
        state.direction(-q, coefficients)
    with pytest.raises(NumericalError, match="not finite"):
        state.direction(np.full_like(q, np.nan), coefficients)
    with pytest.raises(InvalidReplyError, match="shape"):
        state.direction(q[:-1], coefficients)


def test_a_shorter_step_stays_within_bounds() -> None:
    """The parabola's minimum is kept between a tenth and a half of the step that was too long."""
    point = Point(np.zeros((1, 1)), 1.0, np.ones((1, 1)))
    state, direction = SafeNewton(point, History(5), 0.1), Direction(np.ones((1, 1)), 1.0)
    assert state.shortened(direction, 1.0, 1.5) == pytest.approx(1 / 3)
    assert state.shortened(direction, 1.0, 1e9) == pytest.approx(0.1)
    assert state.shortened(direction, 1.0, 0.99999) == pytest.approx(0.5)
    assert state.shortened(direction, 1.0, float("inf")) == pytest.approx(0.1)


def test_the_line_search_takes_the_lowest_loss_that_is_low_enough() -> None:
    """None where no step size lowers the loss."""
    sizes = line_search_sizes(1.0, 3)
    assert choose_step_size(1.0, 0.5, sizes, np.array([2.0, 0.8, 0.9])) == 0.5
    assert choose_step_size(1.0, 0.5, sizes, np.array([2.0, 1.5, 1.2])) is None


def test_pairs_without_curvature_are_left_out() -> None:
    """A pair with s'y <= 0 never enters the history, which keeps the newest pairs only."""
    history = History(2)
    one = np.ones((2, 1))
    assert history.add(one, -one).steps == ()
    for k in range(1, 4):
        history = history.add(k * one, one)
    assert [float(s[0, 0]) for s in history.steps] == [2.0, 3.0]
    assert history.scale == pytest.approx(3.0)


def test_the_recursion_is_the_inverse_of_bfgs() -> None:
    """With the newest pair, the recursion maps y to s: the secant equation."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(6, 6))
    a = a @ a.T + np.eye(6)
    history = History(4)
    for _ in range(3):
        s = rng.normal(size=(6, 1))
        history = history.add(s, a @ s)
    q, coefficients = history.first_half(history.differences[-1])
    np.testing.assert_allclose(history.second_half(0.3 * q, coefficients), history.steps[-1], atol=1e-12)


def test_the_ridge_of_the_gap_makes_both_slopes_agree() -> None:
    """Along W, rows trained on with that ridge pull as hard as rows kept apart do without one, whatever F's ridge."""
    draw = np.random.default_rng(0)
    z = draw.normal(size=(50, 8))
    y = z @ draw.normal(size=(8, 2)) + 2.0 * draw.normal(size=(50, 2))
    w = np.linalg.lstsq(z[:40], y[:40])[0].astype(np.float64, copy=False)
    of_all, of_kept, of_apart = (
        z[rows].T @ (z[rows] @ w - y[rows]) / len(z[rows]) for rows in (slice(50), slice(40), slice(40, 50))
    )
    slope = float(np.vdot(of_apart, w))
    found = Scaling.of(Point(w, 0.0, of_all + 0.01 * w), 0.01, slope, 0.2)
    assert found.ridge > 0
    assert np.vdot(of_kept + found.ridge * w, w) == pytest.approx(slope, abs=1e-10)
    left_out = Scaling.of(Point(w, 0.0, of_kept + 0.01 * w), 0.01, slope, 0.0)
    assert left_out.ridge == pytest.approx(found.ridge, rel=1e-9)
    assert Scaling.of(Point(0 * w, 0.0, of_all), 0.01, 0.0, 0.2).ridge == 0.0


@pytest.mark.parametrize(
    ("trained", "apart", "want"), [(-1.0, -0.9, True), (-1.0, -0.4, False), (-1.0, 0.3, False), (0.1, -1.0, False)]
)
def test_weights_are_under_fitted_where_unseen_rows_want_more_of_them(trained: float, apart: float, want: bool) -> None:
    """By at least half as much as rows that they were trained on do."""
    assert Scaling(1.0, trained, apart).under_fitted is want


def test_more_ridge_is_the_objective_with_that_ridge() -> None:
    """F and its gradient follow from those of less ridge."""
    draw = np.random.default_rng(1)
    z, y, w = draw.normal(size=(30, 4)), draw.normal(size=(30, 2)), draw.normal(size=(4, 2))

    def at(ridge: float) -> Point:
        residual = z @ w - y
        value = (residual**2).sum() / 60 + ridge / 2 * (w**2).sum()
        return Point(w, float(value), z.T @ residual / 30 + ridge * w)

    more, want = at(0.1).with_other_ridge(0.4), at(0.5)
    assert more.value == pytest.approx(want.value, rel=1e-12)
    np.testing.assert_allclose(more.gradient, want.gradient, rtol=1e-12)
