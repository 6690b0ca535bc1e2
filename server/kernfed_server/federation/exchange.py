"""`kernfed.federation.exchange.Exchange` over the network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from kernfed.federation.exchange import Call, Exchange, Fault
from kernfed.federation.messages.base import R
from kernfed_server.federation.open_call import OpenCall
from kernfed_server.federation.session import ToldSubmission
from kernfed_server.federation.sessions import SessionRegistry


class RemoteExchange(Exchange):
    """An exchange over the clients' sessions."""

    def __init__(
        self, registry: SessionRegistry, submitted_by: str, method: str, submission: ToldSubmission | None = None
    ) -> None:
        """Make the exchange of a job.

        Args:
            registry: The sessions.
            submitted_by: The job's operator.
            method: The job's method.
            submission: What the operator signed; None: nothing so far.
        """
        self._registry = registry
        self._submitted_by = submitted_by
        self._method = method
        self._submission = submission

    def present(self) -> frozenset[str]:
        """Clients that have a session now."""
        return self._registry.present()

    async def ask(self, call: Call[R]) -> Mapping[str, R | Fault]:
        """See `Exchange.ask`."""
        signed = self._submission or self._registry.signed(call.job_id)
        pending = OpenCall(call, self._registry, self._submitted_by, self._method, signed)
        await pending.prepare()
        self._registry.add_call(pending)
        try:
            return cast("Mapping[str, R | Fault]", await pending.result())
        finally:
            self._registry.remove_call(pending)
            pending.forget_spools()
