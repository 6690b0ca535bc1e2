"""A client's half of one secure sum: keys, shares for the others, its masked term, and its answer to whose terms count.

Secrets live in memory alone: a client that restarts has lost its seat, and counts as lost to the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from cryptography.exceptions import InvalidTag

from kernfed.errors import SecureSumError
from kernfed.secure_sums import pads, shamir
from kernfed.secure_sums.fixed_point import WORD, Words
from kernfed.secure_sums.terms import (
    CANARY,
    FEWEST,
    Deal,
    Member,
    deal_context,
    digest,
    mask_context,
    own_digest,
    share_digest,
    threshold,
)


class Seat:
    """One client in one sum. Each trip may be asked again alike, and is refused otherwise."""

    def __init__(self, job: str, sum_id: str, name: str) -> None:
        """Draw the secrets of the sum.

        Args:
            job: Id of the job.
            sum_id: Of the sum.
            name: Of this client.
        """
        self._job, self._sum_id, self._name = job, sum_id, name
        self._mask_private, self._box_private, self._own = (shamir.new_secret() for _ in range(3))
        self.mask_key, self.box_key = pads.public_key(self._mask_private), pads.public_key(self._box_private)
        self._members: dict[str, Member] = {}
        self._context = b""
        self._deal: Deal | None = None
        self._own_shares = (b"", b"")
        self._masked: tuple[bytes, bytes] | None = None
        self._dealers: tuple[str, ...] = ()
        self._told: frozenset[str] | None = None

    def deal(self, members: Sequence[Member]) -> Deal:
        """Shares of this client's secrets for all members of the sum.

        Args:
            members: All of them, this client among them, in the order of names.

        Raises:
            SecureSumError: They are too few, not in order, or others than before; or this client's keys are not its.
        """
        names = [member.name for member in members]
        if names != sorted(set(names)) or len(names) < FEWEST:
            raise SecureSumError(f"a secure sum takes {FEWEST} clients or more, each once, in the order of names")
        context = deal_context(self._job, self._sum_id, members)
        if self._deal is not None:
            if context != self._context:
                raise SecureSumError("the members of this secure sum are others than those that it was dealt to")
            return self._deal
        if Member(self._name, self.mask_key, self.box_key) not in members:
            raise SecureSumError("the keys that the members of this secure sum have of this client are not its own")
        self._members, self._context = {member.name: member for member in members}, context
        least = threshold(len(members))
        own = shamir.split(self._own, least, len(members))
        key = shamir.split(self._mask_private, least, len(members))
        self._own_shares = next((b, k) for name, b, k in zip(names, own, key, strict=True) if name == self._name)
        boxes = []
        for member, b, k in zip(members, own, key, strict=True):
            if member.name != self._name:
                boxes.append(self._seal(member, b + k))
        digests = [
            share_digest(context, name, s) for shares in (own, key) for name, s in zip(names, shares, strict=True)
        ]
        self._deal = Deal(tuple(boxes), tuple(digests), own_digest(context, self._own))
        return self._deal

    def mask(self, words: Words, request: bytes, dealers: Sequence[str]) -> tuple[Words, bytes]:
        """Mask this client's term; gives it, and the digest that the masks are bound to.

        Args:
            words: Its term.
            request: Digest of what is summed, with the weights of all.
            dealers: Members whose deals arrived, this client among them, in the order of names.

        Returns:
            The term with `CANARY` words behind it, masked: without the masks of all they tell nothing.

        Raises:
            SecureSumError: The sum was not dealt, too few dealt, or other words were masked before.
        """
        self._check_dealers(dealers)
        context = mask_context(self._context, request, dealers)
        masked = np.concatenate([words, np.ones(CANARY, WORD)]).astype(WORD, copy=False)
        of = digest(masked.tobytes())
        if self._masked is not None and self._masked != (context, of):
            raise SecureSumError("this client masked another term in this secure sum; a pad is used once")
        if self._told is not None:
            raise SecureSumError("this secure sum is over here")
        self._masked, self._dealers = (context, of), tuple(dealers)
        pads.add_pad(masked, pads.own_seed(self._own, context))
        for name in dealers:
            if name != self._name:
                seed = pads.pair_seed(self._mask_private, self._members[name].mask_key, context, self._name, name)
                (pads.add_pad if name > self._name else pads.subtract_pad)(masked, seed)
        return masked, context

    def answer(self, included: Sequence[str], boxes: Mapping[str, bytes]) -> tuple[bytes, ...]:
        """For each dealer, the share that takes a mask away: of its secret b where its term counts, else of its key.

        Args:
            included: Whose terms the sum is of, this client's among them, in the order of names.
            boxes: From each other dealer, by its name.

        Returns:
            Shares in the order of the dealers.

        Raises:
            SecureSumError: The set is too small, or another one than was answered before, or a box cannot be opened.
        """
        if self._masked is None:
            raise SecureSumError("this client has sent no term of this secure sum, and takes no mask away")
        names = list(included)
        if names != sorted(set(names)) or not set(names) <= set(self._dealers) or self._name not in names:
            raise SecureSumError("the terms that this secure sum is said to be of are not of its members")
        least = max(FEWEST, threshold(len(self._members)))
        if len(names) < least:
            raise SecureSumError(f"this secure sum would be of {len(names)} terms, and {least} are the fewest")
        if self._told is not None and self._told != frozenset(names):
            raise SecureSumError("this client took masks away for another set of terms; it answers for one alone")
        shares = []
        for dealer in self._dealers:
            b, key = self._own_shares if dealer == self._name else self._open(dealer, boxes.get(dealer, b""))
            shares.append(b if dealer in set(names) else key)
        self._told = frozenset(names)
        return tuple(shares)

    def _check_dealers(self, dealers: Sequence[str]) -> None:
        if self._deal is None:
            raise SecureSumError("this client has dealt no shares in this secure sum, and sends no term")
        names = list(dealers)
        known = names == sorted(set(names)) and set(names) <= self._members.keys() and self._name in names
        least = max(FEWEST, threshold(len(self._members)))
        if not known or len(names) < least:
            raise SecureSumError(f"{len(names)} members dealt shares in this secure sum, and {least} are the fewest")

    def _seal(self, member: Member, content: bytes) -> bytes:
        try:
            return pads.seal(content, self._box_private, member.box_key, self._context, self._name, member.name)
        except ValueError:
            raise SecureSumError(f"the key of {member.name} for this secure sum is none") from None

    def _open(self, dealer: str, box: bytes) -> tuple[bytes, bytes]:
        of = self._box_private, self._members[dealer].box_key, self._context, dealer, self._name
        try:
            content = pads.unseal(box, *of)
        except (InvalidTag, ValueError):
            content = b""
        if len(content) != 2 * shamir.SIZE:
            raise SecureSumError(
                f"the shares that {dealer} dealt to this client in this secure sum cannot be read: {dealer}, or the "
                "coordinator between, changed them"
            )
        return content[: shamir.SIZE], content[shamir.SIZE :]
