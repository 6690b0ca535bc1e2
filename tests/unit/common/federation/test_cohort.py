"""The clients of a job as a workflow sees them, over an exchange that a test writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernfed.errors import (
    InvalidReplyError,
    InvalidTensorError,
    PolicyError,
    QuorumNotMetError,
    WireError,
)
from kernfed.federation.cohort import Cohort
from kernfed.federation.events import EventKind, JobEvent
from kernfed.federation.exchange import Call, Fault
from kernfed.federation.in_process import InProcessExchange, as_sent
from kernfed.federation.messages.data import (
    FeaturesMapped,
)
from kernfed.federation.quorum import Quorum
from kernfed.methods.probe.messages import Echo, EchoRequest
from kernfed.methods.ridge.messages import Gradient, GradientRequest, LocalModel
from kernfed_testing.worlds.scripted_cohort import ABC, REQUEST, Scripted, Steps, cohort, echo


@pytest.mark.parametrize(
    ("quorum", "num_clients", "needed"),
    [
        (Quorum(1, 0.0), 5, 1),
        (Quorum(0, 0.0), 5, 1),
        (Quorum(3, 0.0), 2, 3),
        (Quorum(1, 0.5), 5, 3),
        (Quorum(1, 1.0), 5, 5),
        (Quorum(1, 0.1), 30, 3),  # 0.1 * 30 is a little more than 3
        (Quorum(1, 0.7), 10, 7),
    ],
)
def test_quorum(quorum: Quorum, num_clients: int, needed: int) -> None:
    """A quorum is the larger of a number and a share of the clients, at least one."""
    assert quorum.needed(num_clients) == needed


async def test_replies_in_order_of_names() -> None:
    """Replies come in the order of the names of clients."""
    asked, exchange = cohort(echo, clients=("c", "a", "b"))
    assert list(await asked.ask(REQUEST)) == list(ABC)
    assert exchange.calls[0].clients == ABC


@given(st.permutations(ABC))
def test_mean_does_not_depend_on_arrival(order: list[str]) -> None:
    """A mean is the same to the bit in whatever order replies arrive."""
    import asyncio

    class InOrder(Scripted):
        async def ask(self, call: Call[Any]) -> Mapping[str, Any]:
            return {c: echo(c, call) for c in order}

    mean = asyncio.run(Cohort(InOrder(echo), ABC, job_id="job").mean(REQUEST))
    assert mean == Echo(num_rows=6, values=mean.values)
    assert mean.values[0] == 97 * (1 / 6) + 98 * (2 / 6) + 99 * (3 / 6)


async def test_task_ids() -> None:
    """Deterministic: job, round, step, and a number from the second time on; they begin anew in each round."""
    asked, exchange = cohort(echo)
    for round_num in (1, 2):
        asked.enter_round(round_num)
        for _ in range(2):
            await asked.ask(REQUEST)
    ids = [call.task_id for call in exchange.calls]
    assert ids == ["job/1/probe.echo", "job/1/probe.echo/2", "job/2/probe.echo", "job/2/probe.echo/2"]


async def test_faulty_client_is_out_of_the_round() -> None:
    """A client with a fault is not asked again in its round, and is in the next."""
    asked, exchange = cohort(
        lambda c, call: Fault("INVALID_TENSOR", "NaN") if c == "b" and call.round_num == 1 else echo(c, call)
    )
    asked.enter_round(1)
    assert list(await asked.ask(REQUEST)) == ["a", "c"]
    assert dict(asked.faults) == {"b": Fault("INVALID_TENSOR", "NaN")}
    await asked.ask(REQUEST)
    assert exchange.calls[1].clients == ("a", "c")
    asked.enter_round(2)
    assert list(await asked.ask(REQUEST)) == list(ABC)
    assert not asked.faults


@pytest.mark.parametrize(("reason", "out"), [(PolicyError.reason, set()), ("INVALID_TENSOR", {"b"})])
async def test_who_may_not_answer_what_is_optional_stays_in_the_round(reason: str, out: set[str]) -> None:
    """Its policy forbids one step, and it is asked the others; any other fault puts it out still."""
    asked, exchange = cohort(
        lambda c, call: Fault(reason, "no") if c == "b" and len(exchange.calls) == 1 else echo(c, call)
    )
    asked.enter_round(1)
    assert list(await asked.ask(REQUEST, optional=True)) == ["a", "c"]
    assert set(asked.faults) == out
    assert set(await asked.ask(REQUEST)) == set(ABC) - out


async def test_straggler_is_asked_again_in_the_round() -> None:
    """A client that was late is asked at the next step of the round."""
    asked, exchange = cohort(lambda c, call: None if c == "b" and len(exchange.calls) == 1 else echo(c, call))
    assert list(await asked.ask(REQUEST)) == ["a", "c"]
    assert list(await asked.ask(REQUEST)) == list(ABC)


async def test_below_quorum() -> None:
    """Too few answers fail the step and say of each client why."""
    asked, _ = cohort(lambda c, call: {"a": echo(c, call), "b": Fault("REFUSED_BY_POLICY", "no")}.get(c))
    with pytest.raises(QuorumNotMetError) as caught:
        await asked.ask(REQUEST)
    assert str(caught.value).splitlines() == [
        "probe.echo: 1 of 2 clients needed by the quorum answered",
        "  b: REFUSED_BY_POLICY: no",
        "  c: no answer in time; is its daemon running and connected?",
    ]


async def test_a_step_that_ended_early_blames_nobody_for_its_silence() -> None:
    """Who had not answered when the quorum went out of reach was not waited for."""
    asked, _ = cohort(lambda c, _call: Fault("INVALID_DATA", "no") if c in "ab" else None)
    with pytest.raises(QuorumNotMetError, match=r"\n  c: no answer yet; the quorum was out of reach without it$"):
        await asked.ask(REQUEST)


async def test_excluded() -> None:
    """An excluded client is not asked, and still counts for the quorum."""
    asked, exchange = cohort(echo)
    asked.exclude("b", Fault("INVALID_DATA", "gap"))
    assert asked.clients == ("a", "c")
    assert list(asked.excluded) == ["b"]
    await asked.ask(REQUEST)
    assert exchange.calls[0].clients == ("a", "c")
    assert exchange.calls[0].needed == 2  # of the whole cohort still


async def test_row_counts_must_stay() -> None:
    """A reply that states other rows than before is refused, in every later round."""
    asked, _ = cohort(lambda c, _: Echo(num_rows=7 if c == "b" else 5, values=np.zeros(1)))
    asked.register_rows({"a": 5, "b": 5, "c": 5})
    assert list(await asked.ask(REQUEST)) == ["a", "c"]
    fault = asked.faults["b"]
    assert fault.reason == InvalidReplyError.reason
    assert fault.message == "Echo.num_rows is 7, but b stated 5 training rows before"


async def test_request_is_checked_before_it_is_sent() -> None:
    """A request with NaN reaches no client."""
    asked, exchange = cohort(echo)
    with pytest.raises(WireError, match="NaN"):
        await asked.ask(EchoRequest(values=np.array([np.nan])))
    assert exchange.calls == []


async def test_shapes_bound_by_the_request() -> None:
    """Sizes of a request are those that its replies must have."""
    asked, exchange = cohort(lambda _c, _call: Gradient(num_rows=1, gradient=np.zeros((4, 2))))
    await asked.ask(GradientRequest(ridge=1.0, weights=np.zeros((4, 2))))
    assert exchange.calls[0].dims == {"M": 4, "C": 2}


async def test_total() -> None:
    """A total adds rows and arrays of all clients."""
    asked, _ = cohort(echo)
    total = await asked.total(REQUEST)
    assert (total.num_rows, total.values[0]) == (6, 97.0 + 98.0 + 99.0)


async def test_in_process_exchange() -> None:
    """Steps of this process: replies are checked as over the network, and events tell what happened."""
    events: list[JobEvent] = []

    def step(client: str, request: EchoRequest) -> Echo:
        if client == "b":
            raise PolicyError("not here")
        rows = len(request.values) if client == "c" else 1
        return Echo(num_rows=1, values=np.ones(rows + 1 if client == "c" else len(request.values)))

    exchange = InProcessExchange({EchoRequest: step}, {c: c for c in ABC})
    asked = Cohort(exchange, ABC, job_id="job", observe=events.append, quorum=Quorum(1, 0.0))
    assert list(await asked.ask(EchoRequest(values=np.zeros(2)))) == ["a"]
    assert {c: f.reason for c, f in asked.faults.items()} == {"b": "REFUSED_BY_POLICY", "c": "INVALID_TENSOR"}
    assert [(e.kind, e.client, e.reason) for e in events[1:]] == [
        (EventKind.CLIENT_ANSWERED, "a", ""),
        (EventKind.CLIENT_FAILED, "b", "REFUSED_BY_POLICY"),
        (EventKind.CLIENT_FAILED, "c", "INVALID_TENSOR"),
    ]
    assert (events[2].message, events[2].text) == ("not here", "REFUSED_BY_POLICY: not here")


async def test_float32_in_process() -> None:
    """Clients in this process get and give what would have passed a wire of 32 bits."""
    seen = []

    def step(_client: str, request: EchoRequest) -> Echo:
        seen.append(request.values)
        return Echo(num_rows=1, values=request.values.astype(np.float64) + 0.1)

    exchange = InProcessExchange({EchoRequest: step}, {"a": "a"})
    asked = Cohort(exchange, ["a"], job_id="job", float_bits=32)
    reply = (await asked.ask(EchoRequest(values=np.array([0.1]))))["a"]
    assert seen[0].dtype == reply.values.dtype == np.float32
    assert asked.float_epsilon > 1e-8
    assert as_sent(LocalModel(num_rows=1, weights=np.ones((1, 1))), 64).weights.dtype == np.float64
    assert as_sent(FeaturesMapped(num_rows=1, fingerprint="x"), 32) == FeaturesMapped(num_rows=1, fingerprint="x")


async def test_each_client_answers_its_own_request() -> None:
    """Requests may differ in size; each reply is checked against the request it answers."""
    steps: Steps = {EchoRequest: lambda _job, request: Echo(num_rows=1, values=request.values * 2)}
    asked = Cohort(InProcessExchange(steps, {"a": None, "b": None}), "ab", job_id="j")
    replies = await asked.ask_each({"b": EchoRequest(values=np.arange(3.0)), "a": EchoRequest(values=np.ones(2))})
    assert list(replies) == ["a", "b"]
    assert replies["a"].values.tolist() == [2.0, 2.0]
    assert replies["b"].values.tolist() == [0.0, 2.0, 4.0]


async def test_a_reply_in_another_clients_shape_is_refused() -> None:
    """A reply that would fit a neighbour's request does not count."""
    steps: Steps = {
        EchoRequest: lambda _job, request: replace(Echo(num_rows=1, values=request.values), values=np.ones(3))
    }
    asked = Cohort(InProcessExchange(steps, {"a": None, "b": None}), "ab", job_id="j")
    replies = await asked.ask_each({"a": EchoRequest(values=np.ones(2)), "b": EchoRequest(values=np.ones(3))})
    assert list(replies) == ["b"]
    assert asked.faults["a"].reason == InvalidTensorError.reason


async def test_nobody_to_ask_is_a_missed_quorum() -> None:
    """When every client is out of the round, the step fails by its quorum."""
    steps: Steps = {
        EchoRequest: lambda _job, request: replace(Echo(num_rows=1, values=request.values), values=np.ones(9))
    }
    asked = Cohort(InProcessExchange(steps, {"a": None}), "a", job_id="j")
    with pytest.raises(QuorumNotMetError):
        await asked.ask_each({"a": EchoRequest(values=np.ones(2))})
    with pytest.raises(QuorumNotMetError):
        await asked.ask_each({"a": EchoRequest(values=np.ones(2))})
