"""Packed symmetric matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernfed.errors import InvalidTensorError
from kernfed.maths.triangles import pack, pack_form, packed_size, unpack


@given(st.integers(0, 2**32), st.integers(1, 9))
def test_packing_loses_nothing_and_keeps_inner_products(seed: int, size: int) -> None:
    """unpack(pack(S)) is S, of many at once too, and pack(S) pack_form(Q) is Σ S_ij Q_ij."""
    random = np.random.default_rng(seed)
    s, q = (a + a.T for a in random.normal(size=(2, size, size)))
    assert pack(s).shape == (packed_size(size),)
    assert np.array_equal(unpack(pack(s), size), s)
    assert np.array_equal(unpack(np.array([pack(s), pack(q)]), size), np.array([s, q]))
    np.testing.assert_allclose(pack(s) @ pack_form(q), (s * q).sum(), atol=1e-10)


def test_a_triangle_of_another_size_is_refused() -> None:
    """A peer's array cannot be taken for another matrix."""
    with pytest.raises(InvalidTensorError, match="want 6"):
        unpack(np.zeros(5), 3)
