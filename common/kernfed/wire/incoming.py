"""Bodies on their way in: checked against what their header declared, placed once, in memory or in a file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from kernfed.arrays import Array
from kernfed.errors import InvalidTensorError, PayloadTooLargeError, WireError
from kernfed.federation.messages.base import Dims, Message, all_finite
from kernfed.v1 import task_pb2
from kernfed.wire.codec import Header, decode_header
from kernfed.wire.frames import FragmentView
from kernfed.wire.payload import ALIGNMENT


class IncomingPayload:
    """A payload whose header is read and whose body may still be on its way.

    Args:
        cls: Message that the payload must be.
        proto: What the frame holds of it.
        max_body_bytes: Largest body accepted; checked before a byte of it is kept.
        dims: Shape symbols already bound.
        spool: File for a body that does not fit in memory; None keeps it in memory.

    Raises:
        WireError: Malformed or too large.
        InvalidTensorError: Tensors do not fill the body.
    """

    def __init__(
        self, cls: type[Message], proto: task_pb2.Payload, max_body_bytes: int, dims: Dims, spool: Path | None = None
    ) -> None:
        size = proto.body_size
        if size > max_body_bytes:
            raise PayloadTooLargeError(
                f"{cls.__name__}: body of {size} bytes, at most {max_body_bytes} are accepted; raise max_body_bytes"
            )
        self._header: Header = decode_header(cls, proto.header, size)
        self._dims = dims
        self._size = size
        self._received = 0
        self._spool = spool
        self._file: int | None = None
        self._buffer: np.ndarray[tuple[int], np.dtype[np.uint8]] | None = None
        if proto.transfer == 0:
            if len(proto.inline_body) != size:
                raise WireError(f"{cls.__name__}: {len(proto.inline_body)} bytes inline, {size} declared")
            self._buffer = np.frombuffer(proto.inline_body, dtype=np.uint8)
            self._received = size
        elif spool is None:
            self._buffer = np.empty(size, dtype=np.uint8)
        else:
            self._file = os.open(spool, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)

    @property
    def size(self) -> int:
        """Declared size of the body in bytes."""
        return self._size

    @property
    def missing(self) -> int:
        """Bytes of the body that have not arrived."""
        return self._size - self._received

    @property
    def complete(self) -> bool:
        """Whether every byte has arrived."""
        return self._received == self._size

    @property
    def spooled(self) -> bool:
        """Whether the body goes to a file, so that `add` blocks on the disk."""
        return self._spool is not None

    def add(self, fragment: FragmentView) -> None:
        """Place the next piece of the body.

        Raises:
            WireError: Out of order, beyond the declared size, or cut through a number.
            InvalidTensorError: NaN or infinity (spooled bodies only; others are checked when complete).
        """
        size = len(fragment.data)
        if fragment.offset != self._received or size == 0 or self._received + size > self._size:
            raise WireError(
                f"fragment at byte {fragment.offset} of {size} bytes, want byte {self._received} of {self._size}"
            )
        if size % ALIGNMENT and self._received + size != self._size:
            # Else a number could lie across two fragments, and a NaN hide there.
            raise WireError(f"fragment of {size} bytes, want a multiple of {ALIGNMENT} but for the last")
        if self._file is not None:
            self._check_finite(fragment)
            view = fragment.data
            at = fragment.offset
            while view:
                written = os.pwrite(self._file, view, at)
                view, at = view[written:], at + written
        elif self._buffer is not None:
            self._buffer[fragment.offset : fragment.offset + size] = np.frombuffer(fragment.data, dtype=np.uint8)
        self._received += size

    def _check_finite(self, fragment: FragmentView) -> None:
        start, end = fragment.offset, fragment.offset + len(fragment.data)
        for slot in self._header.slots:
            if slot.dtype.kind != "f" or slot.offset >= end or slot.offset + slot.num_bytes <= start:
                continue
            low = max(slot.offset, start) - start
            high = min(slot.offset + slot.num_bytes, end) - start
            if not all_finite(np.frombuffer(fragment.data[low:high], dtype=slot.dtype)):
                raise InvalidTensorError(f"tensor at byte {slot.offset} holds NaN or infinity")

    def message(self) -> Message:
        """The validated message; its arrays are views of the buffer or memory maps of the file.

        Raises:
            WireError: A number is out of range.
            InvalidTensorError: Wrong shape, NaN or infinity.
        """
        arrays: list[Array]
        if self._buffer is not None:
            body = self._buffer.data
            arrays = [slot.view(body) for slot in self._header.slots]
        else:
            assert self._spool is not None  # noqa: S101  # a body is in memory or in a file
            arrays = [
                np.memmap(self._spool, dtype=s.dtype, mode="r", offset=s.offset, shape=s.shape)
                if s.num_bytes
                else np.empty(s.shape, s.dtype)
                for s in self._header.slots
            ]
        message = self._header.message(arrays, self._dims, finite=self._buffer is not None)
        self.close()
        return message

    def close(self) -> None:
        """Close the file, if any."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def abandon(self) -> None:
        """Forget what has arrived: the rest of it will not come, or is not wanted."""
        self.close()
        self._buffer = None
        if self._spool is not None:
            self._spool.unlink(missing_ok=True)
