"""A payload: a typed protobuf header, and a body that holds the numbers of its tensors, never copied on the way.

Layout of the body: tensors in field order, each at the next multiple of `ALIGNMENT`. Offsets in the header only
repeat what the layout says, and are checked against it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernfed.arrays import Array
from kernfed.errors import InvalidTensorError
from kernfed.v1 import tensor_pb2 as pb

ALIGNMENT = 64
CHUNK_BYTES = 1 << 20
"""Largest piece of a body in one frame: 64 KiB doubles the time, 16 MiB only adds memory."""
INLINE_BYTES = 64 << 10
"""Bodies up to this size ride in the frame of their header."""
MAX_HEADER_BYTES = 4 << 20
MAX_RANK = 8
MAX_NUMBERS = 1 << 40

_ELEMENT_TYPE: dict[np.dtype[Any], pb.ElementType.ValueType] = {
    np.dtype("<f8"): pb.ELEMENT_TYPE_FLOAT64,
    np.dtype("<f4"): pb.ELEMENT_TYPE_FLOAT32,
    np.dtype("<i8"): pb.ELEMENT_TYPE_INT64,
    np.dtype("u1"): pb.ELEMENT_TYPE_UINT8,
}
_DTYPE: dict[int, np.dtype[Any]] = {int(code): dtype for dtype, code in _ELEMENT_TYPE.items()}


def aligned(offset: int) -> int:
    """The next multiple of `ALIGNMENT`."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor's place in a body."""

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    offset: int

    @property
    def num_bytes(self) -> int:
        """Size of its numbers in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def view(self, body: memoryview) -> Array:
        """The tensor inside `body`, read-only and without a copy."""
        flat = np.frombuffer(body[self.offset : self.offset + self.num_bytes], dtype=self.dtype)
        array = flat.reshape(self.shape)
        array.flags.writeable = False
        return array


@dataclass(frozen=True, slots=True)
class Payload:
    """A message ready to be sent: header bytes, and its tensors where they already lie in memory."""

    header: bytes
    arrays: tuple[Array, ...]

    @property
    def body_size(self) -> int:
        """Size of the body in bytes."""
        end = 0
        for array in self.arrays:
            end = aligned(end) + array.nbytes
        return end

    def piece(self, offset: int, size: int) -> list[memoryview]:
        """The memory that makes up bytes [offset, offset + size) of the body."""
        parts: list[memoryview] = []
        start = 0
        for part in self.segments():
            if start >= offset + size:
                break
            if start + len(part) > offset:
                parts.append(part[max(offset - start, 0) : offset + size - start])
            start += len(part)
        return parts

    def segments(self) -> Iterator[memoryview]:
        """The memory of the body in order, gaps between tensors included."""
        end = 0
        for array in self.arrays:
            gap = aligned(end) - end
            if gap:
                yield memoryview(bytes(gap))
            if array.nbytes:
                yield array.reshape(-1).view(np.uint8).data
            end += gap + array.nbytes

    def body(self) -> bytes:
        """The whole body in one piece, for small payloads and for files."""
        return b"".join(self.segments())


def prepared(array: Array, float_bits: int = 64) -> Array:
    """`array` as it is sent: little-endian, row-major, floats of the asked size."""
    dtype = array.dtype
    if dtype.kind == "f":
        dtype = np.dtype("<f4" if float_bits == 32 else "<f8")
    elif dtype.kind in "iu" and dtype != np.dtype("u1"):
        dtype = np.dtype("<i8")
    if dtype not in _ELEMENT_TYPE:
        raise InvalidTensorError(f"tensors of type {array.dtype} are not sent; use float64, float32, int64 or uint8")
    return np.ascontiguousarray(array, dtype=dtype)


def place(arrays: Iterable[Array]) -> Iterator[Slot]:
    """Slots of `arrays` in a body, in order."""
    end = 0
    for array in arrays:
        slot = Slot(array.dtype, array.shape, aligned(end))
        end = slot.offset + slot.num_bytes
        yield slot


def tensor_to_proto(slot: Slot) -> pb.Tensor:
    """The header's entry for a tensor."""
    return pb.Tensor(element_type=_ELEMENT_TYPE[slot.dtype], shape=slot.shape, offset=slot.offset)


class SlotReader:
    """Reads a header's tensors in field order and checks that they fill the body exactly."""

    def __init__(self, body_size: int) -> None:
        self._body_size = body_size
        self._end = 0

    def read(self, tensor: pb.Tensor, where: str) -> Slot:
        """The slot of the next tensor.

        Raises:
            InvalidTensorError: Unknown type, too many axes, misplaced, or beyond the body.
        """
        dtype = _DTYPE.get(tensor.element_type)
        if dtype is None:
            raise InvalidTensorError(f"{where}: unknown element type {tensor.element_type}")
        shape = tuple(tensor.shape)
        # Without its empty axes, for numpy counts the strides of the others even where the tensor has no number.
        if len(shape) > MAX_RANK or math.prod(size or 1 for size in shape) > MAX_NUMBERS:
            raise InvalidTensorError(f"{where}: shape {shape[:MAX_RANK]} is out of bounds")
        slot = Slot(dtype, shape, tensor.offset)
        if slot.offset != aligned(self._end):
            raise InvalidTensorError(f"{where}: lies at byte {slot.offset}, want {aligned(self._end)}")
        self._end = slot.offset + slot.num_bytes
        if self._end > self._body_size:
            raise InvalidTensorError(f"{where}: shape {shape} needs {self._end} bytes, the body has {self._body_size}")
        return slot

    def finish(self, where: str) -> None:
        """Check that no byte is left over.

        Raises:
            InvalidTensorError: The body is longer than its tensors.
        """
        if self._end != self._body_size:
            raise InvalidTensorError(f"{where}: body of {self._body_size} bytes, its tensors fill {self._end}")
