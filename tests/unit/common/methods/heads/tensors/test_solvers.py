"""Tests of `kernfed.methods.heads.tensors.solvers`: each against the dense system, against each other, and against
golden numbers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from kernfed.errors import DataError, NotPositiveDefiniteError
from kernfed.methods.heads.messages import HeadLoss, HeadSolver
from kernfed.methods.heads.solver_choice import choose_solver
from kernfed.methods.heads.solver_sizes import exact_bytes, exact_matrix
from kernfed.methods.heads.tensors.losses import Head
from kernfed.methods.heads.tensors.solvers.eigen import top_eigenpairs
from kernfed.methods.heads.tensors.solvers.exact import dense
from kernfed.methods.heads.tensors.solvers.interface import Limits, Stop, relative_residual
from kernfed.methods.heads.tensors.solvers.lanczos import leading_eigenpairs
from kernfed.methods.heads.tensors.solvers.solve import solve
from kernfed_testing.methods.heads import HeadClients, tensor
from kernfed_testing.methods.ridge_clients import load_golden

TIGHT = Limits(tolerance=1e-12)


def problem(loss: HeadLoss, n: int, d: int = 7, seed: int = 0, c: int = 4) -> tuple[Head, torch.Tensor, torch.Tensor]:
    """A problem, weights, and a right-hand side."""
    rng = np.random.default_rng(seed)
    c = 1 if loss is HeadLoss.LOGISTIC else c
    labels = rng.integers(max(c, 2), size=n)
    y = labels[:, None].astype(float) if c == 1 else np.eye(c)[labels]
    head = Head(loss, tensor(rng.normal(size=(n, d))), tensor(y), 1e-3)
    return head, tensor(rng.normal(size=(d, c))), tensor(rng.normal(size=(d, c)))


@pytest.mark.parametrize("damping", [0.05, 0.0])
@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("loss", HeadLoss)
@pytest.mark.parametrize("n", [3, 7, 40])
def test_exact_and_cg_solve_the_system(loss: HeadLoss, n: int, free: bool, damping: float) -> None:
    """With more rows than features and with fewer, both solve it, and agree with the dense solution."""
    head, w, g = problem(loss, n)
    if free:
        z = head.z.clone()
        z[:, -1] = 1.0
        head = replace(head, z=z, free_bias=True)
    hessian = head.hessian(w).with_damping(damping)
    size = g.numel()
    columns = [hessian.product(e.reshape(g.shape)).reshape(-1) for e in torch.eye(size, dtype=torch.float64)]
    expected = torch.linalg.solve(torch.stack(columns, 1), g.reshape(-1)).reshape(g.shape)
    for solver in (HeadSolver.EXACT, HeadSolver.CG):
        found = solve(solver, hessian, g, TIGHT)
        torch.testing.assert_close(found.value, expected, rtol=1e-8, atol=1e-9)
        assert found.residual < 1e-10
        assert found.residual == pytest.approx(relative_residual(hessian, found.value, g), abs=1e-11)


def test_the_golden_steps() -> None:
    """Exact, three CG steps, Fisher and Hessian diagonal on client 0, and one round of all clients."""
    golden = load_golden("newton")
    facts = golden["head"]
    clients = HeadClients.of(list(zip(golden["X"], facts["y"], strict=True)), 3, 0.0)
    w, g = np.array(facts["W"]), np.array(facts["global_grad"])
    hessian = clients.heads[0].hessian(tensor(w)).with_damping(0.01)
    limits = Limits(tolerance=0.0, max_iterations=3)
    for name, solver in (
        ("exact0", HeadSolver.EXACT),
        ("cg3_0", HeadSolver.CG),
        ("fisher0", HeadSolver.FISHER),
        ("diag0", HeadSolver.DIAGONAL),
    ):
        np.testing.assert_allclose(solve(solver, hessian, tensor(g), limits).value.numpy(), facts[name], atol=1e-10)
    np.testing.assert_allclose(w - 0.1 * clients.newton(w, g, 0.01), facts["one_round_full_eta01"], atol=1e-10)


def test_the_dense_hessian_is_that_of_the_golden_file() -> None:
    """In the order of outputs, then features."""
    golden = load_golden("newton")
    facts = golden["head"]
    clients = HeadClients.of(list(zip(golden["X"], facts["y"], strict=True)), 3, 0.0)
    found = dense(clients.heads[0].hessian(tensor(facts["W"])).with_damping(0.01))
    np.testing.assert_allclose(found.numpy(), facts["hessian0"], atol=1e-12)


def test_cg_cut_short_says_so_and_approaches_the_solution() -> None:
    """Few iterations leave a residual above the tolerance, and the step is a descent direction all the same."""
    head, w, g = problem(HeadLoss.SOFTMAX, 40)
    hessian = head.hessian(w).with_damping(0.05)
    cut = solve(HeadSolver.CG, hessian, g, Limits(tolerance=1e-12, max_iterations=3))
    assert (cut.iterations, cut.stop) == (3, Stop.ITERATIONS)
    assert cut.residual > 1e-12
    assert float((cut.value * g).sum()) > 0


def test_cg_says_why_it_stopped_and_its_residual_is_the_true_one() -> None:
    """Curvatures from 1e-9 to 1: the residual that rounding allows is reported, not the one that is carried along."""
    scales = torch.logspace(0, -4.5, 30, dtype=torch.float64)
    draw = np.random.default_rng(4)
    z = tensor(draw.normal(size=(60, 30))) * scales
    head = Head(HeadLoss.SQUARED, z, tensor(draw.normal(size=(60, 1))), 1e-13)
    hessian, g = head.hessian(torch.zeros(30, 1, dtype=torch.float64)), tensor(draw.normal(size=(30, 1)))
    few, many = (solve(HeadSolver.CG, hessian, g, Limits(tolerance=1e-13, max_iterations=n)) for n in (10, 100_000))
    assert (few.stop, few.iterations) == (Stop.ITERATIONS, 10)
    assert many.stop in (Stop.ROUNDING, Stop.TOLERANCE)
    assert many.iterations < 100_000
    assert many.residual == pytest.approx(relative_residual(hessian, many.value, g), rel=1e-6, abs=1e-14)
    assert solve(HeadSolver.CG, hessian.with_damping(1.0), g, TIGHT).stop is Stop.TOLERANCE


def test_cg_cut_short_does_not_enlarge_rounding() -> None:
    """A right-hand side moved by 1e-10 of its size moves the answer by little more, though iterations are few."""
    draw = np.random.default_rng(1)
    z = tensor(draw.normal(size=(60, 12))) * torch.logspace(0, -2, 12, dtype=torch.float64)
    head = Head(HeadLoss.SQUARED, z, tensor(draw.normal(size=(60, 1))), 1e-6)
    hessian, g = head.hessian(torch.zeros(12, 1, dtype=torch.float64)), tensor(draw.normal(size=(12, 1)))
    moved = g + 1e-10 * tensor(draw.normal(size=(12, 1)))
    for count in range(2, 12):
        limits = Limits(tolerance=1e-13, max_iterations=count)
        one, other = (solve(HeadSolver.CG, hessian, right, limits).value for right in (g, moved))
        assert float((one - other).norm() / one.norm()) < 1e-8


def test_lanczos_with_all_eigenvectors_is_exact() -> None:
    """With as many eigenvectors as parameters there is nothing beside them."""
    head, w, g = problem(HeadLoss.SOFTMAX, 60, d=4, c=3)
    hessian = head.hessian(w).with_damping(0.05)
    values, vectors, products = leading_eigenpairs(hessian, g, 12)
    assert products <= 12
    reference = torch.linalg.eigvalsh(dense(hessian))
    torch.testing.assert_close(values.max(), reference.max(), rtol=0, atol=1e-9)
    torch.testing.assert_close(vectors.T @ vectors, torch.eye(len(values), dtype=torch.float64), rtol=0, atol=1e-9)
    found = solve(HeadSolver.LANCZOS, hessian, g, Limits(rank=12))
    torch.testing.assert_close(found.value, solve(HeadSolver.EXACT, hessian, g, TIGHT).value, rtol=0, atol=1e-7)


def test_lanczos_steps_by_curvature_where_it_knows_it() -> None:
    """Along a leading eigenvector the step divides by its eigenvalue; beside them by the least one kept."""
    head, w, _ = problem(HeadLoss.SQUARED, 60, d=12, c=1)
    hessian = head.hessian(w)
    columns = [hessian.product(e.reshape(12, 1)).reshape(-1) for e in torch.eye(12, dtype=torch.float64)]
    values, vectors = torch.linalg.eigh(torch.stack(columns))
    g = (vectors[:, -1] + vectors[:, 0]).reshape(12, 1)
    found = solve(HeadSolver.LANCZOS, hessian, g, Limits(rank=1)).value.reshape(-1)
    assert float(found @ vectors[:, -1]) == pytest.approx(1.0 / float(values[-1]), rel=1e-6)
    assert float(found @ vectors[:, 0]) == pytest.approx(1.0 / float(values[-1]), rel=1e-6)


def test_eigen_takes_the_true_leading_eigenvectors_whatever_the_right_hand_side() -> None:
    """Three outputs have each eigenvalue three times: all copies are found, and the step is that of the dense ones."""
    head, w, g = problem(HeadLoss.SQUARED, 60, d=9, c=3)
    hessian = head.hessian(w).with_damping(0.05)
    columns = [hessian.product(e.reshape(9, 3)).reshape(-1) for e in torch.eye(27, dtype=torch.float64)]
    values, vectors = torch.linalg.eigh(torch.stack(columns))
    found, _, products, residual = top_eigenpairs(hessian, g, 6)
    torch.testing.assert_close(found, values[-6:], rtol=1e-9, atol=0)
    assert residual <= 1e-6
    assert products < 27 * 50
    lead, at = vectors[:, -6:], values[-6:]
    along = lead.T @ g.reshape(-1)
    expected = lead @ (along / at) + (g.reshape(-1) - lead @ along) / at.min()
    step = solve(HeadSolver.EIGEN, hessian, g, Limits(rank=6))
    torch.testing.assert_close(step.value.reshape(-1), expected, rtol=1e-5, atol=1e-6)
    assert step.residual == 0.0


def test_the_two_readings_of_low_rank_differ() -> None:
    """Along one eigenvector of G, Lanczos knows that one alone; the true leading ones make the step shorter."""
    head, w, _ = problem(HeadLoss.SQUARED, 60, d=12, c=1)
    hessian = head.hessian(w)
    columns = [hessian.product(e.reshape(12, 1)).reshape(-1) for e in torch.eye(12, dtype=torch.float64)]
    values, vectors = torch.linalg.eigh(torch.stack(columns))
    g = vectors[:, 0].reshape(12, 1)
    krylov, true = (solve(s, hessian, g, Limits(rank=1)).value for s in (HeadSolver.LANCZOS, HeadSolver.EIGEN))
    torch.testing.assert_close(krylov, g / values[0], rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(true, g / values[-1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("solver", HeadSolver)
def test_every_solver_gives_a_descent_direction_and_0_for_0(solver: HeadSolver) -> None:
    """Its matrix is positive definite."""
    head, w, g = problem(HeadLoss.SOFTMAX, 25)
    hessian = head.hessian(w).with_damping(0.01)
    assert float((solve(solver, hessian, g, Limits(rank=3)).value * g).sum()) > 0
    assert not solve(solver, hessian, torch.zeros_like(g), Limits()).value.any()


def test_a_singular_hessian_is_refused() -> None:
    """A softmax Hessian without ridge and damping has null directions; the error says what to raise."""
    head, w, g = problem(HeadLoss.SOFTMAX, 60)
    bare = Head(head.loss, head.z, head.y, 0.0).hessian(w)
    with pytest.raises(NotPositiveDefiniteError, match="increase the ridge"):
        solve(HeadSolver.EXACT, bare, g, TIGHT)
    flat = Head(HeadLoss.SQUARED, torch.zeros(3, 2, dtype=torch.float64), torch.zeros(3, 1, dtype=torch.float64), 0.0)
    one = torch.ones(2, 1, dtype=torch.float64)
    for solver in (HeadSolver.CG, HeadSolver.DIAGONAL, HeadSolver.LANCZOS, HeadSolver.EIGEN):
        with pytest.raises(NotPositiveDefiniteError, match="raise damping or ridge"):
            solve(solver, flat.hessian(one), one, TIGHT)


def test_exact_on_ten_classes_and_1280_features_is_refused_by_the_memory_rule_and_auto_takes_cg() -> None:
    """Its matrix has 12,800 rows; the refusal and the choice both give the numbers."""
    head, _, _ = problem(HeadLoss.SOFTMAX, 1500, d=1280, c=10)
    w = torch.zeros(1280, 10, dtype=torch.float64)
    hessian = head.hessian(w).with_damping(0.1)
    g = head.gradient(w)
    with pytest.raises(DataError, match=r"12800 rows, 2\.44 GiB .* more than the 1\.00 GiB allowed"):
        solve(HeadSolver.EXACT, hessian, g, Limits())
    choice = choose_solver(HeadLoss.SOFTMAX, 1500, 1280, 10, 8 << 30, 1 << 30)
    assert choice.solver is HeadSolver.CG
    assert "12800 rows (2500 MiB), more than the 1024 MiB" in choice.reason
    found = solve(choice.solver, hessian, g, Limits(tolerance=1e-2))
    assert found.stop is Stop.TOLERANCE


def test_auto_takes_exact_where_it_is_cheap() -> None:
    """A small or uncoupled problem is solved exactly; a large one that fits, but costs more, is not."""
    assert choose_solver(HeadLoss.SOFTMAX, 2000, 20, 3, 1 << 30, 1 << 30).solver is HeadSolver.EXACT
    assert choose_solver(HeadLoss.SQUARED, 5000, 500, 10, 1 << 30, 1 << 30).solver is HeadSolver.EXACT
    costly = choose_solver(HeadLoss.SOFTMAX, 5000, 500, 10, 8 << 30, 1 << 30)
    assert costly.solver is HeadSolver.CG
    assert "operations" in costly.reason


def test_sizes_follow_the_form_that_is_factored() -> None:
    """Uncoupled losses factor one block; few rows stand in for many features."""
    assert exact_matrix(HeadLoss.SQUARED, 1000, 50, 10) == 50
    assert exact_matrix(HeadLoss.SOFTMAX, 1000, 50, 10) == 500
    assert exact_matrix(HeadLoss.SOFTMAX, 8, 50, 10) == 80
    assert exact_bytes(HeadLoss.SOFTMAX, 10_000, 513, 10) == 2 * 8 * 5130**2


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("solver", HeadSolver)
def test_cuda_agrees_with_cpu(solver: HeadSolver) -> None:
    """Every solver's step on CUDA is that of the CPU to 1e-8."""
    head, w, g = problem(HeadLoss.SOFTMAX, 300, d=20)
    there = Head(head.loss, head.z.cuda(), head.y.cuda(), head.ridge)
    here = solve(solver, head.hessian(w).with_damping(0.05), g, TIGHT).value
    found = solve(solver, there.hessian(w.cuda()).with_damping(0.05), g.cuda(), TIGHT).value.cpu()
    torch.testing.assert_close(found, here, rtol=0, atol=1e-8)
