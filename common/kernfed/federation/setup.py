"""Requests that set up a client's state: what replies to them must pass, and the order in which states stand on them.

A client's answer is worth what its state is. Both sides keep a chain of the setup requests that were done at the
client, and each task says on which chain it stands: a client with another one, as where its preparation was cut in its
midst, says so, and is prepared again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernfed.errors import KernfedError
from kernfed.federation.exchange import NO_ANSWER, Call, Fault
from kernfed.federation.messages.base import Reply, Request

Check = Callable[[str, Any], None]
"""Looks at a client's reply to a request before round 1; raises KernfedError where it does not hold up."""


def pass_all(_client: str, _reply: object) -> None:
    """A `Check` that finds no fault."""


@dataclass(frozen=True, slots=True)
class SetupRequest:
    """A request that a client needs before it can take part."""

    request: Request[Any]
    check: Check

    def fault(self, client: str, outcome: Reply | Fault | None) -> Fault | None:
        """Why a client is not prepared by what came of the request; None: it is."""
        if outcome is None:
            return NO_ANSWER
        if isinstance(outcome, Fault):
            return outcome
        try:
            self.check(client, outcome)
        except KernfedError as err:
            return Fault.of(err)
        return None


@dataclass(slots=True)
class SetupChain:
    """Setup requests that a client's state stands on, in their order.

    A step that is done again keeps its place. Those behind it stood on it and are void, unless it leaves them as they
    are.
    """

    links: list[tuple[str, str]] = field(default_factory=list)
    """(step, digest of the request as hexadecimal digits)."""

    def place(self, step: str) -> int | None:
        """Where a step lies in the chain."""
        return next((place for place, (name, _) in enumerate(self.links) if name == step), None)

    def put(self, request: type[Request[Any]], sha256: bytes) -> None:
        """A setup request, of which this is the SHA-256, was done."""
        place, link = self.place(request.step), (request.step, sha256.hex())
        if place is None:
            self.links.append(link)
            return
        self.links[place] = link
        if not request.leaves_later:
            del self.links[place + 1 :]

    def under(self, request: type[Request[Any]]) -> bytes | None:
        """SHA-256 of what the answer to a request stands on; None: the digest of one of its links is not known."""
        links, place = self.links, self.place(request.step) if request.setup else None
        if place is not None:
            links = links[:place] + (links[place + 1 :] if request.leaves_later else [])
        if not all(sha256 for _, sha256 in links):
            return None
        return hashlib.sha256("\n".join(f"{step} {sha256}" for step, sha256 in links).encode()).digest()


NOTHING = hashlib.sha256(b"").digest()
"""`SetupChain.under` where nothing was set up."""
_NEVER = bytes(32)
"""The digest of no chain: a client that is asked by it is prepared again."""


class SetupBook:
    """What the state of each client of a job stands on, as far as the coordinator knows."""

    def __init__(self) -> None:
        """Begin a job: nothing was set up."""
        self._chains: dict[str, SetupChain] = {}
        self._unknown: set[str] = set()
        """Clients of which an earlier release kept no chain."""
        self._broken: set[str] = set()
        """Clients that missed a step that all were asked, or whose preparation is under way."""

    def to_json(self) -> dict[str, Any]:
        """The book as JSON values: chains, with the clients that have each, and whose preparation is not whole."""
        alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
        for client, chain in sorted(self._chains.items()):
            if client not in self._unknown:
                alike.setdefault(tuple(chain.links), []).append(client)
        return {"chains": [[links, clients] for links, clients in alike.items()], "broken": sorted(self._broken)}

    def reopen(self, kept: Mapping[str, Any] | None, clients: Iterable[str]) -> None:
        """Go on where an earlier life of the job was.

        Args:
            kept: What `to_json` gave then; None: a release of before kept nothing.
            clients: Of then.
        """
        if kept is None:
            self._unknown.update(clients)
            return
        for links, alike in kept["chains"]:
            for client in alike:
                self._chains[client] = SetupChain([(step, sha256) for step, sha256 in links])
        self._broken.update(kept["broken"])

    def stands_on(
        self, request: type[Request[Any]], clients: Iterable[str], *, preparing: bool = False
    ) -> dict[str, bytes]:
        """Digest, for each client, of what its answer is to stand on; one is left out where nothing is known.

        Args:
            request: What the clients are asked.
            clients: Their names.
            preparing: Whether it is a part of a preparation.
        """
        found = {}
        for client in clients:
            if client in self._broken and not preparing:
                found[client] = _NEVER
            elif client not in self._unknown:
                under = self._chains.get(client, SetupChain()).under(request)
                if under is not None:
                    found[client] = under
        return found

    def note(self, call: Call[Any], outcomes: Mapping[str, object], *, of_all: bool) -> None:
        """Take what came of a setup request.

        Args:
            call: The request.
            outcomes: Of the clients that were asked, by name.
            of_all: Whether all that is asked later stands on it: a client without an answer is not prepared then.
        """
        for client in call.clients:
            if isinstance(outcomes.get(client), Reply):
                if client not in self._unknown and (sha256 := call.sent.get(client)) is not None:
                    self._chains.setdefault(client, SetupChain()).put(type(call.request), sha256)
            elif of_all:
                self._broken.add(client)

    def missed(self, clients: Iterable[str]) -> None:
        """All are asked a setup request but these, which are out of the round: they are not prepared then."""
        self._broken.update(clients)

    def begin(self, client: str) -> None:
        """A client is prepared from the beginning; until `prepared`, it is not."""
        self._chains[client] = SetupChain()
        self._unknown.discard(client)
        self._broken.add(client)

    def prepared(self, client: str) -> None:
        """A client's preparation is whole."""
        self._broken.discard(client)
