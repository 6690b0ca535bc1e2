"""The answer to a round as it is kept beside the state, and the digest that tells its question again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields as fields_of
from typing import Any

import numpy as np

from kernfed.arrays import Array
from kernfed.journal import checksum
from kernfed.methods.online.stream_step import StreamTold
from kernfed_client.methods.online.state import LeftOut

_NUM_NUMBERS = 8
_TOLD = tuple(f.name for f in fields_of(StreamTold) if f.name != "waits_for_disk")


def numbers(
    num_samples: int,
    num_waiting: int,
    left_out: LeftOut,
    *,
    ended: bool = False,
    whole: bool = False,
    waits_for_disk: bool = False,
) -> Array:
    """Counts and flags that all answers have, as one array."""
    skipped = (left_out.faulty, left_out.far, left_out.repeated, left_out.failed)
    told = (waits_for_disk, *(getattr(left_out, name) for name in _TOLD))
    return np.array((num_samples, ended, whole, num_waiting, *skipped, *told))


def fields(answer: Mapping[str, Array]) -> dict[str, Any]:
    """Fields of a reply from what is kept of it."""
    told = answer["numbers"].tolist()
    told += [0] * (_NUM_NUMBERS - len(told))  # one kept by a release that counted less
    samples, ended, whole, waiting, faulty, far, repeated, failed = told[:_NUM_NUMBERS]
    more = told[_NUM_NUMBERS:]
    found: dict[str, Any] = {name: array for name, array in answer.items() if name != "numbers"}
    return found | {
        "num_samples": samples,
        "ended": bool(ended),
        "needs_whole": bool(whole),
        "num_waiting": waiting,
        "num_skipped": faulty,
        "num_far": far,
        "num_repeated": repeated,
        "num_failed": failed,
        "told": _told(more) if any(more) else (),
    }


def _told(more: list[int]) -> tuple[StreamTold]:
    return (StreamTold(waits_for_disk=bool(more[0]), **dict(zip(_TOLD, more[1:], strict=False))),)


def digest(*parts: bytes | int | Array) -> str:
    """Tells a question that is asked again from another one of the same round; both come from our coordinator."""
    return f"{checksum(map(_bytes, parts)):08x}"


def _bytes(part: bytes | int | Array) -> bytes:
    if isinstance(part, np.ndarray):
        return part.tobytes()
    return part if isinstance(part, bytes) else f";{part};".encode()
