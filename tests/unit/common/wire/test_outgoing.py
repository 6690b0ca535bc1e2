"""The send queue: small frames first, bodies turn by turn."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from kernfed.methods.probe.messages import Echo
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed.wire.codec import encode
from kernfed.wire.frames import RESPONSE_FRAGMENT_TAG, decode_fragment
from kernfed.wire.outgoing import CACHED_FRAMES, Body, Outgoing, payload_to_proto
from kernfed.wire.payload import CHUNK_BYTES, INLINE_BYTES, Payload
from kernfed_testing.limits import LIMIT_S


def make_body(transfer: int, num_chunks: int) -> tuple[Body, Payload]:
    payload = encode(Echo(num_rows=1, values=np.full(num_chunks * CHUNK_BYTES // 8, float(transfer))))
    return Body(RESPONSE_FRAGMENT_TAG, transfer, payload), payload


async def take(outgoing: Outgoing, count: int) -> list[bytes]:
    frames = [await asyncio.wait_for(outgoing.next(), 5) for _ in range(count)]
    return [frame for frame in frames if frame is not None]


def places(frames: list[bytes]) -> list[bytes | tuple[int, int]]:
    fragments = [decode_fragment(RESPONSE_FRAGMENT_TAG, f) for f in frames]
    return [f if d is None else (d.transfer, d.offset // CHUNK_BYTES) for f, d in zip(frames, fragments, strict=True)]


async def test_bodies_take_turns_and_frames_overtake() -> None:
    """Large bodies alternate piece by piece, and a frame goes ahead of them."""
    outgoing = Outgoing()
    outgoing.put(b"task 1", make_body(1, 3)[0])
    outgoing.put(b"task 2", make_body(2, 2)[0])
    first = await take(outgoing, 4)
    outgoing.put(b"heartbeat")
    assert places(first + await take(outgoing, 4)) == [
        *(b"task 1", b"task 2", (1, 0), (2, 0)),
        *(b"heartbeat", (1, 1), (2, 1), (1, 2)),
    ]


async def test_body_arrives_whole() -> None:
    """The pieces of a body are the body."""
    body, payload = make_body(7, 2)
    frames = [body.frame(offset, shared=False) for offset in range(0, body.size, CHUNK_BYTES)]
    parts = [decode_fragment(RESPONSE_FRAGMENT_TAG, f) for f in frames]
    assert b"".join(p.data for p in parts if p is not None) == payload.body()


async def test_drop() -> None:
    """A dropped body sends no further piece."""
    outgoing = Outgoing()
    outgoing.put(b"task 1", make_body(1, 3)[0])
    outgoing.put(b"task 2", make_body(2, 1)[0])
    await take(outgoing, 3)
    outgoing.drop(1)
    assert places(await take(outgoing, 1)) == [(2, 0)]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(outgoing.next(), 0.01)


async def test_close_sends_frames_and_no_bodies() -> None:
    """A closed queue still sends its frames, and none of its bodies."""
    outgoing = Outgoing()
    outgoing.put(b"task", make_body(1, 3)[0])
    outgoing.put(b"goodbye")
    outgoing.close()
    assert [await outgoing.next() for _ in range(3)] == [b"task", b"goodbye", None]


async def test_wakes_a_waiting_writer() -> None:
    """A writer that waits gets the frame that is put."""
    outgoing = Outgoing()
    waiting = asyncio.ensure_future(outgoing.next())
    await asyncio.sleep(0)
    outgoing.put(b"x")
    assert await asyncio.wait_for(waiting, LIMIT_S) == b"x"


async def test_attached_fields_ride_on_the_next_frame() -> None:
    """Acknowledgements go with the next frame, or alone when they must."""

    def ack(task_id: str) -> bytes:
        return pb.ConnectResponse(acks=[task_pb2.TaskAck(task_id=task_id)]).SerializeToString()

    outgoing = Outgoing()
    outgoing.attach(ack("1"), now=False)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(outgoing.next(), 0.01)
    outgoing.attach(ack("2"), now=False)
    assert outgoing.backlog == len(ack("1") + ack("2"))
    outgoing.put(pb.ConnectResponse(heartbeat=pb.Heartbeat()).SerializeToString())
    merged = pb.ConnectResponse.FromString((await take(outgoing, 1))[0])
    assert [a.task_id for a in merged.acks] == ["1", "2"]
    assert merged.WhichOneof("frame") == "heartbeat"
    outgoing.attach(ack("3"), now=True)
    alone = pb.ConnectResponse.FromString((await take(outgoing, 1))[0])
    assert [a.task_id for a in alone.acks] == ["3"]
    assert outgoing.backlog == 0


def test_frames_of_a_broadcast_are_shared() -> None:
    """Pieces that go to many clients are made once, and a bounded number is kept."""
    body, _ = make_body(1, 20)
    assert body.frame(0, shared=True) is body.frame(0, shared=True)
    first = body.frame(0, shared=True)
    for i in range(1, CACHED_FRAMES + 1):
        body.frame(i * CHUNK_BYTES, shared=True)
    assert body.frame(0, shared=True) is not first  # memory stays bounded
    assert body.frame(0, shared=True) == first


@pytest.mark.parametrize(("size", "inline"), [(INLINE_BYTES, True), (INLINE_BYTES + 8, False)])
def test_small_bodies_ride_inline(size: int, inline: bool) -> None:
    """A body up to the limit goes in its frame, a larger one beside it."""
    payload = encode(Echo(num_rows=1, values=np.ones(size // 8)))
    proto = payload_to_proto(payload, 9)
    assert proto.body_size == size
    assert proto.transfer == (0 if inline else 9)
    assert len(proto.inline_body) == (size if inline else 0)
