"""Clients that are prepared: at first, again, or when they join."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kernfed.errors import (
    InvalidReplyError,
)
from kernfed.federation.cohort import Cohort
from kernfed.federation.events import EventKind, JobEvent
from kernfed.federation.exchange import Call, Fault
from kernfed.federation.messages.base import Reply
from kernfed.federation.messages.data import (
    Centred,
    CentreRequest,
    MapFeaturesRequest,
    MeanEmbedding,
    MeanEmbeddingRequest,
    Standardised,
    StandardiseRequest,
)
from kernfed.federation.quorum import Quorum
from kernfed.federation.setup import NOTHING, SetupChain
from kernfed_testing.worlds.scripted_cohort import ABC, LOST, REQUEST, Scripted, cohort, echo

SETUP = [
    StandardiseRequest(classes=("no", "yes"), mean=np.zeros(2), deviation=np.ones(2), median_distance=False),
    CentreRequest(feature_mean=np.zeros(3), target_mean=np.zeros(1)),
]
MEANS = MeanEmbeddingRequest(num_features=3, num_outputs=1)


class Forgetful:
    """Clients that know what they were told; some forget everything once."""

    def __init__(self, forgets: str) -> None:
        self.told: dict[str, list[str]] = {c: [] for c in ABC}
        self._forgets = dict.fromkeys(forgets, True)

    def __call__(self, client: str, call: Call[Any]) -> Any:
        request = call.request
        if isinstance(request, StandardiseRequest | CentreRequest):
            self.told[client].append(request.step)
            return (
                Standardised(num_rows=2, median_distance=0.0)
                if isinstance(request, StandardiseRequest)
                else Centred(num_rows=2)
            )
        if self._forgets.pop(client, False):
            self.told[client].clear()
        if self.told[client] != [r.step for r in SETUP]:
            return LOST
        return MeanEmbedding(num_rows=2, feature_mean=np.zeros(3), target_mean=np.zeros(1))


@pytest.mark.parametrize("forgets", ["", "b", "ac", "abc"])
async def test_setup_is_repeated_for_who_lost_it(forgets: str) -> None:
    """Who lost its state is told all setup requests again, in their order, and asked again; nobody else is."""
    clients = Forgetful(forgets)
    asked, exchange = cohort(clients, Quorum(min_clients=3))
    for request in SETUP:
        await asked.ask(request)
    replies = await asked.ask(MeanEmbeddingRequest(num_features=3, num_outputs=1))
    assert list(replies) == list(ABC)
    assert all(told == [r.step for r in SETUP] for told in clients.told.values())
    repeated = exchange.calls[3:]
    assert [c.clients for c in repeated] == ([tuple(forgets)] * 3 if forgets else [])
    ids = [c.task_id for c in exchange.calls]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(("times", "answers"), [(1, ["a", "b", "c"]), (9, ["a", "c"])])
async def test_what_no_request_sets_up_is_found_again(times: int, answers: list[str]) -> None:
    """A method is told who still lacks state when the setup was repeated, at most twice in a step."""
    lacks, told = {"b": times}, []

    async def find_again(clients: Sequence[str]) -> None:
        told.append(list(clients))
        lacks["b"] -= 1
        await asked.ask(REQUEST)  # what it asks is answered as it is, and finds nothing again by itself

    asked, _ = cohort(lambda client, call: LOST if lacks.get(client) else echo(client, call))
    asked.restore_by(find_again)
    assert list(await asked.ask(REQUEST)) == answers
    assert told == [["b"]] * min(times, 2)


@pytest.mark.parametrize(("stated", "lasting"), [((), False), (("a", "b"), False), (("a", "b"), True)])
async def test_who_is_prepared_again_has_not_failed(stated: tuple[str, ...], lasting: bool) -> None:
    """What a client lost is told in a note, what it never had is not told, and who stays unprepared failed once."""
    events: list[JobEvent] = []

    def answer(client: str, call: Call[Any]) -> Any:
        first = "again" not in call.task_id
        return LOST if client != "c" and (first or (lasting and client == "b")) else echo(client, call)

    asked = Cohort(Scripted(answer), ABC, job_id="job", quorum=Quorum(min_clients=2), observe=events.append)
    asked.register_rows({client: 1 + ABC.index(client) for client in stated})
    assert list(await asked.ask(REQUEST)) == [client for client in ABC if not (lasting and client == "b")]
    notes = [event.message for event in events if event.kind is EventKind.NOTE]
    lost = "a, b: what was prepared there was lost or cut short, and is prepared again"
    assert notes == ([lost] if stated else [])
    failed = [(e.client, e.step, e.reason) for e in events if e.kind is EventKind.CLIENT_FAILED]
    assert failed == ([("b", "probe.echo", "JOB_STATE_MISSING")] if lasting else [])


async def test_who_cannot_be_prepared_is_out_of_the_round() -> None:
    """The others' answers count, and what kept it from being prepared is what is told of it."""

    def answer(client: str, call: Call[Any]) -> Any:
        if client == "b" and "again" in call.task_id:
            return Fault("INVALID_DATA", "the file is gone")
        return Forgetful.__call__(clients, client, call)

    clients = Forgetful("b")
    asked, exchange = cohort(answer)
    for request in SETUP:
        await asked.ask(request)
    replies = await asked.ask(MeanEmbeddingRequest(num_features=3, num_outputs=1))
    assert list(replies) == ["a", "c"]
    assert asked.faults["b"] == Fault("INVALID_DATA", "the file is gone")
    assert len(exchange.calls) == 4  # nothing after the first setup request


