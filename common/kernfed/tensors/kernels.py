"""Exact Gram matrices of the kernels whose feature maps `kernfed.tensors.feature_maps` computes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from kernfed.features.spec import FeatureForm, FeatureSpec, Kernel


def gram(kernel: Kernel, x: Tensor, y: Tensor | None = None, lengthscales: float | Sequence[float] = 1.0) -> Tensor:
    """Compute k(x_i, y_j) for all pairs; `kernfed.features.spec.Kernel` gives the formulas.

    Args:
        kernel: Which kernel.
        x: Points, shape (n, d).
        y: Points, shape (m, d); `x` where not given.
        lengthscales: One for all columns or one per column.

    Returns:
        Gram matrix, shape (n, m), of the type of `x`; computed in float64.

    Source: Rasmussen & Williams (2006), Section 4.2.
    """
    scale = torch.as_tensor(lengthscales, dtype=torch.float64, device=x.device)
    a = x.double().contiguous() / scale
    b = None if y is None else y.double().contiguous() / scale
    if kernel in (Kernel.LINEAR, Kernel.POLYNOMIAL2):
        k = a @ (a if b is None else b).T
        return (k if kernel is Kernel.LINEAR else k.add_(1.0).square_()).to(x.dtype)
    r2 = squared_distances(a, b)
    if kernel is Kernel.GAUSSIAN:
        return r2.mul_(-0.5).exp_().to(x.dtype)
    r = r2.sqrt_()
    if kernel is Kernel.LAPLACE:
        return r.neg_().exp_().to(x.dtype)
    if kernel is Kernel.MATERN32:
        s = r.mul_(math.sqrt(3.0))
        return ((1.0 + s) * torch.exp(-s)).to(x.dtype)
    s = r.mul_(math.sqrt(5.0))
    return ((1.0 + s + s.square() / 3.0) * torch.exp(-s)).to(x.dtype)


def gram_of_spec(spec: FeatureSpec, x: Tensor, y: Tensor | None = None) -> Tensor:
    """Compute the Gram matrix that a feature map approximates: half the kernel for the half-cosine form."""
    k = gram(spec.kernel, x, y, spec.lengthscales)
    return k.mul_(0.5) if spec.form is FeatureForm.HALF_COSINE else k


def squared_distances(x: Tensor, y: Tensor | None = None) -> Tensor:
    """Compute |x_i - y_j|² for all pairs in float64.

    The points are centred before |x|² + |y|² - 2 x·y is formed, so that a common offset does not cancel, and what
    rounding makes negative is 0. The error is about 1e-16 of the points' squared spread, not of the distance.

    Args:
        x: Points, shape (n, d).
        y: Points, shape (m, d); `x` where not given, and the diagonal is then exactly 0.

    Returns:
        Squared distances, shape (n, m), float64.
    """
    a = x.double().contiguous()
    centre = a.mean(dim=0)
    a = a - centre
    b = a if y is None else y.double().contiguous() - centre
    norms = b.square().sum(dim=1)
    r2 = torch.addmm(norms, a, b.T, alpha=-2.0)
    r2.add_((norms if y is None else a.square().sum(dim=1))[:, None]).clamp_(min=0.0)
    if y is None:
        r2.fill_diagonal_(0.0)
    return r2
