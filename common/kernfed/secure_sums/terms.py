"""What both halves of a secure sum know of it: its members, its threshold, digests of what it is of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

FEWEST = 3
"""Clients of a secure sum: of two, each learns the other's term from the sum."""
MOST_SHARE = 0.9
"""Largest part of the weight that a client lets itself have: a sum that is nearly its own term hides nothing."""
CANARY = 2
"""Words behind a vector, each 1 at every client: their sum is the number of clients, unless masks did not cancel."""
DIGEST = 16
"""Bytes of the digest of a share."""
TAG_BYTES = 16
"""By how much a box is longer than its content."""


def threshold(members: int) -> int:
    """How many of the members it takes to take a mask away: floor(2k/3) + 1 of k, against a lying coordinator.

    Of two sets of so many, more than k/3 members are in both; so while fewer than a third are on its side, a
    coordinator cannot have a client's term counted by one set and its masks taken away by the other.
    """
    return 2 * members // 3 + 1


def who_can_learn(members: int | None) -> str:
    """Who together could learn a client's term of a secure sum, for people.

    Args:
        members: Clients of the sum; None: it is not known how many there will be.
    """
    who, others = "secure sums", "more than a third of them"
    if members is not None:
        some = 2 * threshold(members) - members
        who = f"secure sums over {members} clients"
        others = f"{some} of them" if some < members - 1 else "all of them but one"
    return (
        f"{who}: the coordinator sees no single client's term; together with {others} it could learn one. Counts, "
        "scales, means of features and targets, and metrics are seen as in every job (docs/privacy.md)"
    )


@dataclass(frozen=True, slots=True)
class Member:
    """A client of a sum, and its keys for it."""

    name: str
    mask_key: bytes
    """X25519 public key of its pads, 32 bytes."""
    box_key: bytes
    """X25519 public key of its boxes, 32 bytes."""


@dataclass(frozen=True, slots=True)
class Deal:
    """What a client deals to the members of a sum: of its secret b and of its mask key, a share each to every one."""

    boxes: tuple[bytes, ...]
    """A box to each other member, in the order of names: both shares, sealed."""
    digests: tuple[bytes, ...]
    """Of every member's share of b, then of every one's share of the mask key, its own included."""
    own: bytes
    """Digest of b."""


def deal_context(job: str, sum_id: str, members: Sequence[Member]) -> bytes:
    """Digest of a sum's job, id and members with their keys, by which boxes are bound to it.

    Args:
        job: Id of the job.
        sum_id: Of the sum within the job, another for each attempt.
        members: In the order of names.
    """
    parts = [job.encode(), sum_id.encode()]
    for member in members:
        parts += [member.name.encode(), member.mask_key, member.box_key]
    return digest(b"kernfed sum members 1", *parts)


def mask_context(dealt: bytes, request: bytes, dealers: Iterable[str]) -> bytes:
    """Digest by which pads are bound to what is summed: they cancel only where everybody was asked the same.

    Args:
        dealt: `deal_context` of the sum.
        request: Digest of the request, with the weights of all.
        dealers: Those whose deals arrived, in the order of names.
    """
    return digest(b"kernfed sum request 1", dealt, request, *(name.encode() for name in dealers))


def share_digest(context: bytes, holder: str, share: bytes) -> bytes:
    """Digest of a share, by which a wrong one is known; the share is random, and cannot be found by it."""
    return digest(b"kernfed sum share 1", context, holder.encode(), share)[:DIGEST]


def own_digest(context: bytes, secret: bytes) -> bytes:
    """Digest of a secret b, by which a wrong one is known."""
    return digest(b"kernfed sum own 1", context, secret)


def included_digest(weights: Mapping[str, float]) -> bytes:
    """Digest of whose terms a sum is, with their weights: of another set, or other weights, nothing may be told.

    Args:
        weights: Of each client whose term is in it.
    """
    parts = [part for name in sorted(weights) for part in (name.encode(), float(weights[name]).hex().encode())]
    return digest(b"kernfed sum included 1", *parts)


def digest(*parts: bytes) -> bytes:
    """SHA-256 of parts, each behind its length."""
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(len(part).to_bytes(8, "big"))
        hasher.update(part)
    return hasher.digest()
