"""Gram matrices of kernels between points, with numpy alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernfed.arrays import Floats
from kernfed.features.kernels import KernelSpec, Operations, check_kernel, check_points, fill_gram


def gram(spec: KernelSpec, x: Floats, y: Floats | None = None) -> Floats:
    """Compute k(x_i, y_j) for all pairs, block by block.

    Args:
        spec: The kernel.
        x: Points, shape (n, d).
        y: Points, shape (m, d); `x` where not given.

    Returns:
        Gram matrix, shape (n, m). Beside it some blocks of bounded size are in memory.

    Raises:
        ConfigError: The kernel is none on so many columns.
        DataError: A column lies below the range of one-plus-min.

    Source: Rasmussen & Williams (2006), Section 4.2; one-plus-min and Wendland as in Lin, Wang & Zhou (2020).
    """
    a = _scaled(spec, x)
    b = a if y is None else _scaled(spec, y)
    gram: Floats = fill_gram(spec, a, b, np.empty((len(a), len(b))), _NUMPY)
    return gram


def _scaled(spec: KernelSpec, x: Floats) -> Floats:
    check_kernel(spec, x.shape[1])
    a: Floats = np.ascontiguousarray(x, dtype=np.float64) / np.asarray(spec.lengthscales)
    check_points(spec, a)
    return a


def _distances(a: Floats, b: Floats) -> Any:
    from scipy.spatial.distance import cdist  # noqa: PLC0415  # takes a quarter second of the coordinator's start

    return cdist(a, b)


_NUMPY = Operations(_distances, np.exp, np.minimum)
