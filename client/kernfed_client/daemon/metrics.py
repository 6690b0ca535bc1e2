"""Prometheus metrics of a client daemon: whether it is connected, what left and what was refused, and its streams."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path

from prometheus_client import Counter, Gauge
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from kernfed.errors import KernfedError
from kernfed.wire.metrics_endpoint import MetricsEndpoint, free_bytes, process_registry
from kernfed_client.streams.notices import NOTICES


class ClientMetrics:
    """Counts what a daemon does. Costs nothing until it is served."""

    def __init__(self, where: str, state: Path, streams: Iterable[tuple[str, Path]] = ()) -> None:
        """Begin at zero; nothing listens yet.

        Args:
            where: host:port.
            state: State folder, whose disk is watched.
            streams: Data sets, with the folders of their streams.
        """
        self.registry = registry = process_registry()
        self._endpoint = MetricsEndpoint(where, registry)
        self._connected = Gauge(
            "kernfed_client_connected", "1 while there is a session with the coordinator.", registry=registry
        )
        self._waits = Gauge(
            "kernfed_client_waits", "1 while something cannot go on; health says what.", registry=registry
        )
        self._end = Gauge(
            "kernfed_client_certificate_end_timestamp_seconds", "When the certificate ends.", registry=registry
        )
        Gauge(
            "kernfed_client_state_free_bytes", "Room on the disk of the state folder.", registry=registry
        ).set_function(lambda: free_bytes(state))
        self._replies = Counter("kernfed_client_replies", "Replies that left.", ("step",), registry=registry)
        self._bytes = Counter(
            "kernfed_client_reply_bytes", "Bytes of the replies that left.", ("step",), registry=registry
        )
        self._refused = Counter(
            "kernfed_client_refusals", "Steps that the policy refused.", ("step", "reason"), registry=registry
        )
        registry.register(_Streams(tuple(streams)))

    @property
    def port(self) -> int:
        """Where it listens, once it does."""
        return self._endpoint.port

    def replied(self, step: str, num_bytes: int) -> None:
        """A reply is about to leave.

        Args:
            step: Its step, one of this client's own table.
            num_bytes: Size of header and body.
        """
        self._replies.labels(step).inc()
        self._bytes.labels(step).inc(num_bytes)

    def refused(self, step: str, reason: str) -> None:
        """A step was refused.

        Args:
            step: One of this client's own table.
            reason: Code of the refusal.
        """
        self._refused.labels(step, reason).inc()

    def serve(
        self, connected: Callable[[], bool], waits: Callable[[], str], certificate_end: Callable[[], datetime]
    ) -> None:
        """Answer scrapes until `stop`.

        Args:
            connected: Whether there is a session now.
            waits: What cannot go on; empty: nothing.
            certificate_end: When the certificate ends that is in use.

        Raises:
            ConfigError: The port is taken, or the address is not of this machine.
        """
        self._connected.set_function(lambda: float(connected()))
        self._waits.set_function(lambda: float(bool(waits())))
        self._end.set_function(lambda: _end_of(certificate_end))
        self._endpoint.start()

    def stop(self) -> None:
        """Answer no more."""
        self._endpoint.stop()


class _Streams(Collector):
    """Rows of streams since the daemon started."""

    def __init__(self, folders: tuple[tuple[str, Path], ...]) -> None:
        self._folders = folders

    def describe(self) -> Iterable[Metric]:
        """Names are known without a look."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Rows that were read, and rows left out by kind."""
        read = CounterMetricFamily(
            "kernfed_client_stream_rows",
            "Rows read of a stream; those of a step that ran again count again.",
            labels=["dataset"],
        )
        left_out = CounterMetricFamily(
            "kernfed_client_stream_rows_left_out",
            "Rows of a stream that are no rows, by kind.",
            labels=["dataset", "kind"],
        )
        for dataset, folder in self._folders:
            num_read, by_kind = NOTICES.counts(folder)
            read.add_metric([dataset], num_read)
            for kind, num in sorted(by_kind.items()):
                left_out.add_metric([dataset, kind.value], num)
        yield from (read, left_out)


def _end_of(certificate_end: Callable[[], datetime]) -> float:
    """In seconds; NaN while the identity folder cannot be read, as in a renewal."""
    try:
        return certificate_end().timestamp()
    except KernfedError:
        return math.nan
