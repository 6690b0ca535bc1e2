"""Frames of a session as bytes: fragments are written and read by hand, everything else by protobuf.

A fragment's data is nearly all that ever crosses the wire. Encoding it by hand is still protobuf to any other reader
(a test compares the two), but costs one copy in place of three when sending and none in place of two when receiving.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernfed.errors import WireError
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed.wire.payload import CHUNK_BYTES

CONNECT_METHOD = "/kernfed.v1.FederationService/Connect"
PROTOCOL_VERSION = 1

MAX_ID = 256
"""Characters of what names a job, a task, an operator or a method."""
MAX_TEXT = 4000
"""Characters of a peer's text that are kept or logged."""
MAX_DECIDED_JOBS = 100
"""Jobs of which one heartbeat says that people at the site decided on them."""
MAX_HEARTBEAT_S, MAX_SILENCE_S = 3600.0, 7200.0
"""Longest time between heartbeats, and after which a silent peer is taken for dead."""

_LENGTH_DELIMITED = 2
_TRANSFER_TAG = task_pb2.Fragment.TRANSFER_FIELD_NUMBER << 3
_OFFSET_TAG = task_pb2.Fragment.OFFSET_FIELD_NUMBER << 3
_DATA_TAG = task_pb2.Fragment.DATA_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
REQUEST_FRAGMENT_TAG = pb.ConnectRequest.FRAGMENT_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
RESPONSE_FRAGMENT_TAG = pb.ConnectResponse.FRAGMENT_FIELD_NUMBER << 3 | _LENGTH_DELIMITED


@dataclass(frozen=True, slots=True)
class FragmentView:
    """A received fragment; `data` is a view into the frame."""

    transfer: int
    offset: int
    data: memoryview


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_fragment(tag: int, transfer: int, offset: int, parts: Sequence[memoryview]) -> bytes:
    """A `ConnectRequest` or `ConnectResponse` (by `tag`) that holds a Fragment.

    Args:
        tag: `REQUEST_FRAGMENT_TAG` or `RESPONSE_FRAGMENT_TAG`.
        transfer: Which payload's body this is a piece of.
        offset: Where the piece begins, in bytes.
        parts: The memory that makes it up.
    """
    size = sum(len(p) for p in parts)
    fields = bytes([_TRANSFER_TAG]) + _varint(transfer)
    if offset:
        fields += bytes([_OFFSET_TAG]) + _varint(offset)
    fields += bytes([_DATA_TAG]) + _varint(size)
    return b"".join((bytes([tag]), _varint(len(fields) + size), fields, *parts))


def decode_fragment(tag: int, frame: bytes) -> FragmentView | None:
    """The fragment in a frame, or None when the frame holds something else.

    Raises:
        WireError: The frame begins as a fragment and is malformed, or its data are too long.
    """
    if not frame or frame[0] != tag:
        return None
    transfer = offset = 0
    data = memoryview(b"")
    try:
        size, at = _read_varint(frame, 1)
        if at + size != len(frame):
            raise WireError("malformed fragment: its length does not fit the frame")
        while at < len(frame):
            field, at = _read_varint(frame, at)
            if field == _DATA_TAG:
                size, at = _read_varint(frame, at)
                if at + size > len(frame):
                    raise WireError("malformed fragment: data beyond the frame")
                data = memoryview(frame)[at : at + size]
                at += size
            elif field == _TRANSFER_TAG:
                transfer, at = _read_varint(frame, at)
            elif field == _OFFSET_TAG:
                offset, at = _read_varint(frame, at)
            else:
                raise WireError(f"malformed fragment: unknown field {field >> 3}")
    except IndexError as err:
        raise WireError("malformed fragment: it ends too early") from err
    if len(data) > CHUNK_BYTES:
        raise WireError(f"fragment of {len(data)} bytes, at most {CHUNK_BYTES} are allowed")
    return FragmentView(transfer, offset, data)


def _read_varint(frame: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise WireError("malformed fragment: number too long")


def identity(frame: bytes) -> bytes:
    """The (de)serializer of the Connect method: frames are handled as bytes."""
    return frame
