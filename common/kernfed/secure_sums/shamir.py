"""Shamir's shares of a 32-byte secret over the prime 2^256 - 189: any t of k give it back, fewer tell nothing."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

PRIME = 2**256 - 189
"""The largest prime below 2^256."""
SIZE = 32
"""Bytes of a secret, and of a share."""


def new_secret() -> bytes:
    """A secret from the operating system's generator, below the prime."""
    return secrets.randbelow(PRIME).to_bytes(SIZE, "big")


def split(secret: bytes, threshold: int, count: int) -> list[bytes]:
    """Shares of a secret: values at 1, ..., k of a polynomial of degree t - 1 that is the secret at 0.

    Args:
        secret: 32 bytes, below the prime as a big-endian number.
        threshold: t, how many shares give it back.
        count: k, how many there are.

    Raises:
        ValueError: The secret is not below the prime, or t is not from 1 to k.
    """
    value = int.from_bytes(secret, "big")
    if len(secret) != SIZE or value >= PRIME or not 1 <= threshold <= count:
        raise ValueError("a secret has 32 bytes, is below the prime, and needs from 1 to k shares")
    coefficients = [value, *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return [_value_at(coefficients, x).to_bytes(SIZE, "big") for x in range(1, count + 1)]


def combine(shares: Mapping[int, bytes]) -> bytes:
    """The secret of which these are shares: the value at 0 of the polynomial through them.

    Args:
        shares: Place from 1 on to share; t of them.

    Raises:
        ValueError: A share is not 32 bytes, or a place is not from 1 on.
    """
    if any(place < 1 or len(share) != SIZE for place, share in shares.items()):
        raise ValueError("a share has 32 bytes and a place from 1 on")
    total = 0
    for place, share in shares.items():
        above = below = 1
        for other in shares:
            if other != place:
                above, below = above * other % PRIME, below * (other - place) % PRIME
        total += int.from_bytes(share, "big") * above * pow(below, -1, PRIME)
    return (total % PRIME).to_bytes(SIZE, "big")


def _value_at(coefficients: list[int], x: int) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * x + coefficient) % PRIME
    return value
