"""An exchange without a network: the clients' own step functions, run in this process by simulations and tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np

from kernfed.errors import KernfedError
from kernfed.federation.events import EventKind, JobEvent
from kernfed.federation.exchange import Call, Exchange, Fault, quorum_error
from kernfed.federation.messages.base import R, Reply, Request, fields_of, validate

StepFunction = Callable[[Any, Any], Reply]
"""A client's half of a step: (local job, request) -> reply."""


class InProcessExchange(Exchange):
    """Runs the clients' own step functions in this process, in the order of client names."""

    def __init__(
        self, steps: Mapping[type[Request[Any]], StepFunction], jobs: Mapping[str, Any], *, masks: bool = False
    ) -> None:
        """Begin.

        Args:
            steps: By request type.
            jobs: Each client's job.
            masks: Whether the clients mask their terms of secure sums, which nobody in this process needs.
        """
        self._steps = steps
        self._jobs = jobs
        self.masks = masks

    async def ask(self, call: Call[R]) -> Mapping[str, R | Fault]:
        """See `Exchange.ask`; there are no stragglers in one process."""
        step = self._steps[type(call.request)]
        shared = None if call.own is not None else as_sent(call.request, call.float_bits)

        def reply_of(client: str) -> R:
            request = as_sent(call.request_of(client), call.float_bits) if shared is None else shared
            reply = cast("R", as_sent(step(self._jobs[client], request), call.float_bits))
            validate(reply, call.dims_of(client))
            return reply

        return outcomes_of(call, reply_of)


def outcomes_of(call: Call[R], reply_of: Callable[[str], R]) -> dict[str, R | Fault]:
    """Replies and faults by client, in the order of their names, where each client answers or fails at once.

    Args:
        call: What was asked.
        reply_of: A client's valid reply; raises KernfedError where it failed.

    Raises:
        QuorumNotMetError: No client answered.
    """
    outcomes: dict[str, R | Fault] = {}
    for client in call.clients:
        try:
            reply = reply_of(client)
            call.accept(client, cast("Reply", reply))
        except KernfedError as err:
            fault = outcomes[client] = Fault.of(err)
            if not fault.unprepared:  # it is prepared and asked again, and the cohort tells it
                call.tell_failed(client, fault)
        else:
            outcomes[client] = reply
            call.observe(JobEvent(EventKind.CLIENT_ANSWERED, call.round_num, call.request.step, client))
    # A client without the job's state is not lost for the quorum.
    lost = [o for o in outcomes.values() if isinstance(o, Fault) and not o.unprepared]
    answers = len(outcomes) - len(lost)
    if answers < min(call.needed, len(call.clients)) and not answers:
        raise quorum_error(call, outcomes)
    return outcomes


def as_sent(message: Any, float_bits: int) -> Any:
    """A message as it arrives at the other end: its float arrays rounded to the wire's precision, unless `Exact`."""
    if float_bits == 64:
        return message
    rounded: dict[str, Any] = {}
    for f in fields_of(type(message)):
        value = getattr(message, f.name)
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and not f.exact:
            rounded[f.name] = value.astype(np.float32)
        elif f.nested and f.type is not tuple:
            rounded[f.name] = as_sent(value, float_bits)
    return replace(message, **rounded)