@pytest.mark.parametrize("flaw", ["none", "refuses", "away", "fails the check"])
async def test_a_newcomer_is_prepared_before_it_is_admitted(flaw: str) -> None:
    """It is asked what the others were asked, its replies must pass their checks, and then it takes part."""

    def answer(client: str, call: Call[Any]) -> Any:
        if client == "d" and isinstance(call.request, CentreRequest) and flaw in ("refuses", "away"):
            return Fault("POLICY", "not here") if flaw == "refuses" else None
        return Forgetful.__call__(clients, client, call)

    def check(client: str, _reply: Reply) -> None:
        if client == "d" and flaw == "fails the check":
            raise InvalidReplyError("other features")

    clients = Forgetful("")
    clients.told["d"] = []
    exchange = Scripted(answer)
    asked = Cohort(exchange, ABC, job_id="job", candidates=lambda: ["c", "d"])
    for request in SETUP:
        await asked.ask(request, check=check)
    assert asked.candidates == ("d",)
    fault = await asked.prepare("d")
    reasons = {"refuses": "POLICY", "away": "UNAVAILABLE", "fails the check": "INVALID_REPLY"}
    assert (fault.reason if fault else "") == reasons.get(flaw, "")
    if fault is None:
        assert clients.told["d"] == [r.step for r in SETUP]
        asked.admit("d")
        assert not asked.candidates
        assert list(await asked.ask(MeanEmbeddingRequest(num_features=3, num_outputs=1))) == ["a", "b", "c", "d"]
    assert len({c.task_id for c in exchange.calls}) == len(exchange.calls)


MEANS = MeanEmbeddingRequest(num_features=3, num_outputs=1)
OTHER = StandardiseRequest(classes=("no", "yes"), mean=np.ones(2), deviation=np.ones(2), median_distance=False)


class Careful:
    """Clients that keep the chain of what they were told, and answer on it alone; `misses` hear nothing of a step."""

    def __init__(self, misses: str = "") -> None:
        self.chains = {c: SetupChain() for c in ABC}
        self.misses = misses

    def __call__(self, client: str, call: Call[Any]) -> Any:
        request, chain = call.request, self.chains[client]
        call.sent[client] = hashlib.sha256(repr(request).encode()).digest()
        if client in self.misses:
            return None
        if call.stands_on.get(client, chain.under(type(request))) != chain.under(type(request)):
            return LOST
        if request.setup:
            chain.put(type(request), call.sent[client])
        if isinstance(request, StandardiseRequest):
            return Standardised(num_rows=2, median_distance=0.0)
        if isinstance(request, CentreRequest):
            return Centred(num_rows=2)
        return MeanEmbedding(num_rows=2, feature_mean=np.zeros(3), target_mean=np.zeros(1))


def steps(chain: SetupChain) -> list[str]:
    return [step for step, _ in chain.links]


def test_what_a_setup_step_stands_on() -> None:
    """A step that is done again keeps its place and voids those behind it, unless it leaves them."""
    chain = SetupChain()
    nothing = chain.under(MeanEmbeddingRequest)
    assert nothing == chain.under(StandardiseRequest) == NOTHING
    for number, request in enumerate((StandardiseRequest, MapFeaturesRequest, CentreRequest)):
        chain.put(request, bytes([number]) * 32)
    all_three = chain.under(MeanEmbeddingRequest)
    assert chain.under(StandardiseRequest) == NOTHING
    assert chain.under(CentreRequest) == SetupChain(chain.links[:2]).under(MeanEmbeddingRequest)
    chain.put(CentreRequest, bytes([2]) * 32)
    assert chain.under(MeanEmbeddingRequest) == all_three
    chain.put(CentreRequest, bytes([3]) * 32)
    assert chain.under(MeanEmbeddingRequest) != all_three
    chain.put(MapFeaturesRequest, bytes([1]) * 32)
    assert steps(chain) == [StandardiseRequest.step, MapFeaturesRequest.step]
    chain.put(StandardiseRequest, b"")  # by a coordinator of before, which states no digest
    assert chain.under(MeanEmbeddingRequest) is None


