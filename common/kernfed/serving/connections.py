"""Connections to a service: one that asks nothing is ended, so that idle ones never keep others out."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol


class PatientProtocol(H11Protocol):
    """HTTP/1.1 with an end to each wait for a request: at the start, within its head, and after an answer."""

    idle_s: ClassVar[float] = 30.0
    """A connection is looked at each time this long has passed, in seconds."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._seen: Any = None
        self._look = self.loop.call_later(self.idle_s, self._end_if_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._look.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """End the connection as the service stops: at once where its request has not all come, else once answered."""
        if self.cycle is not None and not self.cycle.response_complete and self.cycle.more_body:
            self.transport.close()
        else:
            super().shutdown()

    def _end_if_idle(self) -> None:
        """End it where no request was begun since the last look, and none is in the works."""
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self.cycle is self._seen:
            self.transport.close()
            return
        self._seen = self.cycle
        self._look = self.loop.call_later(self.idle_s, self._end_if_idle)
