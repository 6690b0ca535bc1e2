"""The coordinator's half of a secure sum: masked terms are added, and the masks that do not cancel taken away."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from kernfed.errors import SecureSumError
from kernfed.secure_sums import pads, shamir
from kernfed.secure_sums.fixed_point import WORD, Words
from kernfed.secure_sums.terms import (
    CANARY,
    Deal,
    Member,
    deal_context,
    mask_context,
    own_digest,
    share_digest,
    threshold,
)
from kernfed.wording import listed


class Gathering:
    """One secure sum, from the members' deals to the sum."""

    def __init__(self, job: str, sum_id: str, members: Sequence[Member], deals: Mapping[str, Deal]) -> None:
        """Begin with what was dealt.

        Args:
            job: Id of the job.
            sum_id: Of the sum.
            members: In the order of names.
            deals: By dealer; those whose deals arrived.
        """
        self._members = {member.name: member for member in members}
        self._names = [member.name for member in members]
        self._deals = {name: deals[name] for name in sorted(deals)}
        self._context = deal_context(job, sum_id, members)
        self.least = threshold(len(members))
        self.faults: tuple[str, ...] = ()
        """What was wrong in the shares of `sum` and did it no harm, for people."""

    @property
    def dealers(self) -> tuple[str, ...]:
        """Those whose deals arrived, in the order of names."""
        return tuple(self._deals)

    def context(self, request: bytes) -> bytes:
        """What pads are bound to; see `mask_context`."""
        return mask_context(self._context, request, self.dealers)

    def boxes_for(self, client: str) -> dict[str, bytes]:
        """The boxes that the other dealers sealed for a client, by dealer."""
        found = {}
        for dealer, deal in self._deals.items():
            if dealer != client:
                others = [name for name in self._names if name != dealer]
                found[dealer] = deal.boxes[others.index(client)]
        return found

    def _fitting(
        self, place: int, included: Collection[str], shares: Mapping[str, Sequence[bytes]]
    ) -> dict[str, bytes]:
        """The shares of what a dealer dealt that are what it says it dealt, by who answered with them."""
        dealer = self.dealers[place]
        digests = self._deals[dealer].digests[len(self._names) * (dealer not in included) :]
        return {
            client: found[place]
            for client, found in shares.items()
            if share_digest(self._context, client, found[place]) == digests[self._names.index(client)]
        }

    def _unfit(self, fitting: Mapping[str, Mapping[str, bytes]], answered: Collection[str]) -> Iterator[str]:
        """Whom to look at: a dealer whose word most answers contradict, or else who answered with other shares."""
        doubted = {dealer for dealer, fit in fitting.items() if 2 * len(fit) <= len(answered)}
        for dealer in sorted(doubted):
            yield f"the shares that {dealer} dealt do not fit what it says of them; look at that client"
        for client in sorted(answered):
            dealers = sorted(dealer for dealer in fitting.keys() - doubted if client not in fitting[dealer])
            if dealers:
                yield f"{client} sent a share that is not what {listed(dealers)} dealt to it; look at {client}"

    def sum(self, terms: Mapping[str, Words], request: bytes, shares: Mapping[str, Sequence[bytes]]) -> Words:
        """The sum of the terms.

        Args:
            terms: Masked, of those included.
            request: Digest of what is summed.
            shares: Of those who answered for these terms, each in the order of the dealers. Of what a dealer dealt,
                those count that are what it says of them.

        Raises:
            SecureSumError: Too few shares, a secret that is not what was dealt, or masks that do not cancel; names who
                is at fault.
        """
        if len(shares) < self.least:
            raise SecureSumError(
                f"{len(shares)} clients helped to take masks away, and {self.least} of {len(self._members)} are needed"
            )
        fitting = {dealer: self._fitting(place, terms, shares) for place, dealer in enumerate(self.dealers)}
        self.faults = tuple(self._unfit(fitting, shares))
        if any(len(fit) < self.least for fit in fitting.values()):
            raise SecureSumError("; ".join(self.faults))
        context = self.context(request)
        total = added(list(terms.values()))
        for dealer in self.dealers:
            secret = self._secret(fitting[dealer])
            if dealer in terms:
                if own_digest(self._context, secret) != self._deals[dealer].own:
                    raise SecureSumError(f"the shares that {dealer} dealt do not fit together; look at that client")
                pads.subtract_pad(total, pads.own_seed(secret, context))
            else:
                self._without(total, dealer, secret, tuple(terms), context)
        canary = total[-CANARY:].astype(np.uint64)
        if not (canary == len(terms)).all():
            raise SecureSumError(
                f"the masks of a secure sum over {listed(sorted(terms))} do not cancel: one of them masked otherwise "
                "than the others; the sum is thrown away"
            )
        return total[:-CANARY]

    def _secret(self, shares: Mapping[str, bytes]) -> bytes:
        chosen = sorted(shares)[: self.least]
        return shamir.combine({self._names.index(client) + 1: shares[client] for client in chosen})

    def _without(self, total: Words, lost: str, key: bytes, included: Sequence[str], context: bytes) -> None:
        """Take the pads away that others share with a client whose term does not count."""
        if pads.public_key(key) != self._members[lost].mask_key:
            raise SecureSumError(f"the shares that {lost} dealt do not fit together; look at that client")
        for client in included:
            seed = pads.pair_seed(key, self._members[client].mask_key, context, lost, client)
            (pads.subtract_pad if lost > client else pads.add_pad)(total, seed)


def added(terms: Sequence[Words]) -> Words:
    """The sum of words modulo 2^64, in whatever order."""
    total = np.array(terms[0], dtype=WORD)
    for words in terms[1:]:
        np.add(total, words, out=total)
    return total
