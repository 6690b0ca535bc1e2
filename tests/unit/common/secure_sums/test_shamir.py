"""Shares of secrets over the prime."""

from __future__ import annotations

import pytest

from kernfed.secure_sums import shamir


@pytest.mark.parametrize(("threshold", "count"), [(1, 1), (2, 3), (3, 3), (7, 10)])
def test_any_shares_of_the_threshold_give_the_secret(threshold: int, count: int) -> None:
    """Any t of k do; one fewer gives another number."""
    secret = shamir.new_secret()
    shares = dict(enumerate(shamir.split(secret, threshold, count), 1))
    for first in range(1, count - threshold + 2):
        assert shamir.combine({i: shares[i] for i in range(first, first + threshold)}) == secret
    if threshold > 1:
        assert shamir.combine({i: shares[i] for i in range(1, threshold)}) != secret


def test_shares_by_hand() -> None:
    """5 + 3x is 8, 11 and 14 at 1, 2 and 3, and 5 at 0; the modulus passes Fermat's test."""
    shares = {x: (5 + 3 * x).to_bytes(32, "big") for x in (1, 2, 3)}
    assert int.from_bytes(shamir.combine({1: shares[1], 3: shares[3]}), "big") == 5
    assert pow(2, shamir.PRIME - 1, shamir.PRIME) == 1
    with pytest.raises(ValueError, match="below the prime"):
        shamir.split(b"\xff" * 32, 2, 3)
