"""Gram matrices of kernels between points, on CPU or CUDA."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from kernfed.features.kernels import BLOCK, KernelSpec, Operations, check_kernel, check_points, fill_gram, values

_TORCH = Operations(partial(torch.cdist, compute_mode="donot_use_mm_for_euclid_dist"), torch.exp, torch.minimum)


def gram(spec: KernelSpec, x: Tensor, y: Tensor | None = None) -> Tensor:
    """Compute k(x_i, y_j) for all pairs, block by block, as `kernfed.maths.points.kernels.gram` does.

    Args:
        spec: The kernel.
        x: Points, shape (n, d).
        y: Points, shape (m, d); `x` where not given.

    Returns:
        Gram matrix, shape (n, m), of the type and device of `x`. Beside it some blocks of bounded size are in memory.

    Raises:
        ConfigError: The kernel is none on so many columns.
        DataError: A column lies below the range of one-plus-min.
    """
    a = _scaled(spec, x)
    b = a if y is None else _scaled(spec, y)
    filled: Tensor = fill_gram(spec, a, b, x.new_empty((len(a), len(b))), _TORCH)
    return filled


def lower_gram(spec: KernelSpec, x: Tensor, out: Tensor) -> Tensor:
    """Compute the lower triangle of the Gram matrix of `x` with itself, (n, n), for factors that read no more.

    What lies above the diagonal of `out` is not defined afterwards.
    """
    a = _scaled(spec, x)
    step = max(1, BLOCK // max(1, len(x)))
    for start in range(0, len(x), step):
        end = min(start + step, len(x))
        out[start:end, :end] = values(spec, a[start:end], a[:end], _TORCH)
    return out


def _scaled(spec: KernelSpec, x: Tensor) -> Tensor:
    check_kernel(spec, x.shape[1])
    a = x / x.new_tensor(spec.lengthscales)
    check_points(spec, a)
    return a
