"""A site in secure sums: it introduces itself, judges the others, masks its term, and helps to unmask once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import numpy as np
import structlog

from kernfed.errors import PolicyError, SecureSumError
from kernfed.federation.messages.digests import message_digest
from kernfed.federation.messages.sums import MaskedRequest, MaskedTerm, SumKeys, SumMember, SumTerms
from kernfed.jobs.secure_sum_section import SecureSumSection
from kernfed.pki import folder
from kernfed.pki.authority import utc_now
from kernfed.pki.identity import Identity
from kernfed.pki.sum_keys import Introduction, prove, sign
from kernfed.secure_sums.fixed_point import Words
from kernfed.secure_sums.seat import Seat
from kernfed.secure_sums.terms import MOST_SHARE, Deal, Member, digest, included_digest, threshold
from kernfed_client.sums.once import Once

log = structlog.get_logger(__name__)

MOST_SEATS = 8
"""Sums of a job that are open at a client; of more, that which was opened first is given up."""


class Sums(Protocol):
    """A job's secure sums at a client."""

    def mask(self, request: MaskedRequest, words: Words) -> MaskedTerm:
        """A term as it leaves."""
        ...


_NONE_HERE = "this client takes part in no secure sums: it has no identity to sign its keys with"


class SumSeats:
    """Where a job finds its secure sums; see `StepMemory.memory`."""

    def __init__(self) -> None:
        """Begin without: a job that nobody gave any refuses."""
        self.sums: Sums | None = None

    @property
    def here(self) -> Sums:
        """The job's secure sums.

        Raises:
            SecureSumError: There are none here.
        """
        if self.sums is None:
            raise SecureSumError(_NONE_HERE)
        return self.sums

    @property
    def site(self) -> JobSums:
        """The same, at a site of its own.

        Raises:
            SecureSumError: There are none here.
        """
        if not isinstance(self.sums, JobSums):
            raise SecureSumError(_NONE_HERE)
        return self.sums


class OpenSums:
    """Of a simulation, where all clients are in one process: terms as they are, summed with the same bits."""

    def mask(self, request: MaskedRequest, words: Words) -> MaskedTerm:
        """The term, without masks.

        Raises:
            SecureSumError: It is to be masked.
        """
        if request.terms.sum:
            raise SecureSumError("a simulation masks no terms")
        return MaskedTerm(words=words.view(np.uint8), context="")


@dataclass(frozen=True, slots=True)
class SumSite:
    """What a site's secure sums have in common."""

    load_identity: Callable[[], Identity]
    policy: SecureSumSection
    peers: Mapping[str, str]
    """Fingerprints of the keys of other sites, which this one accepted."""
    once: Once
    now: Callable[[], datetime] = utc_now

    def of_job(self, job_id: str) -> JobSums:
        """Those of a job."""
        return JobSums(self, job_id)


