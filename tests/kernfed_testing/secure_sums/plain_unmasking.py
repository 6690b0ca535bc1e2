"""Unmasking of a secure sum again, in plain Python from its description: an oracle for `kernfed.secure_sums`.

X25519, AES and HMAC come from libraries; HKDF, Shamir's interpolation and the arithmetic of words are written out.
"""

from __future__ import annotations

import hashlib
import hmac
import struct

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

PRIME = 2**256 - 189


def hkdf(secret: bytes, info: bytes) -> bytes:
    """RFC 5869 with SHA-256, no salt, 32 bytes."""
    extracted = hmac.new(bytes(32), secret, hashlib.sha256).digest()
    return hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()


def joined(*parts: bytes) -> bytes:
    """SHA-256 of parts, each behind its length in eight bytes."""
    return hashlib.sha256(b"".join(len(p).to_bytes(8, "big") + p for p in parts)).digest()


def interpolated(shares: dict[int, bytes]) -> bytes:
    """The value at 0 of the polynomial through shares."""
    total = 0
    for i, share in shares.items():
        factor = 1
        for j in shares:
            if j != i:
                factor = factor * j * pow(j - i, -1, PRIME) % PRIME
        total = (total + int.from_bytes(share, "big") * factor) % PRIME
    return total.to_bytes(32, "big")


def pad(seed: bytes, count: int) -> list[int]:
    """So many words of a pad."""
    stream = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor().update(bytes(8 * count))
    return list(struct.unpack(f"<{count}Q", stream))


def unmasked(
    job: str,
    sum_id: str,
    keys: dict[str, tuple[bytes, bytes]],
    request: bytes,
    dealers: list[str],
    terms: dict[str, bytes],
    shares: dict[str, list[bytes]],
    threshold: int,
) -> tuple[list[int], list[int]]:
    """The sum of masked terms, and the two words of the canary.

    Args:
        job: Id of the job.
        sum_id: Of the sum.
        keys: Mask key and box key of each member.
        request: Digest of what is summed.
        dealers: In the order of names.
        terms: Masked, as bytes, of those whose terms count.
        shares: Of those who answered, in the order of the dealers.
        threshold: How many shares make a secret.
    """
    names = sorted(keys)
    parts = [p for name in names for p in (name.encode(), *keys[name])]
    dealt = joined(b"kernfed sum members 1", job.encode(), sum_id.encode(), *parts)
    context = joined(b"kernfed sum request 1", dealt, request, *(name.encode() for name in dealers))
    count = len(next(iter(terms.values()))) // 8
    total = [sum(column) for column in zip(*(struct.unpack(f"<{count}Q", t) for t in terms.values()), strict=True)]
    for place, dealer in enumerate(dealers):
        chosen = sorted(shares)[-threshold:]
        secret = interpolated({names.index(name) + 1: shares[name][place] for name in chosen})
        if dealer in terms:
            total = [
                a - b
                for a, b in zip(total, pad(hkdf(secret, b"kernfed sum own pad 1\0" + context), count), strict=True)
            ]
            continue
        for other in terms:
            agreed = X25519PrivateKey.from_private_bytes(secret).exchange(
                X25519PublicKey.from_public_bytes(keys[other][0])
            )
            info = b"kernfed sum pad 1\0" + context
            info += b"".join(len(n).to_bytes(4, "big") + n.encode() for n in sorted((dealer, other)))
            sign = 1 if dealer > other else -1  # the other one added it where its partner's name comes later
            total = [a - sign * b for a, b in zip(total, pad(hkdf(agreed, info), count), strict=True)]
    total = [word % 2**64 for word in total]
    return total[:-2], total[-2:]
