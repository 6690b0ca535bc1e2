"""Symmetric matrices as their upper triangles, row by row: half the numbers on the wire and in memory."""

from __future__ import annotations

import functools

import numpy as np

from kernfed.arrays import Floats, Integers
from kernfed.errors import InvalidTensorError


def packed_size(size: int) -> int:
    """Numbers in the triangle of a (size, size) matrix."""
    return size * (size + 1) // 2


def pack(matrix: Floats) -> Floats:
    """Take the upper triangle of a symmetric matrix, shape (p, p), as a vector of p (p + 1)/2 numbers."""
    triangle: Floats = matrix.take(_places(matrix.shape[0]))
    return triangle


def unpack(triangle: Floats, size: int) -> Floats:
    """Make the symmetric matrix, shape (size, size), of its upper triangle; of many, shape (..., p (p + 1)/2), too.

    Raises:
        InvalidTensorError: The triangle is that of another size.
    """
    if triangle.shape[-1:] != (packed_size(size),):
        raise InvalidTensorError(
            f"a triangle of shape {triangle.shape} for a matrix of size {size}, want {packed_size(size)}"
        )
    matrix: Floats = np.asarray(triangle, np.float64).take(_sources(size), axis=-1)
    return matrix


def pack_form(matrix: Floats) -> Floats:
    """Weigh a symmetric matrix Q, shape (p, p): its product with `pack` of S is then Σ_ij S_ij Q_ij."""
    triangle = 2.0 * pack(matrix)
    triangle[_sources(matrix.shape[0]).diagonal()] = matrix.diagonal()
    return triangle


@functools.lru_cache(maxsize=4)
def _places(size: int) -> Integers:
    """Where the triangle's entries stand in the flat matrix; cross-fitting asks for the same some thousand times."""
    rows, columns = np.triu_indices(size)
    places: Integers = rows * size + columns
    return places


@functools.lru_cache(maxsize=4)
def _sources(size: int) -> Integers:
    """Where the matrix's entries stand in the triangle, shape (size, size)."""
    sources = np.empty((size, size), dtype=np.int64)
    rows, columns = np.triu_indices(size)
    sources[rows, columns] = sources[columns, rows] = np.arange(len(rows))
    return sources
