"""A client's part of a round of the first-order methods on a head: gradient steps with momentum, FedSophia's steps.

The order of batches comes from a seed, so the same request gives the same bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from kernfed import rng
from kernfed.arrays import Integers
from kernfed.errors import DivergedError
from kernfed.maths.batches import batches
from kernfed.methods.heads.losses import FACTS
from kernfed.methods.heads.tensors.losses import Head

_TINY = 1e-15
"""ε of FedSophia's ratio; far below any curvature that counts."""


def descend(
    head: Head,
    w: Tensor,
    *,
    learning_rate: float,
    momentum: float = 0.0,
    num_epochs: int = 1,
    batch_size: int = 0,
    proximal: float = 0.0,
    seed: int = 0,
    block: Integers | None = None,
) -> Tensor:
    """Run stochastic gradient descent with momentum on F(V) + (proximal/2) |V - W|², from V = W.

    Args:
        head: The client's problem.
        w: W, shape (D, C); not changed.
        learning_rate: Step size.
        momentum: m of the buffer b ← m b + gradient, by which V moves; it starts at 0 in every call.
        num_epochs: Passes over the rows, each in a new order; as many steps as batches of `batch_size` rows have.
        batch_size: Rows per step; 0: all rows.
        proximal: Weight of the proximal term; 0 for FedAvg.
        seed: Of the orders.
        block: Number of each row's block, none of which a batch divides; unset: rows are drawn one by one.

    Returns:
        V, shape (D, C).

    Raises:
        DivergedError: V left the range of numbers.

    Source: McMahan et al. (2017), Algorithm 1; Li et al. (2020), Algorithm 2, for the proximal term.
    """
    v, buffer = w.clone(), torch.zeros_like(w)
    for batch in _batches(head, num_epochs, batch_size, seed, block):
        gradient = batch.gradient(v)
        if proximal:
            gradient.add_(v - w, alpha=proximal)
        buffer.mul_(momentum).add_(gradient)
        v.sub_(buffer, alpha=learning_rate)
    return _finite(v, learning_rate)


def sophia(
    head: Head,
    w: Tensor,
    *,
    learning_rate: float,
    momentum: float = 0.9,
    curvature_momentum: float = 0.99,
    clip: float = 0.04,
    curvature_every: int = 10,
    unit: float = 1.0,
    num_epochs: int = 1,
    batch_size: int = 0,
    seed: int = 0,
    block: Integers | None = None,
) -> Tensor:
    """Run FedSophia's local steps: V moves by learning_rate · unit · clamp(m / unit / max(clip · h, ε), -1, 1).

    m is a moving average of gradients. h is one of Gauss-Newton-Bartlett estimates of the Hessian's diagonal: the
    batch's size times the square of its mean gradient at labels drawn from the model itself (squared loss: the diagonal
    itself). Both start at 0 in every call, the first estimate counting whole.

    Args:
        head: The client's problem.
        w: Where to start, shape (D, C); not changed.
        learning_rate: Most that a coordinate moves in a step, in units of the targets.
        momentum: β1.
        curvature_momentum: β2.
        clip: ρ.
        curvature_every: Steps between estimates.
        unit: That of the targets, above 0: targets times c and `unit` times c give V times c.
        num_epochs: Passes over the rows.
        batch_size: Rows per step; 0: all rows.
        seed: Of batches and drawn labels.
        block: As of `descend`.

    Raises:
        DivergedError: V left the range of numbers.

    Source: Elbakary et al. (2024), Algorithm 1; Liu et al. (2024), Algorithm 3, for the estimator.
    """
    v, m = w.clone(), torch.zeros_like(w)
    h: Tensor | None = None
    labels = rng.stream(seed, "head", "labels")
    for step, batch in enumerate(_batches(head, num_epochs, batch_size, seed, block)):
        m.mul_(momentum).add_(batch.gradient(v), alpha=1.0 - momentum)
        if step % curvature_every == 0:
            estimate = bartlett_diagonal(batch, v, labels)
            h = estimate if h is None else h.mul_(curvature_momentum).add_(estimate, alpha=1.0 - curvature_momentum)
        assert h is not None  # noqa: S101  # the first step makes one
        v.sub_((m / unit / (clip * h).clamp_min(_TINY)).clamp_(-1.0, 1.0), alpha=learning_rate * unit)
    return _finite(v, learning_rate)


def bartlett_diagonal(head: Head, w: Tensor, labels: rng.Stream) -> Tensor:
    """Estimate the diagonal of the Hessian, ridge included, by labels drawn from the model; shape (D, C).

    Classes are counted in the order in which rows show them, so that another order of the job's classes draws the same.
    """
    hessian = head.hessian(w)
    if hessian.row_curvature() is None:
        return hessian.diagonal()
    p = hessian.p
    u = torch.as_tensor(labels.uniform(len(p)), dtype=p.dtype, device=p.device)[:, None]
    if FACTS[head.loss].one_output:
        first_is_positive = len(p) > 0 and bool(head.y[0, 0] > 0)
        drawn = (u >= 1.0 - p if first_is_positive else u < p).to(p.dtype)
    else:
        order = _classes_as_shown(head.y, p)
        index = (u > p[:, order].cumsum(1)).sum(1, keepdim=True).clamp_max(p.shape[1] - 1)
        drawn = torch.zeros_like(p).scatter_(1, order[index], 1.0)
    n = max(len(p), 1)
    mean = head.z.T @ (p - drawn) / n
    estimate = mean.square_().mul_(n).add_(head.ridge)
    if head.free_bias:
        estimate[-1].sub_(head.ridge)
    return estimate


def _classes_as_shown(y: Tensor, p: Tensor) -> Tensor:
    """The classes by the first row of each, shape (C,); those without a row follow, by their probabilities."""
    first = (y.cumsum(0) == 0).sum(0).tolist()
    total = p.sum(0).tolist()
    return torch.tensor(sorted(range(len(first)), key=lambda c: (first[c], total[c])), device=p.device)


def _batches(head: Head, num_epochs: int, batch_size: int, seed: int, block: Integers | None) -> Iterator[Head]:
    n = head.num_rows
    if batch_size == 0 or batch_size >= n:
        yield from itertools.repeat(head, num_epochs)
        return
    left = num_epochs * -(-n // batch_size)  # blocks may make batches larger, and no training shorter
    for rows in batches(rng.stream(seed, "head", "batches"), n, batch_size, block):
        if not left:
            return
        left -= 1
        yield head.take(torch.from_numpy(rows).to(head.z.device))


def _finite(v: Tensor, learning_rate: float) -> Tensor:
    if not bool(torch.isfinite(v).all()):
        raise DivergedError(
            f"local steps of learning rate {learning_rate:g} left the range of numbers; lower method.learning_rate"
        )
    return v
