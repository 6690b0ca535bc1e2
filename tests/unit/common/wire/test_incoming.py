"""Bodies on their way in, in memory and on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernfed.errors import InvalidTensorError, PayloadTooLargeError, WireError
from kernfed.federation.messages.base import Dims, Message
from kernfed.methods.probe.messages import Echo
from kernfed.methods.ridge.messages import NewtonStart
from kernfed.v1 import task_pb2
from kernfed.wire.codec import encode
from kernfed.wire.frames import FragmentView
from kernfed.wire.incoming import IncomingPayload
from kernfed_testing.properties import examples

MAX_BYTES = 1 << 20
KINDS = pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "disk"])


def announced(message: Message, float_bits: int = 64) -> tuple[task_pb2.Payload, bytes]:
    """A payload's announcement, and its body."""
    payload = encode(message, float_bits)
    return task_pb2.Payload(header=payload.header, body_size=payload.body_size, transfer=1), payload.body()


def receive(
    message: Message, spool: Path | None, *, piece: int = 64, float_bits: int = 64, dims: Dims | None = None
) -> Any:
    """Send a message through fragments of `piece` bytes."""
    proto, body = announced(message, float_bits)
    incoming = IncomingPayload(type(message), proto, MAX_BYTES, dims or {}, spool)
    try:
        for offset in range(0, len(body), piece):
            assert not incoming.complete
            assert incoming.missing == len(body) - offset
            incoming.add(FragmentView(1, offset, memoryview(body[offset : offset + piece])))
        assert incoming.complete
        return incoming.message()
    finally:
        incoming.close()


@pytest.fixture
def spool(tmp_path: Path, on_disk: bool) -> Path | None:
    return tmp_path / "spool" if on_disk else None


@KINDS
@pytest.mark.parametrize("float_bits", [64, 32])
@pytest.mark.parametrize("piece", [64, 128, 4096])
def test_two_tensors(spool: Path | None, piece: int, float_bits: int) -> None:
    """Two arrays arrive whole from pieces of any size, in memory or in a file for its owner only."""
    weights = np.linspace(-1, 1, 39).reshape(13, 3)
    message = NewtonStart(num_rows=5, weights=weights, moment=weights + 1)
    back = receive(message, spool, piece=piece, float_bits=float_bits)
    assert back.num_rows == 5
    np.testing.assert_allclose(back.weights, weights, rtol=1e-6 if float_bits == 32 else 0)
    np.testing.assert_allclose(back.moment, weights + 1, rtol=1e-6 if float_bits == 32 else 0)
    assert isinstance(back.weights, np.memmap) == (spool is not None)
    if spool is not None:
        assert spool.stat().st_mode & 0o777 == 0o600


@KINDS
def test_empty_tensors(spool: Path | None) -> None:
    """Arrays without rows arrive with their shape."""
    message = NewtonStart(num_rows=0, weights=np.empty((0, 2)), moment=np.empty((0, 2)))
    assert receive(message, spool).weights.shape == (0, 2)


@settings(max_examples=examples(60))
@given(
    size=st.integers(1, 300),
    where=st.integers(0, 299),
    value=st.sampled_from([np.nan, np.inf, -np.inf]),
    float_bits=st.sampled_from([32, 64]),
    piece=st.sampled_from([64, 192, 1024]),
    in_second=st.booleans(),
    on_disk=st.booleans(),
)
def test_not_finite_anywhere(
    tmp_path_factory: pytest.TempPathFactory,
    size: int,
    where: int,
    value: float,
    float_bits: int,
    piece: int,
    in_second: bool,
    on_disk: bool,
) -> None:
    """A number that is none is found wherever it lies, at the ends of fragments and of tensors too."""
    arrays = [np.ones((size, 1)), np.ones((size, 1))]
    arrays[in_second][where % size] = value
    spool = tmp_path_factory.mktemp("incoming") / "spool" if on_disk else None
    with pytest.raises(InvalidTensorError, match="NaN or infinity"):
        receive(NewtonStart(num_rows=1, weights=arrays[0], moment=arrays[1]), spool, piece=piece, float_bits=float_bits)


@KINDS
@pytest.mark.parametrize(
    ("offset", "size"),
    [(64, 64), (128, 64), (0, 0), (0, 63), (0, 12), (0, 100), (0, 264)],
    ids=["ahead", "far ahead", "empty", "odd", "half a number", "not aligned", "beyond the end"],
)
def test_bad_fragments(spool: Path | None, offset: int, size: int) -> None:
    """A piece of the wrong place or size is refused and changes nothing."""
    proto, _ = announced(Echo(num_rows=1, values=np.ones(32)))
    incoming = IncomingPayload(Echo, proto, MAX_BYTES, {}, spool)
    with pytest.raises(WireError, match="fragment"):
        incoming.add(FragmentView(1, offset, memoryview(bytes(size))))
    assert incoming.missing == 256
    incoming.abandon()


@KINDS
def test_repeated_fragment(spool: Path | None) -> None:
    """A piece that comes twice is refused, and an abandoned body leaves no file."""
    proto, body = announced(Echo(num_rows=1, values=np.ones(32)))
    incoming = IncomingPayload(Echo, proto, MAX_BYTES, {}, spool)
    incoming.add(FragmentView(1, 0, memoryview(body[:64])))
    with pytest.raises(WireError, match="want byte 64 of 256"):
        incoming.add(FragmentView(1, 0, memoryview(body[:64])))
    incoming.abandon()
    assert spool is None or not spool.exists()


@pytest.mark.redteam
def test_too_large_before_a_byte_is_kept(tmp_path: Path) -> None:
    """A body that is announced as too large is refused before a file is made."""
    proto, _ = announced(Echo(num_rows=1, values=np.ones(32)))
    with pytest.raises(PayloadTooLargeError, match="body of 256 bytes, at most 255"):
        IncomingPayload(Echo, proto, 255, {}, tmp_path / "spool")
    assert not (tmp_path / "spool").exists()


def test_inline_size() -> None:
    """A body in the frame that differs from its announced size is refused."""
    payload = encode(Echo(num_rows=1, values=np.ones(4)))
    proto = task_pb2.Payload(header=payload.header, body_size=32, inline_body=payload.body()[:-1])
    with pytest.raises(WireError, match="31 bytes inline, 32 declared"):
        IncomingPayload(Echo, proto, MAX_BYTES, {})


def test_inline() -> None:
    """A body in the frame is complete at once."""
    payload = encode(Echo(num_rows=1, values=np.arange(4.0)))
    proto = task_pb2.Payload(header=payload.header, body_size=32, inline_body=payload.body())
    incoming = IncomingPayload(Echo, proto, MAX_BYTES, {}, None)
    assert incoming.complete
    message = incoming.message()
    assert isinstance(message, Echo)
    np.testing.assert_array_equal(message.values, np.arange(4.0))


@KINDS
def test_shape_of_the_request(spool: Path | None) -> None:
    """An array of another shape than the request says is refused."""
    with pytest.raises(InvalidTensorError, match=r"want shape \(5,\)"):
        receive(Echo(num_rows=1, values=np.ones(32)), spool, dims={"N": 5})
