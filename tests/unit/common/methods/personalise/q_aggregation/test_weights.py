"""Q-aggregation: golden vectors of three kernels and both solvers, optimality, symmetries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kernfed.errors import ConfigError, NotConvergedError
from kernfed.features.kernels import KernelSpec, PointKernel
from kernfed.maths.points.kernels import gram as exact_gram
from kernfed.methods.personalise.embeddings import TargetTerms, target_terms
from kernfed.methods.personalise.q_aggregation.weights import (
    Constants,
    default_constants,
    linear_term,
    objective,
    optimality_gap,
    project_to_simplex,
    solve_exact,
    solve_paper,
)
from kernfed.tensors.feature_maps import polynomial_features
from kernfed_testing.methods.personalise_oracles import kernel_terms, polynomial_gram
from kernfed_testing.methods.ridge_clients import load_golden
from kernfed_testing.properties import examples

GOLDEN = load_golden("personalise")
FIRST = np.array([0])


def points() -> list[Any]:
    return [np.array(z) for z in GOLDEN["Z"]]


def of_features(phi: list[Any]) -> tuple[Any, TargetTerms]:
    means = np.array([p.mean(axis=0) for p in phi])
    return means @ means.T, target_terms(phi[0], means)


def random_features() -> tuple[Any, TargetTerms]:
    w, b = np.array(GOLDEN["rff_W"]), np.array(GOLDEN["rff_b"])
    return of_features([np.sqrt(2 / len(b)) * np.cos(z @ w.T + b) for z in points()])


def polynomial() -> tuple[Any, TargetTerms]:
    z = points()
    gram = polynomial_gram(np.array([a.mean(axis=0) for a in z]), np.array([a.T @ a / len(a) for a in z]))
    return gram, of_features([polynomial_features(torch.from_numpy(a)).numpy() for a in z])[1]


def gaussian() -> tuple[Any, TargetTerms]:
    """exp(-z'Az) with A = diag(.5, .25)."""

    def kernel(a: Any, b: Any) -> Any:
        return exact_gram(KernelSpec(PointKernel.GAUSSIAN, (1.0, 2**0.5), False), a, b)

    return kernel_terms(kernel, points(), 0)


@pytest.mark.parametrize(
    ("name", "make"), [("rff", random_features), ("poly2", polynomial), ("gauss_a_0.5_0.25", gaussian)]
)
def test_terms_and_weights_equal_an_independent_program(name: str, make: Any) -> None:
    """Closed forms to 1e-12, weights of both solvers to 1e-10, and a gap of 0 at the optimum alone."""
    gram, terms = make()
    want = GOLDEN[name]
    a = gram - gram[:, [0]] - gram[[0], :] + gram[0, 0]
    np.testing.assert_allclose(a, want["A"], atol=1e-12)
    assert terms.trace == pytest.approx(want["tr"], abs=1e-12)
    np.testing.assert_allclose(terms.spread, want["q"], atol=1e-12)
    np.testing.assert_allclose(terms.distance, want["dist"], atol=1e-12)
    b = linear_term(terms, 0, Constants(GOLDEN["C_Q"], GOLDEN["C_P"]), GOLDEN["M"])[:, None]
    np.testing.assert_allclose(b[:, 0], want["b"], atol=1e-12)
    for steps in (10, 1000):
        found = solve_paper(gram, FIRST, b, steps)
        np.testing.assert_allclose(found.weights[:, 0], want[f"eg_T{steps}"], atol=1e-10)
    best = solve_exact(gram, FIRST, b)
    np.testing.assert_allclose(best.weights[:, 0], want["w_opt"], atol=1e-10)
    assert best.objective[0] == pytest.approx(want["f_opt"], abs=1e-12)
    assert best.gap[0] < 1e-10
    assert solve_paper(gram, FIRST, b, 10).gap[0] > 1e-3


def test_a_tiny_programme_has_its_known_optimum() -> None:
    """A quadratic with a worked answer."""
    case = GOLDEN["tiny_qp"]
    a, b = np.array(case["A"]), np.array(case["b"])[:, None]
    best = solve_exact(a, FIRST, b)
    np.testing.assert_allclose(best.weights[:, 0], case["w_opt"], atol=1e-10)
    assert best.objective[0] == pytest.approx(case["f_opt"], abs=1e-12)
    for steps in (1, 1000):
        np.testing.assert_allclose(solve_paper(a, FIRST, b, steps).weights[:, 0], case[f"eg_T{steps}"], atol=1e-10)


def problem(seed: int, num: int, size: int = 8, rows: int = 6) -> tuple[Any, Any]:
    """Gram matrix and linear terms of all clients as targets."""
    random = np.random.default_rng(seed)
    phi = [random.normal(size=size) * (k % 2) + random.normal(size=(rows, size)) for k in range(num)]
    means = np.array([p.mean(axis=0) for p in phi])
    constants = Constants(*random.uniform(0, 0.5, 2))
    return means @ means.T, np.stack(
        [linear_term(target_terms(p, means), t, constants) for t, p in enumerate(phi)], axis=1
    )


@settings(deadline=None, max_examples=examples(30))
@given(st.integers(0, 2**32), st.integers(1, 25))
@example(25, 25)  # on the way, F falls straight among clients whose embeddings depend on each other
def test_all_targets_at_once_equal_one_after_another(seed: int, num: int) -> None:
    """Both solvers, more clients than dimensions too; weights are on the simplex, and exact ones are optimal."""
    gram, linear = problem(seed, num)
    targets = np.arange(num)
    paper, exact = (solve(gram, targets, linear) for solve in (solve_paper, solve_exact))
    for solve, together in ((solve_paper, paper), (solve_exact, exact)):
        assert (together.weights >= 0).all()
        np.testing.assert_allclose(together.weights.sum(axis=0), 1, atol=1e-12)
        one = solve(gram, targets[-1:], linear[:, -1:])
        np.testing.assert_allclose(one.objective[0], together.objective[-1], atol=1e-10)
    assert (exact.gap <= 1e-10 * np.maximum(1, np.abs(linear).max())).all()
    assert (exact.objective <= paper.objective + 1e-10).all()


@settings(deadline=None, max_examples=examples(20))
@given(st.integers(0, 2**32))
def test_order_of_clients_does_not_matter(seed: int) -> None:
    """A permutation of clients permutes the weights."""
    gram, linear = problem(seed, 9, size=20)
    order = np.random.default_rng(seed).permutation(9)
    found = solve_exact(gram, np.array([2]), linear[:, [2]]).weights[:, 0]
    place = int(np.flatnonzero(order == 2)[0])
    moved = solve_exact(gram[np.ix_(order, order)], np.array([place]), linear[order][:, [2]]).weights[:, 0]
    np.testing.assert_allclose(moved, found[order], atol=1e-8)


def test_one_client_alone_has_all_weight() -> None:
    """There is nobody else."""
    for solve in (solve_paper, solve_exact):
        assert solve(np.array([[2.0]]), FIRST, np.array([[0.3]])).weights[0, 0] == 1


def test_duplicated_clients_share_weight() -> None:
    """Two clients that are the same get the same, and together what one of them had."""
    gram, linear = problem(3, 6, size=20)
    one = solve_exact(gram, FIRST, linear[:, [0]]).weights[:, 0]
    twice = [0, 1, 2, 3, 4, 5, 2]
    both = solve_exact(gram[np.ix_(twice, twice)], FIRST, linear[twice][:, [0]]).weights[:, 0]
    assert both[2] == pytest.approx(both[6], abs=1e-9)
    assert both[2] + both[6] == pytest.approx(one[2], abs=1e-9)


@settings(deadline=None, max_examples=examples(30))
@given(st.integers(0, 2**32), st.floats(0.1, 50))
def test_a_client_like_the_target_never_loses_to_a_distant_one(seed: int, distance: float) -> None:
    """Whatever the constants, the one with the target's embedding gets at least as much as one further away."""
    random = np.random.default_rng(seed)
    phi = random.normal(size=(7, 6))
    away = random.normal(size=6)
    means = np.stack([phi.mean(axis=0), phi.mean(axis=0), phi.mean(axis=0) + distance * away / np.linalg.norm(away)])
    b = linear_term(target_terms(phi, means), 0, Constants(*random.uniform(0, 3, 2)))[:, None]
    for solve in (solve_paper, solve_exact):
        weights = solve(means @ means.T, FIRST, b).weights[:, 0]
        assert weights[1] >= weights[2] - 1e-12


def test_embeddings_that_are_all_one_are_no_trouble() -> None:
    """F is then linear, and the penalties decide."""
    gram, linear = np.ones((4, 4)), np.array([[0.5, 0.1, 0.1, 0.3]]).T
    np.testing.assert_allclose(solve_exact(gram, FIRST, linear).weights[:, 0], [0, 0.5, 0.5, 0], atol=1e-9)


def test_a_solver_that_may_not_finish_says_so() -> None:
    """With one step the gap is stated."""
    gram, linear = problem(1, 12)
    with pytest.raises(NotConvergedError, match="from its optimum after 1 steps"):
        solve_exact(gram, np.arange(12), linear, max_steps=1)


def test_gap_bounds_the_distance_to_the_optimum() -> None:
    """At any point of the simplex F - F* is at most the gap."""
    gram, linear = problem(2, 10)
    targets = np.arange(10)
    best = solve_exact(gram, targets, linear).objective
    w = np.random.default_rng(0).dirichlet(np.ones(10), 10).T
    excess = objective(gram, targets, linear, w) - best
    assert (excess >= -1e-12).all()
    assert (excess <= optimality_gap(gram, targets, linear, w) + 1e-12).all()


def test_step_sizes_of_many_clients_equal_those_by_eigenvalues() -> None:
    """Above 128 clients |A|_op comes from power iteration; a few steps give the weights that eigenvalues give."""
    gram, linear = problem(4, 130, size=40)
    targets = np.array([5, 77])
    found = solve_paper(gram, targets, linear[:, targets], 20).weights
    for i, t in enumerate(targets):
        a = gram - gram[:, [t]] - gram[[t], :] + gram[t, t]
        eta = 0.5 / (2 * np.linalg.eigvalsh(a)[-1] + np.abs(linear[:, t]).max())
        w = np.full(130, 1 / 130)
        for _ in range(20):
            ahead = w * np.exp(-eta * (2 * a @ w + linear[:, t]))
            ahead /= ahead.sum()
            w = w * np.exp(-eta * (2 * a @ ahead + linear[:, t]))
            w /= w.sum()
        np.testing.assert_allclose(found[:, i], w, atol=1e-10)


@given(st.integers(0, 2**32))
def test_projection_is_the_nearest_point_of_the_simplex(seed: int) -> None:
    """Its optimality condition holds: no point of the simplex lies on the other side of it."""
    random = np.random.default_rng(seed)
    v = random.normal(size=(6, 3)) * 10.0 ** random.integers(-3, 4)
    p = project_to_simplex(v)
    assert (p >= 0).all()
    other = random.dirichlet(np.ones(6), 3).T
    assert (((v - p) * (other - p)).sum(axis=0) <= 1e-9 * np.abs(v).max()).all()


def test_constants_follow_the_papers_rule_and_must_not_be_negative() -> None:
    """C_Q² = C_P = log B; a negative constant is named."""
    assert default_constants(100).c_q ** 2 == pytest.approx(np.log(100))
    with pytest.raises(ConfigError, match=r"method\.c_p is -1"):
        linear_term(TargetTerms(3, 1.0, np.ones(2), np.ones(2)), 0, Constants(1.0, -1.0))
