"""Tests of `kernfed.methods.heads.tensors.losses`: losses, gradients and Hessian-vector products of a head."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from kernfed.errors import DataError, NumericalError
from kernfed.methods.heads.losses import start_scores
from kernfed.methods.heads.messages import HeadLoss
from kernfed.methods.heads.tensors.fitting import fit
from kernfed.methods.heads.tensors.losses import Head, mean_loss, probabilities
from kernfed_testing.methods.heads import HeadClients, tensor
from kernfed_testing.methods.ridge_clients import load_golden


def problem(loss: HeadLoss, n: int = 23, d: int = 5, seed: int = 0, ridge: float = 0.03) -> tuple[Head, Tensor]:
    """A small problem and weights to look at it from."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, d))
    c = 1 if loss is HeadLoss.LOGISTIC else 3
    if loss is HeadLoss.SQUARED:
        y = rng.normal(size=(n, c))
    elif loss is HeadLoss.LOGISTIC:
        y = rng.integers(2, size=(n, 1)).astype(float)
    else:
        y = np.eye(c)[rng.integers(c, size=n)]
    return Head(loss, tensor(z), tensor(y), ridge), tensor(rng.normal(size=(d, c)))


def objective(head: Head, w: Tensor) -> Tensor:
    """F(W) as torch's own loss functions have it."""
    s = head.z @ w + (0.0 if head.offset is None else head.offset)
    if head.loss is HeadLoss.SOFTMAX:
        loss = torch.nn.functional.cross_entropy(s, head.y)
    elif head.loss is HeadLoss.LOGISTIC:
        loss = torch.nn.functional.binary_cross_entropy_with_logits(s, head.y)
    else:
        loss = 0.5 * (s - head.y).square().sum() / head.num_rows
    if not head.free_bias:
        return loss + 0.5 * head.ridge * w.square().sum()
    mean = w[-1].sum().square() / w.shape[1] if head.loss is HeadLoss.SOFTMAX else 0.0
    return loss + 0.5 * head.ridge * (w[:-1].square().sum() + mean)


def freed(head: Head) -> Head:
    """The same rows with a bias that the ridge leaves out, and scores that begin elsewhere."""
    z = head.z.clone()
    z[:, -1] = 1.0
    return replace(head, z=z, free_bias=True, offset=tensor(np.linspace(-1.0, 2.0, head.y.shape[1])))


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("loss", HeadLoss)
def test_values_gradients_and_products_are_those_of_autograd(loss: HeadLoss, free: bool) -> None:
    """F, ∇F, the dense Hessian, its products and its diagonal agree with torch's differentiation to 1e-10."""
    head, w = problem(loss)
    if free:
        head = freed(head)
    value, gradient = head.value_and_gradient(w)
    leaf = w.clone().requires_grad_()
    expected = objective(head, leaf)
    assert value == pytest.approx(float(expected.detach()), abs=1e-12)
    assert head.value(w) == pytest.approx(value, abs=1e-14)
    (wanted,) = torch.autograd.grad(expected, leaf)
    torch.testing.assert_close(gradient, wanted, rtol=0, atol=1e-10)
    torch.testing.assert_close(head.gradient(w), wanted, rtol=0, atol=1e-10)
    d, c = w.shape
    dense = torch.autograd.functional.hessian(lambda v: objective(head, v), w).reshape(d * c, d * c)
    hessian = head.hessian(w).with_damping(0.2)
    v = tensor(np.random.default_rng(1).normal(size=(d, c)))
    product = (dense + 0.2 * torch.eye(d * c, dtype=torch.float64)) @ v.reshape(-1)
    torch.testing.assert_close(hessian.product(v).reshape(-1), product, rtol=0, atol=1e-10)
    torch.testing.assert_close(hessian.diagonal().reshape(-1), dense.diagonal() + 0.2, rtol=0, atol=1e-10)
    bare = torch.autograd.functional.hessian(lambda v: objective(replace(head, ridge=0.0), v), w).reshape(d * c, d * c)
    assert hessian.mean_diagonal() == pytest.approx(float(bare.diagonal().mean()), abs=1e-12)
    (pearlmutter,) = torch.autograd.grad(
        (torch.autograd.grad(objective(head, leaf), leaf, create_graph=True)[0] * v).sum(), leaf
    )
    torch.testing.assert_close(head.hessian(w).product(v), pearlmutter, rtol=0, atol=1e-10)


@pytest.mark.parametrize("loss", [HeadLoss.SOFTMAX, HeadLoss.LOGISTIC])
def test_the_fisher_diagonal_is_the_mean_of_squared_gradients_of_rows(loss: HeadLoss) -> None:
    """Differentiating each row's loss alone and squaring gives the same numbers."""
    head, w = problem(loss)
    total = torch.zeros_like(w)
    for i in range(head.num_rows):
        leaf = w.clone().requires_grad_()
        row = Head(head.loss, head.z[i : i + 1], head.y[i : i + 1], 0.0)
        (gradient,) = torch.autograd.grad(objective(row, leaf), leaf)
        total += gradient.square() / head.num_rows
    torch.testing.assert_close(head.hessian(w).fisher_diagonal(), total + head.ridge, rtol=0, atol=1e-12)


