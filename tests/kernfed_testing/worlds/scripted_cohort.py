"""A cohort over an exchange that a test writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kernfed.errors import (
    KernfedError,
)
from kernfed.federation.cohort import Cohort
from kernfed.federation.exchange import Call, Exchange, Fault
from kernfed.federation.messages.base import Reply, Request
from kernfed.federation.quorum import Quorum
from kernfed.methods.probe.messages import Echo, EchoRequest

ABC = ("a", "b", "c")
Steps = dict[type[Request[Any]], Callable[[Any, Any], Reply]]
Answer = Callable[[str, Call[Any]], Any]
"""What a client says to a call: a reply, a fault, or None."""
LOST = Fault("JOB_STATE_MISSING", "nothing is prepared")


class Scripted(Exchange):
    """Answers as a function of client and call says; None: a straggler."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.calls: list[Call[Any]] = []

    async def ask(self, call: Call[Any]) -> Mapping[str, Any]:
        self.calls.append(call)
        outcomes = {}
        for client in reversed(call.clients):  # never in the order of names
            answer = self._answer(client, call)
            if answer is not None and not isinstance(answer, Fault):
                try:
                    call.accept(client, answer)
                except KernfedError as err:
                    answer = Fault.of(err)
            if answer is not None:
                outcomes[client] = answer
        return outcomes


def cohort(answer: Answer, quorum: Quorum | None = None, clients: tuple[str, ...] = ABC) -> tuple[Cohort, Scripted]:
    exchange = Scripted(answer)
    return Cohort(exchange, clients, job_id="job", quorum=quorum or Quorum(min_clients=2)), exchange


def echo(client: str, _call: Call[Any]) -> Echo:
    return Echo(num_rows=1 + ABC.index(client), values=np.array([float(ord(client))]))


REQUEST = EchoRequest(values=np.zeros(1))