class JobSums:
    """A job's secure sums at its site."""

    def __init__(self, site: SumSite, job_id: str) -> None:
        """Begin with none.

        Args:
            site: This one.
            job_id: The job.
        """
        self._site, self._job = site, job_id
        self._open: OrderedDict[str, _Open] = OrderedDict()

    def keys(self, sum_id: str) -> SumKeys:
        """Keys of this client for a sum, signed.

        Raises:
            IdentityError: There is nothing to sign with.
        """
        me = self._site.load_identity()
        if sum_id not in self._open:
            self._open[sum_id] = _Open(Seat(self._job, sum_id, me.name), me.name)
            while len(self._open) > MOST_SEATS:
                self._open.popitem(last=False)
        seat = self._open[sum_id].seat
        signature = sign(Introduction(self._job, sum_id, me.name, seat.mask_key, seat.box_key), me)
        return SumKeys(
            mask_key=seat.mask_key.hex(),
            box_key=seat.box_key.hex(),
            signature=signature.hex(),
            certificate=me.certificate_pem.decode(),
        )

    def deal(self, sum_id: str, members: Sequence[SumMember]) -> Deal:
        """Shares for the members of a sum, once it is known who they are.

        Raises:
            SecureSumError: One of them is not who it is said to be.
            PolicyError: Too few of them are sites that this one accepted.
        """
        found = self._at(sum_id)
        me = self._site.load_identity()
        ca = folder.parse_certificate(me.ca_pem, me.folder / folder.CA)
        dealt_to, trusted = [], set()
        for member in members:
            keys, name = member.keys, member.client
            mask_key, box_key = _bytes(keys.mask_key, name), _bytes(keys.box_key, name)
            said = Introduction(self._job, sum_id, name, mask_key, box_key)
            pem = keys.certificate.encode()
            key = prove(said, _bytes(keys.signature, name), pem, ca, me.federation, self._site.now())
            if (known := self._site.peers.get(name)) is not None and known != key:
                raise PolicyError(
                    f"the key of {name} in this secure sum is {key}, and this client accepted another one; compare it "
                    f"with {name} by another way, and then run `kernfed-client peers --accept {name} FINGERPRINT`",
                    public=f"the key of {name} is not the one that this client accepted; its administrator has to "
                    "compare it, and to accept it (`kernfed-client peers`)",
                )
            if known is not None and name != found.me:
                trusted.add(name)
            dealt_to.append(Member(name, mask_key, box_key))
        self._enough(trusted, trusted)
        self._few_strangers(len(members), len(trusted))
        dealt = found.seat.deal(dealt_to)
        found.trusted = frozenset(trusted)
        return dealt

    def mask(self, request: MaskedRequest, words: Words) -> MaskedTerm:
        """Mask the term of this client.

        Raises:
            SecureSumError: The sum was not dealt here, or its weights do not add up.
            PolicyError: Nearly all of the weight is this client's, so that the sum is its term.
        """
        terms = request.terms
        found = self._at(terms.sum)
        self._enough(found.trusted, terms.clients)
        self._check_share(found, terms, terms.clients)
        masked, context = found.seat.mask(words, message_digest(request), terms.clients)
        found.terms, found.what = terms, digest(request.step.encode(), message_digest(request.bare))
        return MaskedTerm(words=masked.view(np.uint8), context=context.hex())

    def answer(self, sum_id: str, included: Sequence[str], boxes: Sequence[bytes]) -> tuple[bytes, ...]:
        """Help to unmask a sum, once it is on the disk whose terms it is of.

        Raises:
            SecureSumError: It is of too few, or not of members, or a box cannot be opened.
            PolicyError: It was unmasked for others before, or too few of those are sites that this one accepted.
            OSError: The disk is full.
        """
        found = self._at(sum_id)
        if found.terms is None:
            raise SecureSumError("this client has sent no term of this secure sum, and takes no mask away")
        others = [name for name in found.terms.clients if name != found.me]
        if len(boxes) != len(others):
            raise SecureSumError(f"{len(boxes)} boxes came with this secure sum, and {len(others)} members dealt some")
        self._enough(found.trusted, included)
        self._check_share(found, found.terms, included)
        shares = found.seat.answer(included, dict(zip(others, boxes, strict=True)))
        weights = found.terms.weight_of
        self._site.once.keep(self._job, found.what, included_digest({name: weights[name] for name in included}))
        return shares

    def _at(self, sum_id: str) -> _Open:
        found = self._open.get(sum_id)
        if found is None:
            raise SecureSumError("this client has no keys of this secure sum: it started again since, or never had any")
        return found

    def _check_share(self, found: _Open, terms: SumTerms, names: Sequence[str]) -> None:
        """Refuse a sum that is nearly this client's own term, by the sites that it accepted where it wants such."""
        _check_share(terms, names, found.me, found.trusted if self._site.policy.min_peers else None)

    def _few_strangers(self, members: int, trusted: int) -> None:
        """Refuse a sum in which so many are not accepted that together they could take this client's masks away."""
        strangers, most = members - 1 - trusted, 2 * threshold(members) - members - 1
        if self._site.policy.min_peers and strangers > most:
            raise PolicyError(
                f"{strangers} of the {members} members of this secure sum are not accepted here, and together they "
                f"could take this client's masks away; {most} is the most. Its administrator can accept more of them "
                "(`kernfed-client peers`)"
            )

    def _enough(self, trusted: Set[str], names: Iterable[str]) -> None:
        accepted = len(trusted & set(names))
        if accepted < self._site.policy.min_peers:
            raise PolicyError(
                f"{accepted} of the other sites of this secure sum are accepted here, and policy.secure_sum.min_peers "
                f"is {self._site.policy.min_peers}; its administrator can accept more (`kernfed-client peers`), or "
                "lower it"
            )


@dataclass(slots=True)
class _Open:
    """A sum under way."""

    seat: Seat
    me: str
    trusted: frozenset[str] = frozenset()
    """Other members whose keys this site accepted."""
    terms: SumTerms | None = None
    """As this client's term was asked for."""
    what: bytes = b""
    """Digest of what is summed."""


def _check_share(terms: SumTerms, names: Sequence[str], me: str, trusted: Set[str] | None = None) -> None:
    """Refuse a sum that is nearly this client's own term, also for another member, who knows its own.

    Where only some members are trusted, it is not nearly this client's term among these.
    """
    weights = terms.weight_of
    if not {me, *names} <= weights.keys():
        raise SecureSumError("the terms that this secure sum is said to be of are not of its members")
    others = [weights[name] for name in names if name != me]
    whole = weights[me] + sum(others) - max(others, default=0.0)
    if trusted is not None:
        whole = min(whole, weights[me] + sum(weights[name] for name in names if name in trusted))
    if sum(weights.values()) > 1 + 1e-9 or not weights[me] > 0:
        raise SecureSumError("the weights of this secure sum are not parts of 1, or leave this client out")
    if weights[me] > MOST_SHARE * whole:
        raise PolicyError(
            f"{weights[me] / whole:.0%} of the weight in this secure sum is this client's, of all but the largest "
            "other member's (and of accepted sites alone, with policy.secure_sum.min_peers): others would have nearly "
            f"its term, and nothing was sent; {MOST_SHARE:.0%} is the most. More clients or cohort.max_share lower it"
        )


def _bytes(text: str, client: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise SecureSumError(f"the keys of {client} in this secure sum are not in hexadecimal digits") from None
