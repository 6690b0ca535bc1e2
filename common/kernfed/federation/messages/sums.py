"""The trips of a secure sum: keys, shares of what masks are made of, masked terms, shares that take masks away.

A method's own request becomes one whose answer is masked by a class of its own, a `MaskedRequest`. The steps here tell
nothing of the data; see `kernfed.secure_sums` for what is in them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from kernfed.arrays import Array
from kernfed.errors import SecureSumError
from kernfed.federation.messages.base import (
    Kind,
    MaxLength,
    Message,
    Name,
    Names,
    Range,
    Reply,
    Request,
    Shape,
    Whole,
    fields_of,
    validate,
)
from kernfed.secure_sums.fixed_point import EXPONENT_STEP, LEAST_EXPONENT, MOST_EXPONENT, WORD
from kernfed.secure_sums.shamir import SIZE
from kernfed.secure_sums.terms import CANARY, DIGEST, TAG_BYTES

IN_THE_CLEAR = frozenset({Kind.SUMMARY, Kind.MEAN_EMBEDDING, Kind.METRIC})
"""Kinds of information that no secure sum is made of."""
MOST_MEMBERS = 1000
"""Clients of a sum: each deals shares to all others."""
Hex = Annotated[str, MaxLength(64)]
"""Key or digest of 32 bytes in hexadecimal digits."""
BOX_BYTES = 2 * SIZE + TAG_BYTES
"""Two shares, sealed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SumKeys(Reply):
    """A client's keys for one secure sum, under its signature."""

    mask_key: Hex
    """X25519 public key of its masks."""
    box_key: Hex
    """X25519 public key of the boxes that it seals and opens."""
    signature: Annotated[str, MaxLength(256)]
    """By the key of its certificate, over job, sum and both keys, in hexadecimal digits."""
    certificate: Annotated[str, MaxLength(16384)]
    """Its certificate in PEM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SumKeysRequest(Request[SumKeys]):
    """Draw the keys of a secure sum."""

    step = "sums.keys"
    reply = SumKeys

    sum: Name
    """Id of the sum within the job; each attempt has its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SumMember(Message):
    """A client of a secure sum, as it introduced itself."""

    client: Name
    """Its name."""
    keys: SumKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class SumDealt(Reply):
    """What a client deals of its secrets: sealed shares, which the coordinator cannot read."""

    boxes: Annotated[Array, Shape("K", BOX_BYTES), Whole()]
    """Bytes of a box to each other member, in the order of names."""
    digests: Annotated[Array, Shape("L", DIGEST), Whole()]
    """Bytes of the digest of every member's share of the own secret, then of every one's share of the mask key."""
    own: Hex
    """Digest of the own secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SumDealRequest(Request[SumDealt]):
    """Deal shares of the own secret and of the mask key to all members of a sum."""

    step = "sums.deal"
    reply = SumDealt

    sum: Name
    """Id of the sum."""
    members: Annotated[tuple[SumMember, ...], MaxLength(MOST_MEMBERS)]
    """In the order of names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SumShares(Reply):
    """Shares by which masks are taken away."""

    shares: Annotated[Array, Shape("D", SIZE), Whole()]
    """Bytes of one for each member that dealt, in the order of names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SumUnmaskRequest(Request[SumShares]):
    """Help to take masks away: of the own secrets of those whose terms count, of the mask keys of the others."""

    step = "sums.unmask"
    reply = SumShares

    sum: Name
    """Id of the sum."""
    included: Names
    """Clients whose terms the sum is of, in the order of names."""
    boxes: Annotated[Array, Shape("K", BOX_BYTES), Whole()]
    """Bytes of one from each other member that dealt, in the order of names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SumTerms(Message):
    """Of whom a secure sum is, with which weights, and within which bound."""

    sum: Name
    """Id of the sum."""
    clients: Names
    """Members that dealt their shares, in the order of names."""
    weights: Annotated[tuple[float, ...], MaxLength(MOST_MEMBERS), Range(0, 1)]
    """Of each of them; they add up to 1 at most."""
    exponent: Annotated[int, Range(LEAST_EXPONENT, MOST_EXPONENT)]
    """e, a multiple of 8: numbers up to 2^e in size are summed as whole multiples of 2^(e - 61)."""

    @property
    def weight_of(self) -> dict[str, float]:
        """Weight of each client.

        Raises:
            SecureSumError: They are not of the members.
        """
        if len(self.weights) != len(self.clients):
            raise SecureSumError("the weights of this secure sum are not of its members")
        return dict(zip(self.clients, self.weights, strict=True))

    def check_member(self, client: str) -> None:
        """See that a client may send a term.

        Raises:
            SecureSumError: It is none of the members, or the bound would tell how large its numbers are.
        """
        if client not in self.weight_of:
            raise SecureSumError("the weights of this secure sum leave this client out")
        if self.exponent % EXPONENT_STEP:
            raise SecureSumError(
                f"the bound of this secure sum is 2^{self.exponent}, which would tell how large this client's numbers "
                f"are; exponents are multiples of {EXPONENT_STEP}. Look at the coordinator"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedTerm(Reply):
    """A client's term of a secure sum, under masks: without those of all others it is random bytes."""

    words: Annotated[Array, Shape("W"), Whole()]
    """Bytes of its numbers as words modulo 2^64, little-endian, and the words of the canary behind them."""
    context: Hex
    """Digest that its masks are bound to: those of clients that were asked otherwise do not cancel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedRequest(Request[MaskedTerm]):
    """A method's own request, whose answers are summed under masks.

    Class attributes:
        asks: The method's own request.
        summed: Arrays and floats of its reply, of which the weighted sums are formed; nothing else of it leaves.
    """

    reply = MaskedTerm
    asks: ClassVar[type[Request[Any]]]
    summed: ClassVar[tuple[str, ...]]

    terms: SumTerms

    @property
    def bare(self) -> Request[Any]:
        """The method's own request."""
        inner: Request[Any] = self.inner  # type: ignore[attr-defined]  # each such request has one, of its own type
        return inner

    @property
    def remark(self) -> str:
        """See `Request.remark`."""
        return f"masked; part of a sum of {len(self.terms.clients)} sites"

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each array that is summed, by its name; that of a float is ()."""
        sizes = validate(self.bare, {}, finite=False)
        declared = {f.name: () if f.shape is None else f.shape.dims for f in fields_of(self.asks.reply)}
        return {name: tuple(d if isinstance(d, int) else sizes[d] for d in declared[name]) for name in self.summed}

    def refusals(self, reply: MaskedTerm) -> Iterator[str]:
        """See `Request.refusals`."""
        wanted = (sum(map(math.prod, self.shapes.values())) + CANARY * bool(self.terms.sum)) * WORD.itemsize
        if reply.words.dtype.itemsize != 1 or reply.words.size != wanted:
            yield f"sent {reply.words.nbytes} bytes of a secure sum, and {wanted} are of its shape"


def seen_in_the_clear(request: type[Request[Any]]) -> list[Kind]:
    """Kinds of information that an answer shows of one client alone, though secure sums could be made of them."""
    return [] if issubclass(request, MaskedRequest) else [kind for kind in request.kinds if kind not in IN_THE_CLEAR]
