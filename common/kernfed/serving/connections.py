"""Ports of services over HTTP, and their connections: one that asks nothing is ended, so idle ones keep nobody out."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any, ClassVar, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from kernfed.errors import UnavailableError

MAX_CONNECTIONS: Final = 200
"""More are told to come again."""


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


def configured(
    app: ASGIApp,
    tls: ssl.SSLContext | None,
    protocol: type[PatientProtocol] = PatientProtocol,
    *,
    stop_s: int,
    keep_alive_s: int = 5,
    header_bytes: int | None = None,
) -> uvicorn.Config:
    """How uvicorn serves an app: HTTP/1.1 alone, no log of its own, nothing told of itself.

    Args:
        app: The app.
        tls: None: plain HTTP.
        protocol: Of its connections.
        stop_s: Seconds for requests that are in the works when the service ends.
        keep_alive_s: Seconds for which a connection stays open behind an answer.
        header_bytes: Most of a request's head; None: uvicorn's.
    """
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=keep_alive_s,
        timeout_graceful_shutdown=stop_s,
        h11_max_incomplete_event_size=header_bytes,
    )
    config.load()
    config.ssl = tls
    return config


def listener(host: str, port: int, what: str, remedy: str) -> socket.socket:
    """A bound socket.

    Args:
        host: Address of this machine; `::` are all, of IPv4 too.
        port: 0: one that the system chooses.
        what: Could not be done, for a message, e.g. `cannot listen on ...`.
        remedy: Of that message.

    Raises:
        UnavailableError: The port is taken, or the address is not of this machine.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        both = host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server((host, port), family=family, backlog=MAX_CONNECTIONS, dualstack_ipv6=both)
    except (OSError, OverflowError) as err:
        raise UnavailableError(f"{what} ({getattr(err, 'strerror', None) or err}); {remedy}") from err
