"""Processor time and bytes of a secure sum, at a client and at the coordinator, without a network.

Each client's seat and the coordinator's half run one after the other, in one thread. The bytes of a client are those
that it sends beside the words of a sum in the clear: keys, signature, certificate, boxes, digests and shares.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from kernfed.secure_sums.fixed_point import encode
from kernfed.secure_sums.gathering import Gathering
from kernfed.secure_sums.seat import Seat
from kernfed.secure_sums.terms import Member, digest, threshold

T = TypeVar("T")
JOB, SUM, REQUEST = "bench", "1/step/0", digest(b"bench")
SIGNED = 72 + 700
"""Bytes of a signature and a certificate."""


def timed(run: Callable[[], T]) -> tuple[T, float]:
    """A result and its milliseconds of processor time."""
    began = time.process_time()
    found = run()
    return found, 1e3 * (time.process_time() - began)


def measure(clients: int, numbers: int, lost: int) -> None:
    """Print one line: so many clients, of whom some are lost as they send their terms."""
    names = [f"c{i:03d}" for i in range(clients)]
    seats, at_client = {}, 0.0
    for name in names:
        seats[name], spent = timed(lambda name=name: Seat(JOB, SUM, name))  # type: ignore[misc]
        at_client += spent
    members = [Member(name, seats[name].mask_key, seats[name].box_key) for name in names]
    deals = {}
    for name in names:
        deals[name], spent = timed(lambda name=name: seats[name].deal(members))  # type: ignore[misc]
        at_client += spent
    gathering = Gathering(JOB, SUM, members, deals)
    included, terms = names[lost:], {}
    values = np.random.default_rng(0).normal(size=numbers)
    masking = 0.0
    for name in included:
        (terms[name], _), spent = timed(
            lambda name=name: seats[name].mask(encode(values, 1 / clients, 4), REQUEST, names)  # type: ignore[misc]
        )
        masking += spent
    shares, answering = {}, 0.0
    for name in included:
        boxes = gathering.boxes_for(name)
        shares[name], spent = timed(lambda n=name, b=boxes: seats[n].answer(included, b))  # type: ignore[misc]
        answering += spent
    _, at_coordinator = timed(lambda: gathering.sum(terms, REQUEST, shares))
    a_client = at_client / clients + (masking + answering) / len(included)
    deal = deals[names[0]]
    extra = 64 + SIGNED + sum(map(len, deal.boxes)) + sum(map(len, deal.digests)) + 32 + 32 * clients
    print(
        f"{clients:4d} clients, {8 * numbers / 1024:8.0f} KiB, {lost} lost, threshold {threshold(clients):3d}: "
        f"client {a_client:8.1f} ms, coordinator {at_coordinator:8.1f} ms, {extra:6d} bytes more a client",
        flush=True,
    )


def main() -> None:
    """Measure the cases of the page on privacy."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="small vectors alone")
    quick = parser.parse_args().quick
    measure(10, 512, 0)
    measure(10, 512, 1)
    measure(100, 512, 8)
    if not quick:
        measure(10, 1 << 23, 0)
        measure(10, 1 << 23, 1)
        measure(100, 1 << 17, 8)


if __name__ == "__main__":
    main()
