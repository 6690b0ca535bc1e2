"""The client's half of secure sums: the trips beside a method's own, and the method's own step under masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernfed.arrays import Array
from kernfed.federation.messages.base import Reply
from kernfed.federation.messages.sums import (
    BOX_BYTES,
    MaskedRequest,
    MaskedTerm,
    SumDealRequest,
    SumDealt,
    SumKeys,
    SumKeysRequest,
    SumShares,
    SumUnmaskRequest,
)
from kernfed.secure_sums.fixed_point import encode
from kernfed.secure_sums.shamir import SIZE
from kernfed.secure_sums.terms import DIGEST
from kernfed_client.data.local_job import LocalJob
from kernfed_client.sums.site import SumSeats


def keys(job: LocalJob, request: SumKeysRequest) -> SumKeys:
    """Keys of this client for a sum, signed."""
    return job.memory(SumSeats).site.keys(request.sum)


def deal(job: LocalJob, request: SumDealRequest) -> SumDealt:
    """Shares of this client's secrets for the members of a sum."""
    dealt = job.memory(SumSeats).site.deal(request.sum, request.members)
    boxes, digests = _rows(dealt.boxes, BOX_BYTES), _rows(dealt.digests, DIGEST)
    return SumDealt(boxes=boxes, digests=digests, own=dealt.own.hex())


def unmask(job: LocalJob, request: SumUnmaskRequest) -> SumShares:
    """Shares that take masks away; whose terms count is on the disk before they leave."""
    boxes = [row.tobytes() for row in request.boxes]
    return SumShares(shares=_rows(job.memory(SumSeats).site.answer(request.sum, request.included, boxes), SIZE))


def masked(step: Callable[[Any, Any], Reply]) -> Callable[[LocalJob, MaskedRequest], MaskedTerm]:
    """A method's own step, whose answer leaves as a term of a secure sum."""

    def run(job: LocalJob, request: MaskedRequest) -> MaskedTerm:
        terms = request.terms
        terms.check_member(job.client)
        weight = terms.weight_of[job.client]
        reply = step(job, request.bare)
        words = [encode(getattr(reply, name), weight, terms.exponent) for name in request.summed]
        return job.memory(SumSeats).here.mask(request, np.concatenate(words))

    return run


def _rows(parts: tuple[bytes, ...], size: int) -> Array:
    """Bytes of parts of one size, a row each."""
    return np.frombuffer(b"".join(parts), np.uint8).reshape(-1, size)


STEPS: dict[type[Any], Any] = {SumKeysRequest: keys, SumDealRequest: deal, SumUnmaskRequest: unmask}
"""Steps of this module, by the request that they answer."""
