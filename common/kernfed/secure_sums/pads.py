"""Pads of a secure sum: secrets that two clients share by X25519, seeds from them, and words from seeds.

A seed is HKDF-SHA256 of a secret, bound to all that the sum is of (`info`); a pad is the keystream of AES-256 in
counter mode under the seed, from counter 0. A seed makes one pad, for one vector.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from kernfed.secure_sums.fixed_point import WORD, Words

KEY_BYTES = 32
_SLICE = 1 << 17
"""Words that are masked at a time: 1 MiB."""
_PAD, _OWN, _BOX = b"kernfed sum pad 1\0", b"kernfed sum own pad 1\0", b"kernfed sum box 1\0"
_NONCE = bytes(12)
"""Of a box: its key seals one."""


def public_key(private: bytes) -> bytes:
    """The X25519 public key of a private one, 32 bytes each."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def pair_seed(private: bytes, public: bytes, context: bytes, one: str, other: str) -> bytes:
    """The seed of the pad that two clients share, 32 bytes; the same at either end.

    Args:
        private: Mask key of one of them.
        public: Of the other.
        context: What the sum is of.
        one: Name of a client.
        other: Of the other; their order does not matter.

    Raises:
        ValueError: The public key is not one.
    """
    return _derived(_agreed(private, public), _PAD + context + _names(*sorted((one, other))))


def own_seed(secret: bytes, context: bytes) -> bytes:
    """The seed of a client's own pad, of its secret b: 32 bytes."""
    return _derived(secret, _OWN + context)


def seal(content: bytes, private: bytes, public: bytes, context: bytes, sender: str, receiver: str) -> bytes:
    """A box that one client alone can open. A key serves one direction, and one box.

    Args:
        content: Of it.
        private: Box key of the sender.
        public: Of the receiver.
        context: What the sum is of.
        sender: Its name.
        receiver: Its name.

    Raises:
        ValueError: The public key is not one.
    """
    return _box(private, public, context, sender, receiver).encrypt(_NONCE, content, None)


def unseal(box: bytes, private: bytes, public: bytes, context: bytes, sender: str, receiver: str) -> bytes:
    """What `seal` put into a box; arguments alike, with the keys the other way round.

    Raises:
        ValueError: The public key is not one.
        cryptography.exceptions.InvalidTag: The box was not sealed so.
    """
    return _box(private, public, context, sender, receiver).decrypt(_NONCE, box, None)


def add_pad(words: Words, seed: bytes) -> None:
    """Add a pad to words in place, modulo 2^64, slice by slice."""
    _apply(words, seed, np.add)


def subtract_pad(words: Words, seed: bytes) -> None:
    """Take a pad away again, in place, modulo 2^64."""
    _apply(words, seed, np.subtract)


def _apply(words: Words, seed: bytes, operation: np.ufunc) -> None:
    stream = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    zeros = bytes(min(_SLICE, len(words)) * WORD.itemsize)
    for start in range(0, len(words), _SLICE):
        part = words[start : start + _SLICE]
        pad = np.frombuffer(stream.update(zeros[: part.nbytes]), WORD)
        operation(part, pad, out=part)


def _box(private: bytes, public: bytes, context: bytes, sender: str, receiver: str) -> ChaCha20Poly1305:
    return ChaCha20Poly1305(_derived(_agreed(private, public), _BOX + context + _names(sender, receiver)))


def _agreed(private: bytes, public: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))


def _derived(secret: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=info).derive(secret)


def _names(*names: str) -> bytes:
    return b"".join(len(name.encode()).to_bytes(4, "big") + name.encode() for name in names)
