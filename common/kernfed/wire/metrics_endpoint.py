"""Prometheus metrics over HTTP, as both daemons serve them: plain, without a password, so on loopback unless told."""

from __future__ import annotations

import math
import shutil
import socket
from pathlib import Path
from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, start_http_server

from kernfed.errors import ConfigError


def process_registry() -> CollectorRegistry:
    """A registry that tells memory, processor time and descriptors of this process."""
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    return registry


def free_bytes(folder: Path) -> float:
    """Room on the disk of a folder, for users who are not root; NaN where it cannot be told."""
    try:
        return float(shutil.disk_usage(folder).free)
    except OSError:
        return math.nan


class MetricsEndpoint:
    """Answers scrapes in a thread of its own, from `start` to `stop`."""

    def __init__(self, where: str, registry: CollectorRegistry) -> None:
        """Prepare; nothing listens yet.

        Args:
            where: host:port. Port 0 lets the system choose; see `port`.
            registry: What is told.
        """
        self._where, self._registry = where, registry
        self._serving: tuple[WSGIServer, Thread] | None = None
        self.port = 0
        """Where it listens, once it does."""

    def start(self) -> None:
        """Listen.

        Raises:
            ConfigError: The port is taken, or the address is not of this machine.
        """
        host, _, port = self._where.rpartition(":")
        try:
            server, thread = start_http_server(int(port), addr=host.strip("[]"), registry=self._registry)
        except (OSError, socket.gaierror) as err:
            why = err.strerror or str(err)
            raise ConfigError(
                f"metrics_listen, metrics_port: cannot listen on {self._where}: {why}; choose another"
            ) from err
        self._serving, self.port = (server, thread), server.server_port

    def stop(self) -> None:
        """Answer no more."""
        if self._serving is not None:
            server, thread = self._serving
            server.shutdown()
            server.server_close()
            thread.join(5)
            self._serving = None