def test_gradients_and_hessian_are_those_of_the_independent_program() -> None:
    """The global and the local gradient, and the local Hessian, of the golden file."""
    golden = load_golden("newton")
    facts = golden["head"]
    clients = HeadClients.of(list(zip(golden["X"], facts["y"], strict=True)), 3, 0.0)
    w = np.array(facts["W"])
    np.testing.assert_allclose(clients.measure(w).gradient, facts["global_grad"], atol=1e-12)
    local = clients.heads[0]
    np.testing.assert_allclose(local.gradient(tensor(w)).numpy(), facts["grad0"], atol=1e-12)
    hessian = local.hessian(tensor(w)).with_damping(0.01)
    columns = [hessian.product(e.reshape(3, 3).T).T.reshape(-1) for e in torch.eye(9, dtype=torch.float64)]
    np.testing.assert_allclose(torch.stack(columns).numpy(), facts["hessian0"], atol=1e-12)


def test_large_scores_do_not_overflow() -> None:
    """Losses of scores of thousands are finite and exact."""
    s = tensor([[2000.0, -3000.0]])
    assert mean_loss(HeadLoss.SOFTMAX, s, tensor([[0.0, 1.0]])) == pytest.approx(5000.0)
    assert mean_loss(HeadLoss.LOGISTIC, s[:, :1], tensor([[0.0]])) == pytest.approx(2000.0)
    assert mean_loss(HeadLoss.LOGISTIC, -s[:, :1], tensor([[0.0]])) == 0.0
    assert torch.isfinite(probabilities(HeadLoss.SOFTMAX, s)).all()


def test_no_rows_leave_the_ridge() -> None:
    """A client without rows has F = (ridge/2) |W|², and no NaN."""
    head, w = problem(HeadLoss.SOFTMAX)
    empty = head.take(torch.zeros(0, dtype=torch.long))
    value, gradient = empty.value_and_gradient(w)
    assert value == pytest.approx(0.5 * 0.03 * float(w.square().sum()))
    torch.testing.assert_close(gradient, 0.03 * w)
    torch.testing.assert_close(empty.hessian(w).product(w), 0.03 * w)


@pytest.mark.parametrize("loss", HeadLoss)
def test_a_free_bias_makes_the_mean_prediction_that_of_the_targets(loss: HeadLoss) -> None:
    """At the minimum, whatever the ridge; a bias under the ridge does not."""
    head = replace(freed(problem(loss)[0]), ridge=1.0)
    for free in (True, False):
        fitted = replace(head, free_bias=free)
        mean = probabilities(loss, fitted.scores(fit(fitted, tolerance=1e-10))).mean(0)
        assert torch.allclose(mean, head.y.mean(0), rtol=0, atol=1e-7) is free


def test_a_start_predicts_the_pooled_mean() -> None:
    """Log-odds and logarithms of shares; a class without rows starts at a share of 1e-4, not at minus infinity."""
    assert start_scores(HeadLoss.SQUARED, np.array([140.0]))[0] == 140.0
    assert start_scores(HeadLoss.LOGISTIC, np.array([0.021]))[0] == pytest.approx(np.log(0.021 / 0.979))
    shares = np.array([0.2, 0.5, 0.3])
    np.testing.assert_allclose(
        probabilities(HeadLoss.SOFTMAX, tensor([start_scores(HeadLoss.SOFTMAX, shares)]))[0], shares
    )
    assert np.isfinite(start_scores(HeadLoss.SOFTMAX, np.array([0.0, 1.0, 0.0]))).all()
    assert start_scores(HeadLoss.LOGISTIC, np.array([1.0]))[0] == pytest.approx(np.log(9999.0))


@pytest.mark.parametrize("loss", HeadLoss)
def test_fit_finds_the_minimiser(loss: HeadLoss) -> None:
    """The gradient vanishes there."""
    head, _ = problem(loss)
    _, gradient = head.value_and_gradient(fit(head, tolerance=1e-9))
    assert float(gradient.abs().max()) < 1e-6


def test_misfits_are_refused() -> None:
    """Rows that do not fit together, several logistic outputs, and weights that are not finite are errors."""
    with pytest.raises(DataError, match="do not fit together"):
        Head(HeadLoss.SOFTMAX, torch.zeros(3, 2), torch.zeros(4, 2), 0.1)
    with pytest.raises(DataError, match="use softmax"):
        Head(HeadLoss.LOGISTIC, torch.zeros(3, 2), torch.zeros(3, 2), 0.1)
    head, w = problem(HeadLoss.SOFTMAX)
    with pytest.raises(NumericalError, match="lower the step size"):
        head.value_and_gradient(w * float("inf"))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("loss", HeadLoss)
def test_cuda_agrees_with_cpu(loss: HeadLoss) -> None:
    """Losses, gradients and products on CUDA are those of the CPU to 1e-10."""
    head, w = problem(loss, n=500, d=40)
    other = Head(loss, head.z.cuda(), head.y.cuda(), head.ridge)
    assert other.value(w.cuda()) == pytest.approx(head.value(w), rel=1e-12)
    torch.testing.assert_close(other.gradient(w.cuda()).cpu(), head.gradient(w), rtol=0, atol=1e-10)
    torch.testing.assert_close(
        other.hessian(w.cuda()).product(w.cuda()).cpu(), head.hessian(w).product(w), rtol=0, atol=1e-10
    )
