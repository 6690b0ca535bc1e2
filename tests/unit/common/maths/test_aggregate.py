"""Sums and means of replies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernfed.errors import DataError
from kernfed.federation.messages.data import Standardised
from kernfed.maths.aggregate import SLICE, Weighted, combine_arrays, is_small, total, weighted_mean
from kernfed.methods.ridge.messages import LocalModel

numbers = st.floats(-1e6, 1e6)


@given(st.lists(st.tuples(st.integers(1, 1000), st.lists(numbers, min_size=3, max_size=3)), min_size=1, max_size=6))
def test_mean_is_the_weighted_mean(parts: Any) -> None:
    """By definition, in the order given: Σ (w_j / Σ w) x_j, added left to right in float64."""
    replies = [Weighted(float(n), LocalModel(num_rows=n, weights=np.array(x)[:, None])) for n, x in parts]
    weight = sum(float(n) for n, _ in parts)
    want = np.zeros((3, 1))
    for i, (n, x) in enumerate(parts):
        term = np.array(x)[:, None] * (float(n) / weight)
        want = term if i == 0 else want + term
    mean = weighted_mean(replies)
    np.testing.assert_array_equal(mean.weights, want)
    assert mean.num_rows == sum(n for n, _ in parts)


def test_order_matters_and_is_kept() -> None:
    """Sums are taken in the order given, which shows in their last bits."""
    big, small = np.array([1e16]), np.array([1.0])
    one = combine_arrays([big, small, -big], [1.0, 1.0, 1.0])
    other = combine_arrays([big, -big, small], [1.0, 1.0, 1.0])
    assert (one[0], other[0]) == (0.0, 1.0)


def test_float32_is_summed_in_float64() -> None:
    """Arrays of 32 bits are added in 64."""
    parts = [np.full(5, 1e8, np.float32), np.ones(5, np.float32)]
    out = combine_arrays(parts, [1.0, 1.0])
    assert out.dtype == np.float64
    assert out[0] == 1e8 + 1  # not representable in float32


@pytest.mark.parametrize("size", [1, SLICE - 1, SLICE, SLICE + 1, 3 * SLICE + 7])
@pytest.mark.parametrize("dtype", ["<f8", "<f4"])
def test_memory_maps_equal_memory(tmp_path: Path, size: int, dtype: str) -> None:
    """Mapped files with an odd offset give the bits of arrays in memory, and stay readable afterwards."""
    draw = np.random.default_rng(0)
    arrays = [draw.normal(size=size).astype(dtype) for _ in range(3)]
    mapped = []
    for i, array in enumerate(arrays):
        path = tmp_path / f"{i}"
        path.write_bytes(bytes(64 * (i + 1)) + array.tobytes())
        mapped.append(np.memmap(path, dtype=dtype, mode="r", offset=64 * (i + 1), shape=array.shape))
    weights = [0.5, 0.25, 0.25]
    np.testing.assert_array_equal(combine_arrays(mapped, weights), combine_arrays(arrays, weights))
    for a, m in zip(arrays, mapped, strict=True):
        np.testing.assert_array_equal(a, m)


def test_total() -> None:
    """A total adds rows and numbers of all replies."""
    replies = [Standardised(num_rows=n, median_distance=d) for n, d in [(2, 0.5), (3, 0.25)]]
    assert total(replies) == Standardised(num_rows=5, median_distance=0.75)


def test_zero_weights() -> None:
    """Replies of weight zero count for nothing, and all of them zero is an error."""
    reply = LocalModel(num_rows=0, weights=np.ones((2, 1)))
    with pytest.raises(DataError, match="no client has a training row"):
        weighted_mean([Weighted(0.0, reply), Weighted(0.0, reply)])
    mean = weighted_mean([Weighted(0.0, reply), Weighted(4.0, LocalModel(num_rows=4, weights=np.full((2, 1), 3.0)))])
    np.testing.assert_array_equal(mean.weights, np.full((2, 1), 3.0))


def test_is_small() -> None:
    """Replies are small by their size in bytes."""
    assert is_small([LocalModel(num_rows=1, weights=np.ones((100, 1)))])
    assert not is_small([LocalModel(num_rows=1, weights=np.ones((1 << 14, 1)))] * 2)
