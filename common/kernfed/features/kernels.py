"""The kernels, by name and by formula: those that random features approximate, and those between points.

Neither numpy nor torch is needed here. The Gram matrices are in `kernfed.maths.points.kernels` (numpy) and
`kernfed.tensors.kernels` (torch), and both compute the formulas of this module.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from kernfed.errors import ConfigError, DataError
from kernfed.federation.messages.base import MaxLength, Range

_ROOT3, _ROOT5 = math.sqrt(3.0), math.sqrt(5.0)

BLOCK = 1 << 20
"""Numbers of a Gram matrix computed at a time: temporaries stay below some ten times 8 MiB."""


class Kernel(enum.StrEnum):
    """Kernels of the feature map; ℓ is the lengthscale, per column where several are given.

    Those of the distance are in `RADIAL`. Linear x·x' and polynomial (x·x' + 1)² are mapped exactly, on columns
    divided by ℓ.
    """

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"
    MATERN32 = "matern32"
    MATERN52 = "matern52"
    LINEAR = "linear"
    POLYNOMIAL2 = "polynomial2"


class PointKernel(enum.StrEnum):
    """Kernels k(x, x') that are computed between points; ℓ is the lengthscale, per column where several are given.

    Those of the distance are in `RADIAL`; Wendland's is a kernel for up to three columns. One-plus-min: the product
    over columns of 1 + min(x_i, x'_i)/ℓ_i, for columns that are never below -ℓ_i. `Kernel` is an enum apart, for
    a file may name others at each place, and numbers 5 and 6 of the wire are others; the formulas are shared.
    """

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"
    MATERN32 = "matern32"
    MATERN52 = "matern52"
    ONE_PLUS_MIN = "one-plus-min"
    WENDLAND = "wendland"


EXACT_KERNELS = frozenset({Kernel.LINEAR, Kernel.POLYNOMIAL2})
"""Kernels whose feature map is exact and has nothing random."""
RANDOM_KERNELS = tuple(kernel for kernel in Kernel if kernel not in EXACT_KERNELS)
"""Kernels that are approximated by random frequencies."""
MOST_SQUARE = 8.0
"""Most that the squares of a row's random features sum to: their norm is √2 at most, and so is that of what is
subtracted from them."""


@dataclass(frozen=True, slots=True)
class Radial:
    """A kernel that depends on the distance r = |(x - x')/ℓ| alone."""

    value: Callable[[Any, Callable[[Any], Any]], Any]
    """k(r) for all numbers of an array or tensor, given the exponential of its library."""
    degrees_of_freedom: int | None = None
    """Of the multivariate Student-t distribution that is the kernel's spectral density, 2 ν for Matérn ν (Laplace is
    ν = 1/2); none: that density is normal, or no features are drawn for the kernel."""


def _wendland(r: Any, _exp: Callable[[Any], Any]) -> Any:
    inside = (1.0 - r).clip(0.0)
    square = inside * inside  # a fourth power by pow() takes thirty times as long
    return square * square * (4.0 * r + 1.0)


RADIAL: Mapping[str, Radial] = {
    "gaussian": Radial(lambda r, exp: exp(r * r * -0.5)),
    "laplace": Radial(lambda r, exp: exp(-r), 1),
    "matern32": Radial(lambda r, exp: (1.0 + _ROOT3 * r) * exp(-_ROOT3 * r), 3),
    "matern52": Radial(lambda r, exp: (1.0 + _ROOT5 * r + (5.0 / 3.0) * r * r) * exp(-_ROOT5 * r), 5),
    "wendland": Radial(_wendland),
}
"""By the name that both enumerations share: Gaussian exp(-r²/2), Laplace exp(-r), Matérn 3/2 (1+√3 r)exp(-√3 r), Matérn
5/2 (1+√5 r+5r²/3)exp(-√5 r), Wendland (1-r)⁴(4r+1) for r < 1, else 0."""


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """A kernel between points and its parameters."""

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


@dataclass(frozen=True, slots=True)
class Operations:
    """What a library of arrays gives to a Gram matrix."""

    distances: Callable[[Any, Any], Any]
    """|a_i - b_j| for all pairs, from exact differences, never from |a|² + |b|² - 2 a·b: equal points then have equal
    rows, and the matrix of a set with itself is symmetric to the last bit."""
    exp: Callable[[Any], Any]
    minimum: Callable[[Any, Any], Any]


def check_points(spec: KernelSpec, scaled: Any) -> None:
    """Check that points, their columns divided by the lengthscales, lie where the kernel is one.

    Raises:
        DataError: A column lies below the range of one-plus-min.
    """
    if spec.kernel is PointKernel.ONE_PLUS_MIN and len(scaled) and float(scaled.min()) < -1.0:
        raise DataError(
            "kernel one-plus-min needs columns that are never below -1 lengthscale, and one is; set data.standardise = "
            "false in the job and scale the columns to [0, 1], or use another kernel"
        )


def fill_gram(spec: KernelSpec, a: Any, b: Any, out: Any, by: Operations) -> Any:
    """Compute k for all pairs into `out`, (n, m), block by block; arguments as of `values`. Returns `out`."""
    step = max(1, BLOCK // max(1, len(b)))
    for start in range(0, len(a), step):
        out[start : start + step] = values(spec, a[start : start + step], b, by)
    return out


def values(spec: KernelSpec, a: Any, b: Any, by: Operations) -> Any:
    """Compute k for all pairs of points whose columns are divided by the lengthscales.

    Args:
        spec: The kernel.
        a: Points, shape (n, d), an array or a tensor.
        b: Points, shape (m, d), of the same library.
        by: The operations of that library.

    Returns:
        Shape (n, m).
    """
    if spec.kernel is PointKernel.ONE_PLUS_MIN:
        k = 1.0 + by.minimum(a[:, :1], b[:, 0])
        for i in range(1, a.shape[1]):
            k = k * (1.0 + by.minimum(a[:, i : i + 1], b[:, i]))
    else:
        k = RADIAL[spec.kernel].value(by.distances(a, b), by.exp)
    if spec.intercept:
        k += 1.0
    return k
