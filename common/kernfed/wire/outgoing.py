"""The queue of one end of a session: small frames first, then the bodies of payloads, turn by turn.

So a heartbeat or a cancel never waits behind a model of a gigabyte, and two jobs share a line fairly.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque

from kernfed.v1 import task_pb2
from kernfed.wire.frames import encode_fragment
from kernfed.wire.payload import CHUNK_BYTES, INLINE_BYTES, Payload

CACHED_FRAMES = 8


class Body:
    """A payload's body, cut into fragment frames; frames lately made are shared by all sessions of a broadcast."""

    def __init__(self, tag: int, transfer: int, payload: Payload) -> None:
        self.transfer = transfer
        self.size = payload.body_size
        self._tag = tag
        self._payload = payload
        self._frames: OrderedDict[int, bytes] = OrderedDict()

    def frame(self, offset: int, *, shared: bool) -> bytes:
        """The fragment frame that begins at `offset`."""
        made = self._frames.get(offset)
        if made is None:
            size = min(CHUNK_BYTES, self.size - offset)
            made = encode_fragment(self._tag, self.transfer, offset, self._payload.piece(offset, size))
            if shared:
                self._frames[offset] = made
                if len(self._frames) > CACHED_FRAMES:
                    self._frames.popitem(last=False)
        return made


def payload_to_proto(payload: Payload, transfer: int) -> task_pb2.Payload:
    """The frame's part of a payload: small bodies inside, larger ones announced."""
    size = payload.body_size
    if size <= INLINE_BYTES:
        return task_pb2.Payload(header=payload.header, body_size=size, inline_body=payload.body())
    return task_pb2.Payload(header=payload.header, body_size=size, transfer=transfer)


class _Cursor:
    __slots__ = ("body", "offset", "shared")

    def __init__(self, body: Body, shared: bool) -> None:
        self.body = body
        self.offset = 0
        self.shared = shared


class Outgoing:
    """The send queue of one session. Not thread-safe: use it from the event loop."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._bodies: deque[_Cursor] = deque()
        self._prefix = bytearray()
        self._wake = asyncio.Event()
        self._closed = False

    def put(self, frame: bytes, body: Body | None = None, *, shared: bool = False) -> None:
        """Queue a frame and, after it, the body that it announces."""
        self._frames.append(frame)
        if body is not None:
            self._bodies.append(_Cursor(body, shared))
        self._wake.set()

    def attach(self, frame: bytes, *, now: bool) -> None:
        """Send a frame's fields along with the next small frame: serialized messages that follow each other are merged.

        Args:
            frame: Holds repeated fields only, so that merging adds them.
            now: Whether to send it at once when there is no other small frame to ride on.
        """
        self._prefix += frame
        if now and not self._frames:
            self._frames.append(b"")
            self._wake.set()

    @property
    def backlog(self) -> int:
        """Frames, and bytes of attached fields, that wait to be written."""
        return len(self._frames) + len(self._prefix)

    def drop(self, transfer: int) -> None:
        """Stop sending a body."""
        self._bodies = deque(c for c in self._bodies if c.body.transfer != transfer)

    def close(self) -> None:
        """Let `next` return None once the queued frames are out; bodies are not finished."""
        self._closed = True
        self._bodies.clear()
        self._wake.set()

    async def next(self) -> bytes | None:
        """The next frame to write, or None when closed and empty."""
        while True:
            if self._frames:
                frame = self._frames.popleft()
                if self._prefix:
                    frame = bytes(self._prefix) + frame
                    self._prefix.clear()
                return frame
            if self._bodies:
                cursor = self._bodies.popleft()
                frame = cursor.body.frame(cursor.offset, shared=cursor.shared)
                cursor.offset += CHUNK_BYTES
                if cursor.offset < cursor.body.size:
                    self._bodies.append(cursor)
                return frame
            if self._closed:
                return None
            self._wake.clear()
            await self._wake.wait()
