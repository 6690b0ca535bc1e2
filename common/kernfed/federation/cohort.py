"""The clients of a job as a workflow sees them: ask all of them, get validated replies by client name, or their mean.

`Cohort` holds what is the same everywhere: who is asked, the quorum, checks of replies, and aggregation in the
order of client names. How a request reaches clients is an `Exchange`: gRPC sessions at the coordinator,
`kernfed.federation.in_process` in a simulation and in tests.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernfed.errors import PolicyError, RevokedError
from kernfed.federation.events import EventKind, JobEvent
from kernfed.federation.exchange import Call, Exchange, Fault, quorum_error
from kernfed.federation.messages.base import R, Reply, Request, Stated, validate
from kernfed.federation.preparation import Preparation
from kernfed.federation.quorum import Quorum
from kernfed.federation.setup import Check, pass_all
from kernfed.federation.weighing import Weighing, beside
from kernfed.maths.aggregate import total


class Cohort(Weighing):
    """The clients of one job."""

    def __init__(
        self,
        exchange: Exchange,
        clients: Iterable[str],
        *,
        job_id: str,
        quorum: Quorum | None = None,
        float_bits: int = 64,
        observe: Callable[[JobEvent], None] = lambda _: None,
        candidates: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        super().__init__()
        self._exchange = exchange
        self._candidates = candidates
        self._clients = tuple(sorted(clients))
        self._job_id = job_id
        self._quorum = quorum or Quorum()
        self._float_bits = float_bits
        self._observe = observe
        self._round = 0
        self._asked: dict[str, int] = {}
        self._out_of_round: dict[str, Fault] = {}
        self._excluded: dict[str, Fault] = {}
        self._preparation = Preparation(exchange, self._setup_call)

    @property
    def clients(self) -> tuple[str, ...]:
        """Names of the clients that take part, sorted."""
        return tuple(c for c in self._clients if c not in self._excluded)

    def strangers(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of some names that no client of the job has, not one that was left out either, sorted."""
        return tuple(sorted(set(names) - set(self._clients)))

    @property
    def excluded(self) -> Mapping[str, Fault]:
        """Clients that are out for the rest of the job, and why."""
        return dict(self._excluded)

    @property
    def faults(self) -> Mapping[str, Fault]:
        """Clients that answered wrongly in this round, and how."""
        return dict(self._out_of_round)

    def forgive(self, client: str) -> None:
        """Ask a client again in this round, though it answered wrongly."""
        self._out_of_round.pop(client, None)

    @property
    def patience_s(self) -> float:
        """Seconds for which the job stays below its quorum."""
        return self._quorum.wait_s

    def why_missing(self, client: str) -> str:
        """Why a client that was asked in this round has no answer, for people."""
        return str(self._out_of_round.get(client, "no answer"))

    @property
    def job_id(self) -> str:
        """Id of the job."""
        return self._job_id

    @property
    def masks(self) -> bool:
        """Whether its clients mask their terms of secure sums."""
        return self._exchange.masks

    @property
    def float_bits(self) -> int:
        """Size of the floats in replies."""
        return self._float_bits

    @property
    def float_epsilon(self) -> float:
        """Relative precision of the numbers in replies."""
        return 2.2e-16 if self._float_bits == 64 else 6e-8

    @property
    def book(self) -> dict[str, Any]:
        """What a later life of the job has to know of each client, as JSON values; `reopen` reads it."""
        stated = {client: [s.num_rows, s.num_test_rows] for client, s in self._ledger.stated.items()}
        excluded = {client: [fault.reason, fault.message] for client, fault in self._excluded.items()}
        return {"stated": stated, "excluded": excluded, "setup": self._preparation.book}

    def reopen(self, book: Mapping[str, Any]) -> None:
        """Go on where an earlier life of the job was: clients are bound by what they stated, and who was out stays so.

        Args:
            book: As `book` gave it.
        """
        self._ledger.register({client: Stated(rows, test) for client, (rows, test) in book["stated"].items()})
        self._excluded = {client: Fault(reason, message) for client, (reason, message) in book["excluded"].items()}
        self._preparation.reopen(book.get("setup"), book["stated"])

    def enter_round(self, round_num: int) -> None:
        """Open a round: task ids carry its number, and clients that failed in the last one are asked again."""
        self._round = round_num
        self._asked.clear()
        self._behind.clear()
        self._out_of_round.clear()

    @property
    def present(self) -> tuple[str, ...]:
        """Those of `clients` that can be asked now, sorted; all of them where the exchange cannot tell."""
        present = self._exchange.present()
        return self.clients if present is None else tuple(sorted(set(self.clients) & present))

    @property
    def needed(self) -> int:
        """Answers that a step to the whole cohort needs."""
        return self._quorum.needed(len(self._clients))

    @property
    def candidates(self) -> tuple[str, ...]:
        """Clients that are not of this cohort and might join it now, sorted."""
        return tuple(sorted(set(self._candidates()) - set(self._clients)))

    def admit(self, client: str) -> None:
        """Let a client take part that did not, or was left out; unprepared, it is prepared when it is next asked."""
        self._excluded.pop(client, None)
        self._clients = tuple(sorted({*self._clients, client}))

    def recall(self, request: Request[Any], check: Check = pass_all) -> None:
        """Take a setup request for asked: of an earlier life of this run. One that forgot it is asked again."""
        self._preparation.recall(request, check)

    def restore_by(self, find_again: Callable[[Sequence[str]], Awaitable[None]]) -> None:
        """State how clients get back what no setup request alone can give them; see `Preparation.restore_by`."""
        self._preparation.restore_by(find_again)

    async def prepare(self, client: str) -> Fault | None:
        """Ask a client all that was asked of the others before round 1; None: it may be admitted."""
        return (await self._preparation.repeat([client], f"joins-{secrets.token_hex(4)}")).get(client)

    def exclude(self, client: str, fault: Fault) -> None:
        """Leave a client out of the rest of the job."""
        self._excluded[client] = fault

    async def ask(
        self,
        request: Request[R],
        *,
        clients: Iterable[str] | None = None,
        everyone: bool = False,
        drawn: bool = False,
        fresh: bool = False,
        optional: bool = False,
        check: Check = pass_all,
        refusing: Callable[[str, R], Iterable[str]] = lambda *_: (),
        needed: int | None = None,
    ) -> dict[str, R]:
        """Ask clients and return their replies in the order of client names.

        Args:
            request: What to ask.
            clients: Whom; unset: every client that has not failed in this round.
            everyone: Wait for all of them, deadline or not, as sums that must stay consistent need. A client
                with a wrong answer is left out even then; the names in the result show it.
            drawn: Whether the quorum counts among those asked, as where a round has clients of its own, and not among
                the whole cohort.
            fresh: Have the step run even if an earlier life of this run asked the like: for steps that set a client's
                state, where an answer from memory would leave it as it is.
            optional: Whether a client whose policy forbids this answer still takes part in the round's other steps.
            check: Of a setup request: what replies must pass of clients that are asked it later, because they join or
                lost their state. Replies to this call are the caller's to check.
            refusing: (client, reply) -> why it cannot be, by what the caller knows of the client; it is left out then.
            needed: Answers that suffice, in place of the quorum's number.

        Raises:
            QuorumNotMetError: Too few valid answers.
        """
        asked = sorted(set(self.clients if clients is None else clients) - self._out_of_round.keys())
        call = self._call(request, tuple(asked), everyone, drawn)
        if fresh:
            call = _anew(call)
        if needed is not None:
            call = replace(call, needed=needed)
        if request.setup and clients is None:
            self._preparation.missed(set(self._clients) - set(asked))
        replies = await self._ask(call, of_all=clients is None, optional=optional, refusing=refusing)
        if request.setup and clients is None:
            self._preparation.recall(request, check)
        return replies

    async def ask_each(
        self,
        requests: Mapping[str, Request[R]],
        *,
        everyone: bool = False,
        drawn: bool = False,
        fresh: bool = False,
        refusing: Callable[[str, R], Iterable[str]] = lambda *_: (),
        needed: int | None = None,
    ) -> dict[str, R]:
        """Ask each client something of its own; all requests are of one type.

        Args:
            requests: Client to request; clients that have failed in this round are passed over.
            everyone: As in `ask`.
            drawn: As in `ask`.
            fresh: As in `ask`.
            refusing: As in `ask`.
            needed: As in `ask`.

        Raises:
            QuorumNotMetError: Too few valid answers.
        """
        asked = sorted(requests.keys() - self._out_of_round.keys())
        first = requests[asked[0]] if asked else next(iter(requests.values()))
        for request in requests.values():
            validate(request, {})
        call = replace(self._call(first, tuple(asked), everyone, drawn), own={c: requests[c] for c in asked})
        if fresh:
            call = _anew(call)
        if needed is not None:
            call = replace(call, needed=needed)
        return await self._ask(call, refusing=refusing)

    async def _ask(
        self,
        call: Call[R],
        *,
        of_all: bool = False,
        optional: bool = False,
        refusing: Callable[[str, R], Iterable[str]] = lambda *_: (),
    ) -> dict[str, R]:
        request, asked = call.request, call.clients
        self._observe(JobEvent(EventKind.STEP_ASKED, self._round, request.step, message=f"{len(asked)} clients"))
        outcomes = await self._preparation.ask(call, self.num_rows, of_all=of_all)
        return await self._settle(call, outcomes, optional=optional, refusing=refusing)

    async def mean(
        self,
        request: Request[R],
        *,
        clients: Iterable[str] | None = None,
        everyone: bool = False,
        drawn: bool = False,
    ) -> R:
        """Mean of the replies, weighted by training rows: arrays and floats are averaged, counts are summed."""
        replies = await self.ask(request, clients=clients, everyone=everyone, drawn=drawn)
        rows = {client: getattr(reply, "num_rows", 1) for client, reply in replies.items()}
        return await beside(replies, self.weighted, replies, rows)

    async def total(self, request: Request[R], *, clients: Iterable[str] | None = None, everyone: bool = False) -> R:
        """Sum of the replies' arrays, floats and counts."""
        replies = await self.ask(request, clients=clients, everyone=everyone)
        return await beside(replies, total, list(replies.values()))

    def _call(self, request: Request[R], asked: tuple[str, ...], everyone: bool, drawn: bool = False) -> Call[R]:
        n = self._asked[request.step] = self._asked.get(request.step, 0) + 1
        suffix = f"/{n}" if n > 1 else ""
        dims = validate(request, {})

        def accept(client: str, reply: Reply) -> None:
            self._ledger.accept(client, reply, self._float_bits)

        needed = self._quorum.needed(len(asked) if drawn else len(self._clients))
        return Call(
            job_id=self._job_id,
            round_num=self._round,
            task_id=f"{self._job_id}/{self._round}/{request.step}{suffix}",
            request=request,
            clients=asked,
            needed=min(needed, max(1, len(asked))) if drawn else needed,
            everyone=everyone,
            deadline_s=self._quorum.deadline_s,
            wait_s=self._quorum.wait_s,
            grace_s=self._quorum.grace_s,
            float_bits=self._float_bits,
            dims=dims,
            accept=accept,
            own=None,
            observe=self._observe,
            cohort_size=len({*self.clients, *asked}),
            rows=self._rows_needed(asked if drawn else self._clients),
        )

    def _setup_call(self, request: Request[Any], clients: tuple[str, ...], mark: str) -> Call[Any]:
        """Of a setup request that is asked again; what is asked of all keeps its numbers."""
        call = self._call(request, clients, everyone=False)
        self._asked[request.step] -= 1
        return replace(call, task_id=f"{self._job_id}/{self._round}/{request.step}/{mark}")

    async def _settle(
        self,
        call: Call[R],
        outcomes: dict[str, R | Fault],
        *,
        optional: bool,
        refusing: Callable[[str, R], Iterable[str]],
    ) -> dict[str, R]:
        replies: dict[str, R] = {}
        for client in call.clients:
            outcome = outcomes.get(client)
            if isinstance(outcome, Fault):
                if not (optional and outcome.reason == PolicyError.reason):
                    self._out_of_round[client] = outcome
                if outcome.reason == RevokedError.reason:
                    self.exclude(client, outcome)
            elif outcome is not None:
                replies[client] = outcome
        found = await beside(replies, self._ledger.refused, call.request_of, replies, refusing, moves=not optional)
        for client, err in found.items():
            fault = self._out_of_round[client] = outcomes[client] = Fault.of(err)
            del replies[client]
            call.tell_failed(client, fault)
        if len(replies) < call.needed or not call.rows.reached(replies):
            raise quorum_error(call, outcomes)
        if not optional:  # of what the job can do without no model is made
            self._behind.note(call.request, replies)
        return replies


def _anew(call: Call[R]) -> Call[R]:
    """The same call as another task, which no answer from memory fits."""
    return replace(call, task_id=f"{call.task_id}/{secrets.token_hex(4)}")
