"""Digests of messages, alike at both ends, without a wire's encoding."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from kernfed.federation.messages.base import FieldInfo, Message, fields_of
from kernfed.secure_sums.terms import digest


def message_digest(message: Message, float_bits: int = 64) -> bytes:
    """SHA-256 of all that a message says.

    Args:
        message: At the end that sends it, or as it arrived.
        float_bits: Size of the floats that it is sent with; arrays that arrived are taken as they are.
    """
    return digest(*_parts(message, float_bits))


def _parts(message: Any, float_bits: int) -> Iterator[bytes]:
    yield type(message).__name__.encode()
    for f in fields_of(type(message)):
        yield f.name.encode()
        value = getattr(message, f.name)
        for item in value if f.type is tuple else (value,):
            yield from _of_value(item, f, float_bits)
        yield b"."


def _of_value(value: Any, f: FieldInfo, float_bits: int) -> Iterator[bytes]:
    if isinstance(value, np.ndarray):
        narrow = value.dtype.kind == "f" and float_bits == 32 and not f.exact
        sent = value.astype("<f4") if narrow else np.ascontiguousarray(value)
        yield f"{sent.dtype.str}{sent.shape}".encode()
        yield sent.tobytes()
    elif f.nested:
        yield from _parts(value, float_bits)
    elif isinstance(value, float):
        yield struct.pack("<d", value)
    else:
        yield f"{type(value).__name__}:{value}".encode()
