"""Replies of clients as one array of a checkpoint: as they were on the wire, so that the same bits come back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from kernfed.arrays import Array
from kernfed.federation.messages.base import R, Request
from kernfed.wire.codec import decode, encode

_LENGTH_BYTES = 8


def replies_array(replies: Mapping[str, R], float_bits: int) -> Array:
    """Replies by client name as bytes, with the size of floats that they came with.

    The length of a table, the table (JSON: client, bytes of its header, bytes of its body), headers and bodies.
    """
    table, parts = [], []
    for client, reply in replies.items():
        payload = encode(reply, float_bits)
        body = payload.body()
        table.append([client, len(payload.header), len(body)])
        parts += [payload.header, body]
    head = json.dumps(table).encode()
    return np.frombuffer(b"".join([len(head).to_bytes(_LENGTH_BYTES, "little"), head, *parts]), np.uint8)


def replies_of(array: Array, request: Request[R]) -> dict[str, R]:
    """What `replies_array` was given, the replies to a request."""
    data = memoryview(array.tobytes())
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    found: dict[str, R] = {}
    for client, header_bytes, body_bytes in json.loads(bytes(data[_LENGTH_BYTES:end])):
        header, end = bytes(data[end : end + header_bytes]), end + header_bytes
        reply: Any = decode(request.reply, header, data[end : end + body_bytes])
        found[client], end = reply, end + body_bytes
    return found
