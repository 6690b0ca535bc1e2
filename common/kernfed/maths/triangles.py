"""Symmetric matrices as their upper triangles, row by row: half the numbers on the wire and in memory."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from kernfed.arrays import Floats
from kernfed.errors import InvalidTensorError


def packed_size(size: int) -> int:
    """Numbers in the triangle of a (size, size) matrix."""
    return size * (size + 1) // 2


def pack(matrix: Floats) -> Floats:
    """Take the upper triangle of a symmetric matrix, shape (p, p), as a vector of p (p + 1)/2 numbers."""
    triangle: Floats = matrix[_indices(matrix.shape[0])]
    return triangle


def unpack(triangle: Floats, size: int) -> Floats:
    """Make the symmetric matrix, shape (size, size), of its upper triangle.

    Raises:
        InvalidTensorError: The triangle is that of another size.
    """
    if triangle.shape != (packed_size(size),):
        raise InvalidTensorError(
            f"a triangle of shape {triangle.shape} for a matrix of size {size}, want {packed_size(size)}"
        )
    rows, columns = _indices(size)
    matrix = np.empty((size, size))
    matrix[rows, columns] = triangle
    matrix[columns, rows] = triangle
    return matrix


def pack_form(matrix: Floats) -> Floats:
    """Weigh a symmetric matrix Q, shape (p, p): its product with `pack` of S is then Σ_ij S_ij Q_ij."""
    return pack(2.0 * matrix - np.diag(matrix.diagonal()))


@functools.lru_cache(maxsize=4)
def _indices(size: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Rows and columns of the triangle's entries; cross-fitting asks for the same some thousand times."""
    return np.triu_indices(size)
