"""A request before round 1, and what a client's reply to it must pass, then or when the client is prepared anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernfed.errors import KernfedError
from kernfed.federation.exchange import NO_ANSWER, Fault
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
            return Fault(err.reason, str(err))
        return None
