"""Numbers as whole numbers modulo 2^64, so that their sum is exact and the order of its terms cannot matter.

A term p x with |x| <= 2^e and weights p that add up to at most 1 becomes round(p x 2^f) with f = 61 - e: the sum stays
below 2^61 in size, so it never wraps. The decoded sum of N terms is off by at most N 2^-(f+1), and by its own rounding
to a float.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernfed.arrays import Array, Floats
from kernfed.errors import OutOfRangeError

Words = npt.NDArray[np.uint64]
"""Numbers modulo 2^64, little-endian."""
WORD = np.dtype("<u8")
MOST_BITS = 61
"""Of a sum of weighted terms, so that it fits a signed word with a bit to spare."""
LEAST_EXPONENT, MOST_EXPONENT = -512, 512
"""Of the bound 2^e of a term."""
EXPONENT_STEP = 8
"""Exponents are multiples of this. A client that refuses a bound tells that its numbers are beyond it; so whoever asks
with many bounds learns the size of its largest number to a factor of 2^8, and no closer."""


def encode(numbers: Array, weight: float, exponent: int) -> Words:
    """A client's term of a weighted sum, as words.

    Args:
        numbers: x, any shape, of floats.
        weight: p, from 0 to 1.
        exponent: e, by which every |x| is at most 2^e.

    Returns:
        round(p x 2^(61 - e)) modulo 2^64, one word a number, in their row-major order.

    Raises:
        OutOfRangeError: A number is not finite, or beyond 2^e; nothing is clipped.
    """
    flat = np.asarray(numbers, np.float64).reshape(-1)
    largest = float(np.abs(flat).max(initial=0.0))
    if not largest <= np.ldexp(1.0, exponent):  # NaN is beyond too
        raise OutOfRangeError(
            f"numbers up to {largest:.3g} in size are beyond the {np.ldexp(1.0, exponent):.3g} that this secure sum "
            "holds; nothing was sent. Look at this client's data and their units, or ask for a larger ridge",
            public="this client's numbers are beyond what this secure sum holds; nothing was sent. Ask for a larger "
            "ridge",
        )
    scaled = np.rint(np.ldexp(flat * weight, MOST_BITS - exponent))
    words: Words = scaled.astype(np.int64).view(np.uint64).astype(WORD, copy=False)
    return words


def decode(words: Words, exponent: int) -> Floats:
    """The sum that words stand for, float64, shape of the words.

    Args:
        words: A sum of what `encode` gave, modulo 2^64.
        exponent: e of its terms.
    """
    signed = np.asarray(words, WORD).astype(np.uint64, copy=False).view(np.int64)
    found: Floats = np.ldexp(signed.astype(np.float64), exponent - MOST_BITS)
    return found


def exponent_of(bound: float) -> int:
    """The least e, a multiple of `EXPONENT_STEP`, with |x| <= 2^e for all numbers up to a bound.

    Raises:
        OutOfRangeError: The bound is not a finite number above 0, or beyond what an exponent says.
    """
    if not 0.0 < bound < np.inf:
        raise OutOfRangeError(f"a secure sum needs a bound on its terms, and {bound:g} is none")
    exponent = EXPONENT_STEP * int(np.ceil(np.log2(bound) / EXPONENT_STEP))
    if not LEAST_EXPONENT <= exponent <= MOST_EXPONENT:
        raise OutOfRangeError(f"terms up to {bound:.3g} in size are out of the range of a secure sum")
    return exponent
