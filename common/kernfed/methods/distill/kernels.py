"""Kernels between points, without random features: what distillation by kernel ridge regression computes with.

The coordinator needs them too, so this module loads torch only where it is given tensors.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from kernfed.errors import ConfigError, DataError
from kernfed.federation.messages.base import MaxLength, Range

if TYPE_CHECKING:
    from torch import Tensor


_BLOCK = 1 << 20
"""Numbers of a Gram matrix computed at a time: temporaries stay below some ten times 8 MiB."""

_ROOT3, _ROOT5 = math.sqrt(3.0), math.sqrt(5.0)


class PointKernel(enum.StrEnum):
    """Kernels k(x, x'); ℓ is the lengthscale, per column where several are given, and r = |(x - x')/ℓ|.

    Gaussian exp(-r²/2), Laplace exp(-r), Matérn 3/2 (1+√3 r)exp(-√3 r), Matérn 5/2 (1+√5 r+5r²/3)exp(-√5 r).
    One-plus-min: the product over columns of 1 + min(x_i, x'_i)/ℓ_i, for columns that are never below -ℓ_i.
    Wendland: (1-r)⁴(4r+1) for r < 1, else 0, for up to three columns.
    """

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"
    MATERN32 = "matern32"
    MATERN52 = "matern52"
    ONE_PLUS_MIN = "one-plus-min"
    WENDLAND = "wendland"


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """A kernel and its parameters."""

    kernel: PointKernel
    lengthscales: Annotated[tuple[float, ...], MaxLength(1_000_000), Range(1e-300)]
    """One for all columns, or one per column."""
    intercept: bool
    """Whether 1 is added to the kernel: constant functions are then in its space."""


def check_kernel(spec: KernelSpec, num_columns: int) -> None:
    """Check that a kernel is one on points of so many columns.

    Raises:
        ConfigError: Names the key of the job's `method` section that is wrong.
    """
    if len(spec.lengthscales) not in (1, num_columns):
        raise ConfigError(
            f"method.lengthscale has {len(spec.lengthscales)} numbers for {num_columns} columns; give one number, or "
            "one per feature column"
        )
    for scale in spec.lengthscales:
        if not (math.isfinite(scale) and scale > 0):
            raise ConfigError(f"method.lengthscale holds {scale}; give positive finite numbers")
    if spec.kernel is PointKernel.WENDLAND and num_columns > 3:
        raise ConfigError(
            f"method.kernel wendland on {num_columns} columns is not positive definite, for it is so up to 3; use "
            "matern52, which is about as smooth"
        )


def check_alpha(alpha: float) -> None:
    """Refuse weights of own rows at the ends.

    Raises:
        ConfigError: Tells what the end would mean.
    """
    if not alpha > 0.0:
        raise ConfigError(
            f"method.alpha is {alpha:g}: at 0 a client's own rows would not count, and all models would be one copy of "
            "the consensus; give a number above 0, the usual one is 1/clients"
        )
    if not alpha < 1.0:
        raise ConfigError(
            f"method.alpha is {alpha:g}: at 1 the public points would not count, which is method local; give a number "
            "below 1, the usual one is 1/clients"
        )


def gram(spec: KernelSpec, x: Any, y: Any = None, *, out: Any = None) -> Any:
    """Compute k(x_i, y_j) for all pairs, block by block, from exact differences.

    Differences are formed column by column (no |x|² + |y|² - 2 x·y), so equal points have equal rows, and the matrix
    of a set with itself is symmetric to the last bit.

    Args:
        spec: The kernel.
        x: Points, float64 (n, d), a numpy array or a tensor.
        y: Points, (m, d), of the same sort; `x` where not given.
        out: Where to write, float64 (n, m); new memory where not given. Beside it some blocks of bounded size.

    Returns:
        Gram matrix, float64 (n, m), of the sort and device of `x`.

    Raises:
        ConfigError: The kernel is none on so many columns.
        DataError: A column lies below the range of one-plus-min.

    Source: Rasmussen & Williams (2006), Section 4.2; one-plus-min and Wendland as in Lin, Wang & Zhou (2020).
    """
    y = x if y is None else y
    if out is None:
        out = x.new_empty((len(x), len(y))) if _is_tensor(x) else np.empty((len(x), len(y)))
    a, b = _scaled(spec, x), _scaled(spec, y)
    step = max(1, _BLOCK // max(1, len(y)))
    for start in range(0, len(x), step):
        out[start : start + step] = _values(spec, a[start : start + step], b)
    return out


def lower_gram(spec: KernelSpec, x: Tensor, out: Tensor) -> Tensor:
    """Compute the lower triangle of the Gram matrix of `x` with itself, (n, n), for factors that read no more.

    What lies above the diagonal of `out` is not defined afterwards.
    """
    a = _scaled(spec, x)
    step = max(1, _BLOCK // max(1, len(x)))
    for start in range(0, len(x), step):
        end = min(start + step, len(x))
        out[start:end, :end] = _values(spec, a[start:end], a[:end])
    return out


def _values(spec: KernelSpec, a: Any, b: Any) -> Any:
    if spec.kernel is PointKernel.ONE_PLUS_MIN:
        values = _one_plus_min(a, b)
    else:
        values = _of_distance(spec.kernel, _distances(a, b))
    if spec.intercept:
        values += 1.0
    return values


def _scaled(spec: KernelSpec, x: Any) -> Any:
    check_kernel(spec, x.shape[1])
    if _is_tensor(x):
        a = x / x.new_tensor(spec.lengthscales)
    else:
        a = np.ascontiguousarray(x, dtype=np.float64) / np.asarray(spec.lengthscales)
    if spec.kernel is PointKernel.ONE_PLUS_MIN and len(a) and float(a.min()) < -1.0:
        raise DataError(
            "kernel one-plus-min needs columns that are never below -1 lengthscale, and one is; set data.standardise = "
            "false in the job and scale the columns to [0, 1], or use another kernel"
        )
    return a


def _distances(a: Any, b: Any) -> Any:
    if _is_tensor(a):
        import torch

        return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
    from scipy.spatial.distance import cdist

    return cdist(a, b)


def _of_distance(kernel: PointKernel, r: Any) -> Any:
    def exponential(t: Any) -> Any:
        return t.exp() if _is_tensor(t) else np.exp(t)

    if kernel is PointKernel.GAUSSIAN:
        return exponential(r * r * -0.5)
    if kernel is PointKernel.LAPLACE:
        return exponential(-r)
    if kernel is PointKernel.MATERN32:
        return (1.0 + _ROOT3 * r) * exponential(-_ROOT3 * r)
    if kernel is PointKernel.MATERN52:
        return (1.0 + _ROOT5 * r + (5.0 / 3.0) * r * r) * exponential(-_ROOT5 * r)
    inside = (1.0 - r).clip(0.0)
    square = inside * inside  # a fourth power by pow() takes thirty times as long
    return square * square * (4.0 * r + 1.0)


def _one_plus_min(a: Any, b: Any) -> Any:
    values: Any = None
    for i in range(a.shape[1]):
        left, right = a[:, i : i + 1], b[:, i]
        factor = 1.0 + (left.minimum(right) if _is_tensor(a) else np.minimum(left, right))
        values = factor if values is None else values * factor
    return values


def _is_tensor(x: Any) -> bool:
    return not isinstance(x, np.ndarray)
