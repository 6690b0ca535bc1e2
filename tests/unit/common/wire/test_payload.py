"""Layout of bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernfed.arrays import Array
from kernfed.errors import InvalidTensorError
from kernfed.v1 import tensor_pb2 as pb
from kernfed.wire.payload import ALIGNMENT, Payload, Slot, SlotReader, place, prepared, tensor_to_proto

shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)
arrays = st.lists(
    st.tuples(shapes, st.sampled_from(["<f8", "<f4", "<i8", "u1"])).map(
        lambda s: np.arange(int(np.prod(s[0])), dtype=s[1]).reshape(s[0])
    ),
    max_size=4,
)


@given(arrays)
def test_slots_find_the_numbers(tensors: list[Array]) -> None:
    """What `place` says is where `body` has it, aligned; the reader accepts exactly that."""
    payload = Payload(b"", tuple(tensors))
    body = memoryview(payload.body())
    assert len(body) == payload.body_size
    reader = SlotReader(len(body))
    for array, slot in zip(tensors, place(tensors), strict=True):
        assert slot.offset % ALIGNMENT == 0
        assert reader.read(tensor_to_proto(slot), "t") == slot
        np.testing.assert_array_equal(slot.view(body), array)
        assert not slot.view(body).flags.writeable
    reader.finish("t")


@given(arrays, st.integers(0, 300), st.integers(1, 300))
def test_pieces_are_the_body(tensors: list[Array], offset: int, size: int) -> None:
    """A piece across arrays is that part of the body."""
    payload = Payload(b"", tuple(tensors))
    assert b"".join(payload.piece(offset, size)) == payload.body()[offset : offset + size]


@pytest.mark.parametrize(
    ("array", "bits", "dtype"),
    [
        (np.ones(3, ">f8"), 64, "<f8"),
        (np.ones(3, np.float16), 64, "<f8"),
        (np.ones(3), 32, "<f4"),
        (np.ones(3, np.int32), 64, "<i8"),
        (np.ones(3, np.uint8), 32, "u1"),
        (np.ones((4, 6))[::2, ::3], 64, "<f8"),
    ],
)
def test_prepared(array: Array, bits: int, dtype: str) -> None:
    """An array goes out contiguous, little-endian and with the asked number of bits."""
    sent = prepared(array, bits)
    assert sent.dtype == np.dtype(dtype)
    assert sent.flags.c_contiguous
    np.testing.assert_array_equal(sent, array)


def test_prepared_does_not_copy() -> None:
    """An array that is fit to send is not copied, and one of complex numbers is refused."""
    array = np.ones((3, 2))
    assert prepared(array) is array
    with pytest.raises(InvalidTensorError, match="complex128"):
        prepared(np.ones(2, complex))


def tensor(shape: Sequence[int], offset: int = 0, code: Any = pb.ELEMENT_TYPE_FLOAT64) -> pb.Tensor:
    return pb.Tensor(element_type=code, shape=shape, offset=offset)


@pytest.mark.parametrize(
    ("message", "match"),
    [
        (tensor([2**62]), "out of bounds"),
        (tensor([2**20, 2**20, 2**20]), "out of bounds"),
        (tensor([2**63, 0]), "out of bounds"),
        (tensor([2**39, 0, 2**39]), "out of bounds"),
        (tensor([1] * 9), "out of bounds"),
        (tensor([3]), "needs 24 bytes, the body has 16"),
        (tensor([2], offset=64), "lies at byte 64"),
        (tensor([2], offset=1), "lies at byte 1"),
        (tensor([2], code=0), "unknown element type 0"),
        (tensor([2], code=77), "unknown element type 77"),
    ],
)
def test_hostile_tensors(message: pb.Tensor, match: str) -> None:
    """An array that claims an impossible shape, place or type is refused."""
    with pytest.raises(InvalidTensorError, match=match):
        SlotReader(16).read(message, "t")


def test_left_over_bytes() -> None:
    """Bytes that no array claims are refused."""
    reader = SlotReader(16)
    reader.read(tensor([1]), "t")
    with pytest.raises(InvalidTensorError, match="its tensors fill 8"):
        reader.finish("t")


@given(st.lists(st.integers(0, 2**64 - 1), max_size=10), st.integers(0, 64), st.integers(0, 2**20))
def test_any_accepted_shape_can_be_made(shape: Sequence[int], offset: int, body_size: int) -> None:
    """A tensor that the reader lets pass is one that numpy can hold."""
    try:
        slot = SlotReader(body_size).read(tensor(shape, offset), "t")
    except InvalidTensorError:
        return
    assert Slot(slot.dtype, slot.shape, 0).view(memoryview(bytes(slot.num_bytes))).shape == tuple(shape)
