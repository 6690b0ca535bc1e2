"""A weighted mean over clients of which the coordinator sees no term: four trips, and the masks that it takes away.

Keys; shares of what masks are made of; masked terms; shares that take masks away. Each trip waits by the job's quorum,
and by the threshold of the sum (`kernfed.secure_sums.terms.threshold`); who is lost in a trip is left out of the sum.
Whose terms count is in a checkpoint before the last trip: a coordinator that dies then sums over the same again, since
two sums that differ by one client would tell that client's term.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Array
from kernfed.errors import KernfedError, SecureSumError
from kernfed.federation.cohort import Cohort
from kernfed.federation.messages.digests import message_digest
from kernfed.federation.messages.sums import (
    BOX_BYTES,
    MaskedRequest,
    MaskedTerm,
    SumDealRequest,
    SumDealt,
    SumKeys,
    SumKeysRequest,
    SumMember,
    SumShares,
    SumTerms,
    SumUnmaskRequest,
)
from kernfed.pki.sum_keys import Introduction, check_signed
from kernfed.secure_sums import pads
from kernfed.secure_sums.fixed_point import WORD, Words, decode, exponent_of
from kernfed.secure_sums.gathering import Gathering, added
from kernfed.secure_sums.pads import KEY_BYTES
from kernfed.secure_sums.shamir import SIZE
from kernfed.secure_sums.terms import DIGEST, FEWEST, Deal, Member, threshold
from kernfed.wording import listed
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.state import json_array, json_of

_KEPT = "secure sum "
"""Beginning of the names under which a run keeps whose terms the sums of its round are of."""


@dataclass(frozen=True, slots=True)
class SecureMean:
    """A mean over clients."""

    arrays: Mapping[str, Array]
    """By the names of the arrays that were summed."""
    included: tuple[str, ...]
    """Clients whose terms it is of, sorted."""


async def secure_mean(
    cohort: Cohort,
    run: Run,
    round_num: int,
    request: Callable[[SumTerms], MaskedRequest],
    weights: Mapping[str, float],
    bound: float,
    *,
    whole: bool = False,
    everyone: bool = False,
) -> SecureMean:
    """The mean of what clients answer, weighted, from a sum of masked terms.

    Args:
        cohort: Whom to ask.
        run: Keeps whose terms count.
        round_num: The round.
        request: Whose terms, and their weights -> the request.
        weights: Of each client, above 0.
        bound: No number of a term is larger in size; a client whose are refuses.
        whole: Whether terms of all are needed: nothing is unmasked where one is missing.
        everyone: Whether all are waited for, beyond the deadline.

    Raises:
        QuorumNotMetError: Too few clients answered.
        SecureSumError: The masks could not be taken away.
    """
    exponent = exponent_of(bound)
    asks = request(SumTerms(sum="", clients=(), weights=(), exponent=exponent))
    step, what = asks.step, message_digest(asks.bare, cohort.float_bits).hex()
    of_round = f"{_KEPT}{round_num} "
    run.agreed.drop_before(_KEPT, of_round)
    name = f"{of_round}{step} {what}"
    kept = run.agreed.get(name)
    before: dict[str, float] | None = None if kept is None else json_of(kept)
    asked = cohort.clients if before is None else tuple(before)
    parts = before or _parts_of({client: weights[client] for client in asked})

    def terms(sum_id: str, clients: Sequence[str]) -> SumTerms:
        return SumTerms(
            sum=sum_id, clients=tuple(clients), weights=tuple(parts[client] for client in clients), exponent=exponent
        )

    if not cohort.masks:
        plain = request(terms("", asked))
        replies = await cohort.ask(plain, clients=asked)
        words = {client: _words(reply) for client, reply in replies.items()}
        if whole:
            _refuse_part(step, cohort.clients, words)
        return _mean(plain, added([words[client] for client in sorted(words)]), tuple(sorted(words)))

    trips = _Trips(cohort, f"{round_num}/{step}/{secrets.token_hex(8)}", asked, everyone=everyone or before is not None)
    gathering = await trips.dealt()
    masked = request(terms(trips.sum_id, gathering.dealers))
    collected = await trips.masked(gathering, masked)
    included = tuple(sorted(collected))
    if before is not None and included != asked:
        raise SecureSumError(
            f"{step} was to be summed over {listed(asked)} before the coordinator started again, and "
            f"{listed(sorted(set(asked) - set(included)))} failed since: over others nothing may be told. Submit the "
            "job again"
        )
    if whole:
        _refuse_part(step, cohort.clients, included)
    run.agreed.put(name, json_array({client: masked.terms.weight_of[client] for client in included}))
    await run.write_agreed()
    shares = await trips.unmasked(gathering, included)
    digest = message_digest(masked, cohort.float_bits)
    total = await asyncio.to_thread(gathering.sum, collected, digest, shares)
    for fault in gathering.faults:
        run.note_once(f"in a secure sum {fault}; the sum is right all the same")
    return _mean(masked, total, included)


def _parts_of(weights: Mapping[str, float]) -> dict[str, float]:
    """Weights as parts of those of all who are asked, so that a sum has the same bits whenever one of them is lost."""
    every = math.fsum(weights.values())
    return {client: float(weight / every) for client, weight in weights.items()}


def _refuse_part(step: str, clients: Iterable[str], included: Iterable[str]) -> None:
    """Raise where a sum is not over all clients, whom it needs."""
    if missing := sorted(set(clients) - set(included)):
        raise SecureSumError(f"{step} is summed over all clients, and {listed(missing)} did not answer")


class _Trips:
    """The trips of one sum, in their order."""

    def __init__(self, cohort: Cohort, sum_id: str, asked: Sequence[str], *, everyone: bool) -> None:
        self._cohort, self.sum_id, self._asked, self._everyone = cohort, sum_id, asked, everyone

    async def dealt(self) -> Gathering:
        """Keys, and then shares of what masks are made of."""
        keys = await self._cohort.ask(
            SumKeysRequest(sum=self.sum_id),
            clients=self._asked,
            everyone=self._everyone,
            fresh=True,
            refusing=lambda client, reply: _wrong_keys(self._introduced(client, reply), reply),
            needed=self._needed(len(self._asked)),
        )
        names = tuple(sorted(keys))
        members = tuple(SumMember(client=name, keys=keys[name]) for name in names)
        deals = await self._cohort.ask(
            SumDealRequest(sum=self.sum_id, members=members),
            clients=names,
            everyone=self._everyone,
            fresh=True,
            refusing=lambda _, reply: _wrong_deal(reply, len(names)),
            needed=self._needed(len(names)),
        )
        parties = [Member(n, bytes.fromhex(keys[n].mask_key), bytes.fromhex(keys[n].box_key)) for n in names]
        found = {client: _deal(reply) for client, reply in deals.items()}
        return Gathering(self._cohort.job_id, self.sum_id, parties, found)

    async def masked(self, gathering: Gathering, request: MaskedRequest) -> dict[str, Words]:
        """Masked terms, by client."""
        context = gathering.context(message_digest(request, self._cohort.float_bits)).hex()

        def refusing(_: str, reply: MaskedTerm) -> Iterator[str]:
            if reply.context != context:
                yield "masked its term for another request than the others"

        replies = await self._cohort.ask(
            request,
            clients=gathering.dealers,
            everyone=self._everyone,
            fresh=True,
            refusing=refusing,
            needed=max(self._needed(0), gathering.least),
        )
        return {client: _words(reply) for client, reply in replies.items()}

    async def unmasked(self, gathering: Gathering, included: Sequence[str]) -> dict[str, tuple[bytes, ...]]:
        """Shares that take masks away, by client that answered."""
        requests = {
            client: SumUnmaskRequest(
                sum=self.sum_id, included=tuple(included), boxes=_rows(gathering.boxes_for(client).values())
            )
            for client in included
        }

        def refusing(_: str, reply: SumShares) -> Iterator[str]:
            if (len(reply.shares), reply.shares.nbytes) != (len(gathering.dealers), SIZE * len(gathering.dealers)):
                yield f"sent {reply.shares.nbytes} bytes of shares for {len(gathering.dealers)} members"

        replies = await self._cohort.ask_each(requests, fresh=True, refusing=refusing, needed=gathering.least)
        return {client: _parts(reply.shares) for client, reply in replies.items()}

    def _needed(self, members: int) -> int:
        """Answers of so many that a sum needs: as the quorum and the threshold say, and three."""
        return max(self._cohort.needed, FEWEST, threshold(members))

    def _introduced(self, client: str, reply: SumKeys) -> Introduction | None:
        try:
            keys = bytes.fromhex(reply.mask_key), bytes.fromhex(reply.box_key)
        except ValueError:
            return None
        return Introduction(self._cohort.job_id, self.sum_id, client, *keys)


def _mean(request: MaskedRequest, total: Words, included: tuple[str, ...]) -> SecureMean:
    weights = request.terms.weight_of
    whole = math.fsum(weights[client] for client in included)
    numbers = decode(total, request.terms.exponent) / whole
    arrays, start = {}, 0
    for name, shape in request.shapes.items():
        size = math.prod(shape)
        arrays[name], start = numbers[start : start + size].reshape(shape), start + size
    return SecureMean(arrays, included)


def _wrong_keys(said: Introduction | None, reply: SumKeys) -> Iterator[str]:
    if said is None or {len(said.mask_key), len(said.box_key)} != {KEY_BYTES}:
        yield "sent keys of a secure sum that are none"
        return
    try:
        for key in (said.mask_key, said.box_key):
            pads.pair_seed(secrets.token_bytes(KEY_BYTES), key, b"", "", "")
    except ValueError:
        yield "sent keys of a secure sum with which nobody can agree on a secret"
        return
    try:
        check_signed(said, bytes.fromhex(reply.signature), reply.certificate.encode())
    except ValueError:
        yield "sent a signature that is not in hexadecimal digits"
    except KernfedError as err:
        yield f"did not introduce itself: {err}"


def _wrong_deal(reply: SumDealt, members: int) -> Iterator[str]:
    sizes = reply.boxes.nbytes, reply.digests.nbytes, len(reply.own)
    wanted = BOX_BYTES * (members - 1), 2 * DIGEST * members, 2 * KEY_BYTES
    rows = len(reply.boxes), len(reply.digests)
    if sizes != wanted or rows != (members - 1, 2 * members) or not set(reply.own) <= set("0123456789abcdef"):
        yield f"dealt {sizes[0]} bytes of shares and {sizes[1]} of digests, and {wanted[0]} and {wanted[1]} are wanted"


def _deal(reply: SumDealt) -> Deal:
    return Deal(_parts(reply.boxes), _parts(reply.digests), bytes.fromhex(reply.own))


def _words(reply: MaskedTerm) -> Words:
    words: Words = reply.words.reshape(-1).view(WORD)
    return words


def _parts(rows: Array) -> tuple[bytes, ...]:
    return tuple(row.tobytes() for row in rows)


def _rows(parts: Iterable[bytes]) -> Array:
    return np.frombuffer(b"".join(parts), np.uint8).reshape(-1, BOX_BYTES)


def fewest_are_here(cohort: Cohort) -> None:
    """Refuse secure sums over too few clients, before anything is asked.

    Raises:
        SecureSumError: There are fewer than `FEWEST`.
    """
    if len(cohort.clients) < FEWEST:
        raise SecureSumError(
            f'privacy.sums is "secure", and the job has {len(cohort.clients)} clients: of two, each learns '
            f"the other one's term from the sum. Let {FEWEST} or more take part; nothing was asked"
        )
