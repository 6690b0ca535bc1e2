"""Pads, their seeds, and boxes, with known answers."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.exceptions import InvalidTag

from kernfed.secure_sums import pads, shamir
from kernfed.secure_sums.fixed_point import WORD


def test_public_key_is_that_of_rfc_7748() -> None:
    """Section 6.1 of RFC 7748: Alice's private and public key."""
    assert pads.public_key(bytes.fromhex(ALICE_PRIVATE)).hex() == ALICE_PUBLIC


ALICE_PRIVATE = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
ALICE_PUBLIC = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"


def test_a_pad_is_the_keystream_of_aes_256() -> None:
    """AES-256 of a zero block under a zero key, as published in NIST's known-answer tests, begins a zero key's pad."""
    words = np.zeros(2, WORD)
    pads.add_pad(words, bytes(32))
    assert words.tobytes().hex() == "dc95c078a2408989ad48a21492842087"
    pads.subtract_pad(words, bytes(32))
    assert not words.any()


def test_slices_make_one_pad() -> None:
    """A vector longer than a slice has the pad of one call, and pads wrap modulo 2^64."""
    seed = bytes(range(32))
    long, short = np.zeros((1 << 17) + 3, WORD), np.zeros(1 << 17, WORD)
    pads.add_pad(long, seed)
    pads.add_pad(short, seed)
    assert np.array_equal(long[: 1 << 17], short)
    assert len(np.unique(long)) == len(long)


def test_both_ends_find_the_same_seed() -> None:
    """A seed is the same at either end, and another one for each context, pair and kind."""
    a, b = shamir.new_secret(), shamir.new_secret()
    here = pads.pair_seed(a, pads.public_key(b), b"c", "ann", "bob")
    assert here == pads.pair_seed(b, pads.public_key(a), b"c", "bob", "ann")
    others = {
        pads.pair_seed(a, pads.public_key(b), b"d", "ann", "bob"),
        pads.pair_seed(a, pads.public_key(b), b"c", "ann", "eve"),
        pads.own_seed(a, b"c"),
    }
    assert len(others | {here}) == 4


def test_a_box_is_of_one_direction() -> None:
    """The receiver opens it; in the other direction, or changed, it cannot be opened."""
    a, b = shamir.new_secret(), shamir.new_secret()
    box = pads.seal(b"x" * 64, a, pads.public_key(b), b"c", "ann", "bob")
    assert pads.unseal(box, b, pads.public_key(a), b"c", "ann", "bob") == b"x" * 64
    for wrong in (
        (box, b, pads.public_key(a), b"c", "bob", "ann"),
        (box, b, pads.public_key(a), b"d", "ann", "bob"),
        (box[:-1] + b"\0", b, pads.public_key(a), b"c", "ann", "bob"),
    ):
        with pytest.raises(InvalidTag):
            pads.unseal(*wrong)
