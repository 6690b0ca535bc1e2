"""Prometheus metrics of a coordinator: clients, jobs, rounds and steps, bytes, certificates, disk, the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final, Protocol

from prometheus_client import Counter as Total
from prometheus_client import Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kernfed.errors import error_from_reason
from kernfed.federation.events import EventKind, JobEvent, JobState
from kernfed.jobs.info import ClientInfo, JobInfo
from kernfed.pki.authority import utc_now
from kernfed.pki.records import IssuedCertificate, live
from kernfed.wire.metrics_endpoint import MetricsEndpoint, free_bytes, process_registry

_SECONDS: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3600.0)
"""Bounds of the histograms: steps take milliseconds to an hour."""

_LOOP_LOOK_S: Final = 1.0
_CERTIFICATES_KEPT_S: Final = 60.0
"""The registry is a file, which is read at most so often."""


class Federation(Protocol):
    """What the sessions tell."""

    @property
    def sent_bytes(self) -> Counter[str]:
        """Of requests, by step."""

    @property
    def received_bytes(self) -> Counter[str]:
        """Of replies that were counted, by step."""

    def present(self) -> frozenset[str]:
        """Clients that have a session."""

    def clients(self) -> Mapping[str, ClientInfo]:
        """Clients that are connected or were."""

    def revoked(self) -> Mapping[str, str]:
        """Clients whose certificates were revoked."""


class CoordinatorMetrics:
    """Counts what jobs do as it happens, and looks at the rest when it is scraped; see `Observer`."""

    def __init__(
        self,
        federation: Federation,
        certificates: Callable[[], Iterable[IssuedCertificate]],
        data: Path,
    ) -> None:
        """Begin at zero.

        Args:
            federation: The sessions.
            certificates: All that the CA issued. May block.
            data: The coordinator's data folder.
        """
        self.registry = registry = process_registry()
        self._asked: dict[tuple[str, str], float] = {}
        """When a step of a job was asked, by job and step."""
        self._opened: dict[str, float] = {}
        """When the round of a job was opened."""
        self._rounds = Total("kernfed_rounds", "Rounds that were closed.", ("method",), registry=registry)
        self._round_s = Histogram(
            "kernfed_round_seconds",
            "From a round's beginning to its end.",
            ("method",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._answer_s = Histogram(
            "kernfed_answer_seconds",
            "From a step's beginning to the answer of a client.",
            ("step",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._missed = Total(
            "kernfed_client_missed_steps", "Steps that a client did not answer in time.", ("client",), registry=registry
        )
        self._failed = Total(
            "kernfed_client_failures",
            "Answers of a client that were an error or a refusal, by reason.",
            ("client", "reason"),
            registry=registry,
        )
        self._ended = Total(
            "kernfed_jobs_ended",
            "Jobs that ended in this life of the coordinator.",
            ("state", "method", "reason"),
            registry=registry,
        )
        self._checkpoint_s = Histogram(
            "kernfed_checkpoint_seconds",
            "To keep the state after a round; a full disk is waited for.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._lag = Gauge(
            "kernfed_event_loop_lag_seconds", "By which the event loop was late lately, at most.", registry=registry
        )
        Gauge("kernfed_build_info", "1; the label is kernfed's version.", ("version",), registry=registry).labels(
            version("kernfed")
        ).set(1)
        self._looks = _Looks(federation, certificates, data)
        registry.register(self._looks)

    def follow(self, jobs: Callable[[], Collection[JobInfo]]) -> None:
        """Tell of the jobs that are not over, from now on."""
        self._looks.jobs = jobs

    @contextlib.contextmanager
    def served(self, where: str) -> Iterator[int]:
        """Answer scrapes at host:port; gives the port.

        Raises:
            ConfigError: The port is taken, or the address is not of this machine.
        """
        endpoint = MetricsEndpoint(where, self.registry)
        endpoint.start()
        try:
            yield endpoint.port
        finally:
            endpoint.stop()

    def event(self, job: JobInfo, event: JobEvent) -> None:
        """See `Observer.event`."""
        now = time.monotonic()
        match event.kind:
            case EventKind.ROUND_OPENED:
                self._opened[job.job_id] = now
            case EventKind.ROUND_CLOSED:
                self._rounds.labels(job.method).inc()
                if (began := self._opened.pop(job.job_id, None)) is not None:
                    self._round_s.labels(job.method).observe(now - began)
            case EventKind.STEP_ASKED:
                self._asked[job.job_id, event.step] = now
            case EventKind.CLIENT_ANSWERED:
                if (began := self._asked.get((job.job_id, event.step))) is not None:
                    self._answer_s.labels(event.step).observe(now - began)
            case EventKind.CLIENT_FAILED:
                self._failed.labels(event.client, _known(event.reason)).inc()
            case EventKind.CLIENT_MISSING:
                self._missed.labels(event.client).inc()
            case _:
                pass

    def checkpointed(self, seconds: float) -> None:
        """See `Observer.checkpointed`."""
        self._checkpoint_s.observe(seconds)

    def over(self, job: JobInfo) -> None:
        """See `Observer.over`."""
        self._ended.labels(job.state.value, job.method, job.error_reason).inc()
        self._opened.pop(job.job_id, None)
        for asked in [key for key in self._asked if key[0] == job.job_id]:
            del self._asked[asked]

    async def watch_loop(self) -> None:
        """See for ever how late the event loop is; what is told is the largest of the last minute."""
        late: list[float] = []
        while True:
            began = time.monotonic()
            await asyncio.sleep(_LOOP_LOOK_S)
            late = [*late[-59:], max(time.monotonic() - began - _LOOP_LOOK_S, 0.0)]
            self._lag.set(max(late))


def _known(reason: str) -> str:
    """A reason code of ours; a client may send any text, and each would be a series for ever."""
    return reason if error_from_reason(reason, "").reason == reason else "OTHER"


class _Looks(Collector):
    """What is looked at when somebody scrapes, in the thread that answers."""

    def __init__(
        self, federation: Federation, certificates: Callable[[], Iterable[IssuedCertificate]], data: Path
    ) -> None:
        self._federation, self._certificates, self._data = federation, certificates, data
        self.jobs: Callable[[], Collection[JobInfo]] = tuple
        self._ends: tuple[float, list[IssuedCertificate]] = (-_CERTIFICATES_KEPT_S, [])

    def describe(self) -> Iterable[Metric]:
        """Names are known without a look."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Gauges of now, and counters that others keep."""
        yield from self._of_clients()
        yield from self._of_jobs()
        yield from self._of_bytes()
        yield from self._of_certificates()
        yield GaugeMetricFamily(
            "kernfed_data_free_bytes", "Room on the disk of the data folder.", value=free_bytes(self._data)
        )

    def _of_clients(self) -> Iterator[Metric]:
        present = self._federation.present()
        yield GaugeMetricFamily("kernfed_connected_clients", "Clients that have a session.", value=len(present))
        connected = GaugeMetricFamily(
            "kernfed_client_present", "1 while a client has a session; revoked ones are not told.", labels=["client"]
        )
        troubled = GaugeMetricFamily(
            "kernfed_client_troubled", "1 while a client says that something keeps it from work.", labels=["client"]
        )
        heard = GaugeMetricFamily(
            "kernfed_client_last_heard_timestamp_seconds", "When a client was heard last.", labels=["client"]
        )
        revoked = self._federation.revoked()
        for name, info in self._federation.clients().items():
            if name in revoked:
                continue
            connected.add_metric([name], float(name in present))
            troubled.add_metric([name], float(bool(info.trouble)))
            if info.last_seen_at is not None:
                heard.add_metric([name], info.last_seen_at.timestamp())
        yield from (connected, troubled, heard)

    def _of_jobs(self) -> Iterator[Metric]:
        live_jobs = list(self.jobs())
        found = Counter(info.state.value for info in live_jobs)
        by_state = GaugeMetricFamily("kernfed_jobs", "Jobs that are not over, by state.", labels=["state"])
        for state in (JobState.QUEUED, JobState.RUNNING):
            by_state.add_metric([state.value], found[state.value])
        yield by_state
        waiting = sum(info.state is JobState.RUNNING and bool(info.waiting_for) for info in live_jobs)
        yield GaugeMetricFamily(
            "kernfed_jobs_waiting", "Running jobs that wait for clients, signatures or the disk.", value=waiting
        )

    def _of_bytes(self) -> Iterator[Metric]:
        for name, words, by_step in (
            ("kernfed_request_bytes", "Of requests, as queued for each client.", self._federation.sent_bytes),
            ("kernfed_reply_bytes", "Of the bodies of replies that were counted.", self._federation.received_bytes),
        ):
            told = CounterMetricFamily(name, words, labels=["step"])
            for step, num_bytes in sorted(dict(by_step).items()):
                told.add_metric([step], num_bytes)
            yield told

    def _of_certificates(self) -> Iterator[Metric]:
        if time.monotonic() - self._ends[0] >= _CERTIFICATES_KEPT_S:
            self._ends = time.monotonic(), live(self._certificates(), utc_now())
        last: dict[tuple[str, str], float] = {}
        for found in self._ends[1]:
            holder = found.role.value, found.name
            last[holder] = max(found.not_after.timestamp(), last.get(holder, 0.0))
        told = GaugeMetricFamily(
            "kernfed_certificate_end_timestamp_seconds",
            "When the last valid certificate of a client, an operator or the coordinator ends.",
            labels=["role", "name"],
        )
        for (role, name), end in sorted(last.items()):
            told.add_metric([role, name], end)
        yield told
