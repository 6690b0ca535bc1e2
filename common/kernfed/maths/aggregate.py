"""Sums and means of replies: in the order given (client names), slice by slice, in float64.

Arrays may be memory-mapped files: a slice that has been added is dropped from memory, so that the mean of ten
models needs the memory of one accumulator.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic

import numpy as np

from kernfed.arrays import Array
from kernfed.errors import DataError
from kernfed.federation.messages.base import R, Reply, fields_of

SLICE = 1 << 17
"""Numbers added at a time: 1 MiB of float64."""


@dataclass(frozen=True, slots=True)
class Weighted(Generic[R]):
    """A reply and its weight in a mean, e.g. its number of training rows."""

    weight: float
    reply: R


INLINE_NUMBERS = 1 << 15
"""Replies with fewer numbers are combined on the spot; a thread would cost more than it frees the event loop."""


def is_small(replies: Sequence[Reply]) -> bool:
    """Whether combining replies takes less than a change of threads."""
    sizes = (v.size for r in replies for f in fields_of(type(r)) if isinstance(v := getattr(r, f.name), np.ndarray))
    return sum(sizes) < INLINE_NUMBERS


def weighted_mean(parts: Sequence[Weighted[R]]) -> R:
    """Mean of replies: float arrays and floats are averaged by weight, integers summed, the rest taken from the first.

    Raises:
        DataError: The weights sum to 0.
    """
    weight = sum(p.weight for p in parts)
    if not weight > 0:
        raise DataError("no client has a training row for this mean; check the clients' data sets")
    return _combine([p.reply for p in parts], [p.weight / weight for p in parts])


def total(replies: Sequence[R]) -> R:
    """Sum of replies: arrays, floats and integers are added, the rest taken from the first."""
    return _combine(replies, [1.0] * len(replies))


def _combine(replies: Sequence[R], weights: Sequence[float]) -> R:
    first = replies[0]
    values: dict[str, Any] = {}
    for f in fields_of(type(first)):
        column = [getattr(r, f.name) for r in replies]
        if f.type is np.ndarray:
            values[f.name] = combine_arrays(column, weights)
        elif f.type is float:
            values[f.name] = sum(w * v for w, v in zip(weights, column, strict=True))
        elif f.type is int:
            values[f.name] = sum(column)
    return replace(first, **values)


def combine_arrays(arrays: Sequence[Array], weights: Sequence[float]) -> Array:
    """Σ weight · array in float64, added in the order given.

    Args:
        arrays: Of one shape; may be memory-mapped.
        weights: One per array.
    """
    if arrays[0].size <= SLICE and not any(isinstance(a, np.memmap) for a in arrays):
        small: Array = np.multiply(arrays[0], weights[0], dtype=np.float64)
        for array, weight in zip(arrays[1:], weights[1:], strict=True):
            small += np.multiply(array, weight, dtype=np.float64)
        return small
    out = np.empty(arrays[0].shape, dtype=np.float64)
    flat = out.reshape(-1)
    sources = [a.reshape(-1) for a in arrays]
    scratch = np.empty(min(SLICE, flat.size))
    for start in range(0, flat.size, SLICE):
        target = flat[start : start + SLICE]
        part = scratch[: target.size]
        for i, (source, weight) in enumerate(zip(sources, weights, strict=True)):
            piece = source[start : start + SLICE]
            if i == 0:
                np.multiply(piece, weight, out=target, dtype=np.float64)
            else:
                np.multiply(piece, weight, out=part, dtype=np.float64)
                target += part
        for array in arrays:
            _forget(array, start, target.size)
    return out


def norm(array: Array) -> float:
    """Euclidean norm of an array's numbers in float64; infinity where their squares exceed the range of numbers.

    Args:
        array: Of floats; may be memory-mapped.
    """
    flat = array.reshape(-1)
    squares = 0.0
    with np.errstate(over="ignore"):
        for start in range(0, flat.size, SLICE):
            piece = flat[start : start + SLICE].astype(np.float64, copy=False)
            squares += float(np.einsum("i,i->", piece, piece))  # a product by BLAS would wake threads that then spin
            _forget(array, start, piece.size)
    return float(np.sqrt(squares))


def _forget(array: Array, start: int, size: int) -> None:
    """Let the kernel drop the pages of a slice of a memory-mapped array; a no-op for others."""
    if not isinstance(array, np.memmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    mapped = array._mmap  # type: ignore[attr-defined]  # numpy documents the attribute but not its type
    page = mmap.PAGESIZE
    base = array.offset % mmap.ALLOCATIONGRANULARITY
    first = (base + start * array.itemsize) // page * page
    last = min(base + (start + size) * array.itemsize, len(mapped)) // page * page
    if last > first:
        mapped.madvise(mmap.MADV_DONTNEED, first, last - first)