@pytest.mark.parametrize("later_life", [False, True])
async def test_half_a_preparation_is_not_taken_for_whole(later_life: bool) -> None:
    """A client with another setup than the coordinator counts on is prepared again, in later lives of the job too."""
    clients = Careful()
    asked, exchange = cohort(clients)
    for request in SETUP:
        await asked.ask(request)
    if later_life:
        book = json.loads(json.dumps(asked.book))
        asked = Cohort(exchange, ABC, job_id="job", quorum=Quorum(min_clients=2))
        asked.reopen(book)
        for request in SETUP:
            asked.recall(request)
    whole = clients.chains["a"].links
    clients.chains["b"].put(StandardiseRequest, hashlib.sha256(repr(SETUP[0]).encode()).digest())  # an old frame, late
    assert steps(clients.chains["b"]) == [StandardiseRequest.step]
    clients.chains["c"].put(CentreRequest, bytes(32))
    before = len(exchange.calls)
    assert list(await asked.ask(MEANS)) == list(ABC)
    assert [chain.links for chain in clients.chains.values()] == [whole] * 3
    assert {call.clients for call in exchange.calls[before + 1 :]} == {("b", "c")}


@pytest.mark.parametrize("missed", [SETUP[1], OTHER])
async def test_who_missed_a_step_that_all_were_asked_is_prepared_again(missed: Any) -> None:
    """Nobody knows whether it did the step; what it answers next stands on the same as the others' answers."""
    clients = Careful()
    asked, _ = cohort(clients)
    for request in SETUP:
        await asked.ask(request)
    clients.misses = "b"
    assert list(await asked.ask(missed)) == ["a", "c"]
    assert asked.book["setup"]["broken"] == ["b"]
    clients.misses = ""
    asked.enter_round(1)
    assert list(await asked.ask(MEANS)) == list(ABC)
    assert len({clients.chains[client].under(MeanEmbeddingRequest) for client in ABC}) == 1
    assert asked.book["setup"]["broken"] == []


async def test_who_was_out_of_the_round_as_all_were_set_up_is_prepared_again() -> None:
    """A client that failed in a round is not asked what sets up all others in it, so it has less than they have."""
    clients = Careful()
    asked, _ = cohort(clients)
    await asked.ask(SETUP[0])
    told = await asked.ask(MEANS, refusing=lambda client, _: ["is no answer"] if client == "b" else [])
    assert list(told) == ["a", "c"]
    assert list(await asked.ask(SETUP[1])) == ["a", "c"]
    asked.enter_round(1)
    assert list(await asked.ask(MEANS)) == list(ABC)
    assert len({clients.chains[client].under(MeanEmbeddingRequest) for client in ABC}) == 1


async def test_a_book_of_before_knows_no_setup() -> None:
    """Clients of a job that an earlier release began are asked as it did, until they are prepared again."""
    clients = Careful()
    asked, exchange = cohort(clients)
    book = asked.book | {"stated": {client: [2, None] for client in ABC}}
    del book["setup"]
    asked.reopen(book)
    await asked.ask(MEANS)
    assert not exchange.calls[-1].stands_on
    assert await asked.prepare("b") is None
    await asked.ask(MEANS)
    assert list(exchange.calls[-1].stands_on) == ["b"]


@pytest.mark.parametrize(("forgets", "needed"), [("b", 0), ("bc", 1), ("abc", 2)])
async def test_a_step_waits_for_those_it_prepares_again_as_for_its_answers(forgets: str, needed: int) -> None:
    """Where its quorum hangs on clients that lost their state, none of their questions closes without it."""
    asked, exchange = cohort(Forgetful(forgets), Quorum(min_clients=2))
    for request in SETUP:
        await asked.ask(request)
    await asked.ask(MEANS, everyone=forgets == "abc")
    assert [(call.needed, call.everyone) for call in exchange.calls[3:]] == [(needed, forgets == "abc")] * 3
