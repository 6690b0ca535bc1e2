"""Prometheus metrics of a client daemon, on loopback: whether it is connected, and what left, by step."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from kernfed.errors import ConfigError


class ClientMetrics:
    """Counts what a daemon does. Costs nothing until it is served."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._serving: tuple[WSGIServer, Thread] | None = None
        self._connected = Gauge(
            "kernfed_client_connected", "1 while there is a session with the coordinator.", registry=self._registry
        )
        self._replies = Counter("kernfed_client_replies", "Replies that left.", ("step",), registry=self._registry)
        self._bytes = Counter(
            "kernfed_client_reply_bytes", "Bytes of the replies that left.", ("step",), registry=self._registry
        )

    def replied(self, step: str, num_bytes: int) -> None:
        """A reply is about to leave.

        Args:
            step: Its step, one of this client's own table.
            num_bytes: Size of header and body.
        """
        self._replies.labels(step).inc()
        self._bytes.labels(step).inc(num_bytes)

    def serve(self, port: int, connected: Callable[[], bool]) -> None:
        """Answer scrapes on 127.0.0.1 until `stop`.

        Args:
            port: Where to listen.
            connected: Whether there is a session now.

        Raises:
            ConfigError: The port is taken.
        """
        self._connected.set_function(lambda: float(connected()))
        try:
            self._serving = start_http_server(port, addr="127.0.0.1", registry=self._registry)
        except OSError as err:
            raise ConfigError(
                f"metrics_port: cannot listen on 127.0.0.1:{port}: {err.strerror}; choose another"
            ) from err

    def stop(self) -> None:
        """Answer no more."""
        if self._serving is not None:
            server, thread = self._serving
            server.shutdown()
            server.server_close()
            thread.join(5)
            self._serving = None
