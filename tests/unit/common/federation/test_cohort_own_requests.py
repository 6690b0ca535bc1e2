"""`Cohort.ask_each`: clients asked different things in one step."""

from dataclasses import replace

import numpy as np
import pytest

from kernfed.errors import InvalidTensorError, QuorumNotMetError
from kernfed.federation.cohort import Cohort
from kernfed.federation.in_process import InProcessExchange
from kernfed.methods.probe.messages import Echo, EchoRequest

STEPS = {EchoRequest: lambda _job, request: Echo(1, request.values * 2)}


async def test_each_client_answers_its_own_request() -> None:
    """Requests may differ in size; each reply is checked against the request it answers."""
    cohort = Cohort(InProcessExchange(STEPS, {"a": None, "b": None}), "ab", job_id="j")
    replies = await cohort.ask_each({"b": EchoRequest(np.arange(3.0)), "a": EchoRequest(np.ones(2))})
    assert list(replies) == ["a", "b"]
    assert replies["a"].values.tolist() == [2.0, 2.0]
    assert replies["b"].values.tolist() == [0.0, 2.0, 4.0]


async def test_a_reply_in_another_clients_shape_is_refused() -> None:
    """A reply that would fit a neighbour's request does not count."""
    steps = {EchoRequest: lambda _job, request: replace(Echo(1, request.values), values=np.ones(3))}
    cohort = Cohort(InProcessExchange(steps, {"a": None, "b": None}), "ab", job_id="j")
    replies = await cohort.ask_each({"a": EchoRequest(np.ones(2)), "b": EchoRequest(np.ones(3))})
    assert list(replies) == ["b"]
    assert cohort.faults["a"].reason == InvalidTensorError.reason


async def test_nobody_to_ask_is_a_missed_quorum() -> None:
    """When every client is out of the round, the step fails by its quorum."""
    steps = {EchoRequest: lambda _job, request: replace(Echo(1, request.values), values=np.ones(9))}
    cohort = Cohort(InProcessExchange(steps, {"a": None}), "a", job_id="j")
    with pytest.raises(QuorumNotMetError):
        await cohort.ask_each({"a": EchoRequest(np.ones(2))})
    with pytest.raises(QuorumNotMetError):
        await cohort.ask_each({"a": EchoRequest(np.ones(2))})
