"""Fragments written by hand are what protobuf writes, and nothing malformed gets through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernfed.errors import WireError
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed.wire.frames import (
    REQUEST_FRAGMENT_TAG,
    RESPONSE_FRAGMENT_TAG,
    FragmentView,
    decode_fragment,
    encode_fragment,
    identity,
)
from kernfed.wire.payload import CHUNK_BYTES

End = type[pb.ConnectRequest] | type[pb.ConnectResponse]
ENDS: list[tuple[int, End]] = [(REQUEST_FRAGMENT_TAG, pb.ConnectRequest), (RESPONSE_FRAGMENT_TAG, pb.ConnectResponse)]

transfers = st.integers(0, 2**32 - 1)
offsets = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize(("tag", "cls"), ENDS)
@given(transfers, offsets, st.lists(st.binary(max_size=300), max_size=4))
def test_protobuf_reads_what_we_write(tag: int, cls: End, transfer: int, offset: int, parts: list[bytes]) -> None:
    """A fragment that was written by hand is the one that protobuf reads, without unknown fields."""
    frame = cls.FromString(encode_fragment(tag, transfer, offset, [memoryview(p) for p in parts]))
    assert frame.WhichOneof("frame") == "fragment"
    assert (frame.fragment.transfer, frame.fragment.offset) == (transfer, offset)
    assert frame.fragment.data == b"".join(parts)
    assert frame.ByteSize() == len(cls(fragment=frame.fragment).SerializeToString())  # no unknown fields


@pytest.mark.parametrize(("tag", "cls"), ENDS)
@given(transfers, offsets, st.binary(max_size=300))
def test_we_read_what_protobuf_writes(tag: int, cls: End, transfer: int, offset: int, data: bytes) -> None:
    """A fragment that protobuf wrote is read by hand to the same parts."""
    written = cls(fragment=task_pb2.Fragment(transfer=transfer, offset=offset, data=data)).SerializeToString()
    assert decode_fragment(tag, written) == FragmentView(transfer, offset, memoryview(data))


@pytest.mark.parametrize(("tag", "cls"), ENDS)
def test_other_frames_are_left_to_protobuf(tag: int, cls: End) -> None:
    """Frames without a fragment are not read by hand."""
    assert decode_fragment(tag, cls(heartbeat=pb.Heartbeat(busy_task_ids=["x"])).SerializeToString()) is None
    assert decode_fragment(tag, b"") is None


@given(st.binary(max_size=64))
def test_garbage_is_a_wire_error(data: bytes) -> None:
    """Bytes after a fragment's tag are a WireError or a fragment that is read the same once it is written."""
    try:
        fragment = decode_fragment(REQUEST_FRAGMENT_TAG, bytes([REQUEST_FRAGMENT_TAG]) + data)
    except WireError:
        return
    assert fragment is not None
    written = encode_fragment(REQUEST_FRAGMENT_TAG, fragment.transfer, fragment.offset, [fragment.data])
    assert decode_fragment(REQUEST_FRAGMENT_TAG, written) == fragment


@given(st.binary(min_size=1, max_size=40), st.data())
def test_truncated_is_a_wire_error(data: bytes, draw: st.DataObject) -> None:
    """A fragment that is cut short or goes on is refused."""
    frame = encode_fragment(REQUEST_FRAGMENT_TAG, 300, 2**40, [memoryview(data)])
    cut = draw.draw(st.integers(1, len(frame) - 1))
    with pytest.raises(WireError):
        decode_fragment(REQUEST_FRAGMENT_TAG, frame[:cut])
    with pytest.raises(WireError):
        decode_fragment(REQUEST_FRAGMENT_TAG, frame + b"\0")


def test_too_much_data() -> None:
    """A fragment beyond the limit is refused."""
    chunk = memoryview(bytes(CHUNK_BYTES))
    assert decode_fragment(REQUEST_FRAGMENT_TAG, encode_fragment(REQUEST_FRAGMENT_TAG, 1, 0, [chunk])) is not None
    with pytest.raises(WireError, match="at most 1048576"):
        decode_fragment(REQUEST_FRAGMENT_TAG, encode_fragment(REQUEST_FRAGMENT_TAG, 1, 0, [chunk, chunk[:1]]))


def test_endless_number() -> None:
    """A number that does not end within ten bytes is refused."""
    body = b"\x08" + b"\xff" * 20
    with pytest.raises(WireError, match="number too long"):
        decode_fragment(REQUEST_FRAGMENT_TAG, bytes([REQUEST_FRAGMENT_TAG, len(body)]) + body)


def test_data_are_not_copied() -> None:
    """The data of a fragment are a view of its frame."""
    frame = encode_fragment(REQUEST_FRAGMENT_TAG, 1, 0, [memoryview(b"abc")])
    fragment = decode_fragment(REQUEST_FRAGMENT_TAG, frame)
    assert fragment is not None
    assert fragment.data.obj is frame
    assert identity(frame) is frame
