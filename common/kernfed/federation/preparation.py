"""Clients that lack what a step stands on: all that was asked before round 1 is asked of them again, then the step."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernfed.federation.events import EventKind, JobEvent
from kernfed.federation.exchange import Call, Exchange, Fault
from kernfed.federation.messages.base import R, Reply, Request
from kernfed.federation.quorum import RowsNeeded
from kernfed.federation.setup import Check, SetupBook, SetupRequest, pass_all
from kernfed.wording import listed

MOST_PREPARATIONS = 3
"""Times that a client is prepared again within a step: it may lose its state once more, or say so for ever."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """How long clients that are prepared again are waited for: as the step waits that hangs on them."""

    needed: int = 0
    """Answers that the step lacks for its quorum without these clients; 0: it can do without them."""
    everyone: bool = False

    @classmethod
    def by(cls, call: Call[Any], answered: Collection[str]) -> Wanted:
        """Wanted for a call that these clients have answered."""
        lacking = max(call.needed - len(answered), 0 if call.rows.reached(answered) else 1)
        return cls(lacking, call.everyone)

    def of(self, call: Call[R]) -> Call[R]:
        """A call to such clients that waits so."""
        needed = min(self.needed, len(call.clients))
        return replace(call, needed=needed, everyone=self.everyone, rows=RowsNeeded())


SetupCall = Callable[[Request[Any], tuple[str, ...], str], Call[Any]]
"""(setup request, clients, mark) -> the call; the mark tells its task from others."""


class Preparation:
    """The setup requests of one job, and what each client's state stands on."""

    def __init__(self, exchange: Exchange, call_of: SetupCall) -> None:
        """Begin with nothing asked.

        Args:
            exchange: Reaches the clients.
            call_of: Makes the call of a setup request that is asked again.
        """
        self._exchange = exchange
        self._call_of = call_of
        self._requests: list[SetupRequest] = []
        self._done = SetupBook()
        self._find_again: Callable[[Sequence[str]], Awaitable[None]] | None = None

    @property
    def book(self) -> dict[str, Any]:
        """What a later life of the job has to know of it, as JSON values."""
        return self._done.to_json()

    def reopen(self, book: Mapping[str, Any] | None, clients: Iterable[str]) -> None:
        """Go on where an earlier life of the job was; arguments as of `SetupBook.reopen`."""
        self._done.reopen(book, clients)

    def recall(self, request: Request[Any], check: Check = pass_all) -> None:
        """Take a setup request for asked: a client that lacks it is asked it again."""
        self._requests.append(SetupRequest(request, check))

    def missed(self, clients: Iterable[str]) -> None:
        """All are asked a setup request but these."""
        self._done.missed(clients)

    def restore_by(self, find_again: Callable[[Sequence[str]], Awaitable[None]]) -> None:
        """State how clients get back what no setup request alone can give them.

        Args:
            find_again: Is told clients that still lack state when their setup was repeated; it may ask the cohort.
                They are then prepared and asked again. Called at most `MOST_PREPARATIONS` - 1 times within a step.
        """
        self._find_again = find_again

    async def ask(self, call: Call[R], known: Container[str], *, of_all: bool) -> dict[str, R | Fault]:
        """Ask clients, and prepare those that lack what it stands on before they are asked again.

        Args:
            call: What to ask.
            known: Clients that were prepared before; of others nobody is told that they lost their state.
            of_all: As of `SetupBook.note`.

        Returns:
            Outcomes by client; of one that was prepared in vain, the fault that says so.

        Raises:
            QuorumNotMetError: Too few answered, or were prepared again, as long as the step waits.
        """
        outcomes = dict(await self._exchanged(call, of_all=of_all))
        for attempt in range(1, MOST_PREPARATIONS + 1):
            if not (lacking := call.unprepared(outcomes)):
                break
            if attempt > 1:
                await self._restore([*lacking])
            elif lost := [client for client in lacking if client in known]:
                text = f"{listed(lost)}: what was prepared there was lost or cut short, and is prepared again"
                call.observe(JobEvent(EventKind.NOTE, call.round_num, call.request.step, message=text))
            wanted = Wanted.by(call, [client for client, o in outcomes.items() if isinstance(o, Reply)])
            outcomes.update(await self._again(call, tuple(lacking), attempt, wanted, of_all=of_all))
        for client, fault in call.unprepared(outcomes).items():
            call.tell_failed(client, fault)
        return outcomes

    async def repeat(self, clients: Sequence[str], mark: str, wanted: Wanted | None = None) -> dict[str, Fault]:
        """Ask clients all setup requests in their order.

        Args:
            clients: Their names.
            mark: Tells these tasks from others.
            wanted: How long they are waited for; unset: no step hangs on them.

        Returns:
            Faults of those that are not prepared, by client.

        Raises:
            QuorumNotMetError: A step hangs on these clients, and too few of them were prepared as long as it waits.
        """
        wanted = wanted or Wanted()
        faults: dict[str, Fault] = {}
        ready = tuple(clients)
        for client in ready:
            self._done.begin(client)
        for i, setup in enumerate(tuple(self._requests)):
            call = wanted.of(self._call_of(setup.request, ready, f"{mark}-{i}"))
            outcomes = await self._exchanged(call, of_all=True, preparing=True)
            for client in ready:
                outcome = outcomes.get(client)
                fault = setup.fault(client, outcome)
                if fault is not None:
                    faults[client] = fault
                    if isinstance(outcome, Reply):  # other faults were told as they arrived
                        call.tell_failed(client, fault)
            ready = tuple(c for c in ready if c not in faults)
            if not ready:
                break
        for client in ready:
            self._done.prepared(client)
        return faults

    async def _exchanged(self, call: Call[R], *, of_all: bool, preparing: bool = False) -> Mapping[str, R | Fault]:
        """Outcomes of a call, which says on what setup the answers are to stand; `SetupBook.note` has the arguments."""
        setup, outcomes = type(call.request), dict[str, R | Fault]()
        call = replace(call, stands_on=self._done.stands_on(setup, call.clients, preparing=preparing))
        try:
            outcomes.update(await self._exchange.ask(call))
        finally:
            if setup.setup:
                self._done.note(call, outcomes, of_all=of_all)
        return outcomes

    async def _restore(self, clients: Sequence[str]) -> None:
        find_again, self._find_again = self._find_again, None  # what it asks restores nothing by itself
        if find_again is None:
            return
        try:
            await find_again(clients)
        finally:
            self._find_again = find_again

    async def _again(
        self, call: Call[R], clients: tuple[str, ...], attempt: int, wanted: Wanted, *, of_all: bool
    ) -> Mapping[str, R | Fault]:
        """A client lost its state for this job (new disk, new machine): repeat the setup, then the question."""
        again = f"again{attempt if attempt > 1 else ''}"
        mark = f"{again}-{call.task_id.rpartition('/')[2]}-{secrets.token_hex(4)}"
        faults = await self.repeat(clients, mark, wanted)
        ready = tuple(c for c in clients if c not in faults)
        asked = wanted.of(replace(call, clients=ready, task_id=f"{call.task_id}/{again}"))
        return {**faults, **(await self._exchanged(asked, of_all=of_all) if ready else {})}
