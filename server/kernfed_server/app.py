"""The coordinator, put together: PKI, store, sessions, jobs, and the two ports that serve them."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import structlog

from kernfed import files
from kernfed.errors import ConfigError, UnavailableError
from kernfed.federation.cohort import Cohort
from kernfed.jobs.info import JobInfo
from kernfed.jobs.job_file import JobFile
from kernfed.pki.authority import utc_now
from kernfed.pki.identity import Identity, Role, admission, enrolment_server_credentials, server_credentials
from kernfed.pki.records import IssuedCertificate, Revocation, live
from kernfed.pki.registry_file import RENEWED
from kernfed.pki.revocation_list import sign_list
from kernfed.process_lock import LOCK_FILE, ProcessLock
from kernfed.service import stop_signal
from kernfed.status import StatusInterceptor
from kernfed.v1 import enrolment_service_pb2_grpc, federation_service_pb2, operator_service_pb2_grpc, task_pb2
from kernfed.wire.channel import (
    ENROLMENT_OPTIONS,
    SERVER_OPTIONS,
    address,
    split_listen,
)
from kernfed_server.config import CoordinatorFile, database_url, open_pki
from kernfed_server.federation.exchange import RemoteExchange
from kernfed_server.federation.session import SessionLimits, ToldSubmission
from kernfed_server.federation.sessions import SessionRegistry
from kernfed_server.jobs.run import Model, Run
from kernfed_server.jobs.tasks.manager import RunLimits, RunManager
from kernfed_server.keeping.ownership import Owner
from kernfed_server.keeping.store import Store
from kernfed_server.services.enrolment import EnrolmentServicer
from kernfed_server.services.federation import FederationServicer
from kernfed_server.services.health import Health
from kernfed_server.services.operator import OperatorServicer
from kernfed_server.trust.own_certificate import keep_own_certificate_renewed
from kernfed_server.trust.revocations import RevocationWatch
from kernfed_server.web.door import Door, Page

if TYPE_CHECKING:
    from kernfed_server.services.metrics import CoordinatorMetrics

log = structlog.get_logger(__name__)

_FAREWELL_S = 3.0
"""Of the time to stop, what is left for goodbyes after the rounds."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Addresses on which a coordinator listens."""

    federation: int
    enrolment: int
    page: int = 0
    """The operator's page; 0: none."""


class Coordinator:
    """One federation's coordinator."""

    def __init__(self, file: CoordinatorFile) -> None:
        """Check identity and folders; nothing listens yet.

        Raises:
            KernfedError: PKI or folders cannot be used; tells what to do.
        """
        self._file = file
        self._pki = open_pki(file)
        self._identity = Identity.load(self._pki.coordinator_folder)
        self._identity.warn_if_expiring(utc_now())
        try:
            file.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as err:
            raise ConfigError(f"data: {file.data} cannot be made: {err.strerror}; choose another folder") from err
        limits = SessionLimits(
            file.heartbeat_interval_s,
            file.heartbeat_timeout_s,
            file.max_body_bytes,
            max_inflight_bytes=file.max_inflight_bytes,
            max_frames_per_s=file.max_frames_per_s,
        )
        self.sessions = SessionRegistry(limits, file.data / "spool")
        self._revocations = RevocationWatch(
            self._pki.registry, self._on_revoked, on_operators=self._on_operators_revoked
        )
        certificates = self._pki.registry.certificates()
        for name in {c.name for c in certificates if c.role is Role.CLIENT and c.revoked_at}:
            self._leave_out(name, certificates)
        self._health = Health()
        self._metrics_at = file.metrics_at
        self._page_at = file.web.served_at
        self._stop_by: float | None = None
        """When a coordinator that stops must be gone, by the loop's clock."""

    def _on_revoked(self, revocation: Revocation, certificates: Sequence[IssuedCertificate]) -> None:
        self.sessions.cut(
            frozenset({revocation.serial}),
            "REVOKED",
            "the certificate was revoked: ask the operator for a new token and enrol again",
        )
        self._leave_out(revocation.name, certificates)

    def _on_operators_revoked(self, serials: Mapping[str, datetime], number: int) -> None:
        signed = sign_list(self._pki.authority, serials, number, utc_now())
        self.sessions.announce(federation_service_pb2.RevocationList(der=signed))

    def _leave_out(self, client: str, certificates: Sequence[IssuedCertificate]) -> None:
        """A client that has no other certificate, as one that was renewed has, is out of every cohort."""
        if client not in enrolled_clients(certificates):
            own = [c for c in certificates if c.role is Role.CLIENT and c.name == client]
            told = [(c.revoked_at, c.revoked_why) for c in own if c.revoked_at and c.revoked_why != RENEWED]
            self.sessions.revoke(client, max(told, default=(None, ""))[1])

    async def run(self, stop: asyncio.Event, ready: Callable[[Ports], None] = lambda _: None) -> None:
        """Serve until `stop` is set; then close the rounds that can be closed in time, tell the clients, and go.

        Args:
            stop: Set by a signal.
            ready: Called once both ports answer.

        Raises:
            KernfedError: A port is taken, the store cannot be opened, or another coordinator uses the same one.
        """
        file = self._file
        await self._health.starting()
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(_lock(file.data).release)
            _empty_folder(file.data / "spool")
            store = await Store.open(database_url(file), file.data, Owner.of(self._pki))
            stack.push_async_callback(store.close)
            self._pki.registry.books_begun()
            workflows: asyncio.Future[ModuleType] = asyncio.get_running_loop().create_future()

            async def execute(job: JobFile, cohort: Cohort, run: Run) -> Model | None:
                loaded = await asyncio.shield(workflows)
                model: Model | None = await loaded.execute(job, cohort, run, read_file=runs.uploads.read)
                return model

            metrics = self._metrics()
            runs = RunManager(
                store,
                self.sessions,
                self._exchange,
                file.data,
                execute=execute,
                known_clients=lambda: enrolled_clients(self._pki.registry.certificates()),
                limits=RunLimits(jobs_per_client=file.jobs_per_client, foreign_states=file.foreign_states),
                observer=metrics,
            )
            background = [
                asyncio.ensure_future(c)
                for c in (
                    runs.run(),
                    store.hold(self._health.store),
                    self._revocations.run(),
                    keep_own_certificate_renewed(self._pki),
                    *self._serve_metrics(metrics, runs, stack),
                )
            ]
            stack.push_async_callback(_cancel, background)
            page = await self._serve_page(runs, store, stack)
            ports = Ports(
                await stack.enter_async_context(self._serving_federation(runs, page)),
                await stack.enter_async_context(self._serving_enrolment()),
                page.port if page else 0,
            )
            await self._health.serving()
            ready(ports)
            log.info(
                "coordinator ready",
                federation=self._pki.federation,
                listen=file.listen,
                port=ports.federation,
                enrolment_port=ports.enrolment,
                data=str(file.data),
                **({"page": page.address} if page else {}),
            )
            workflows.set_result(await asyncio.to_thread(_workflows))
            stopped = asyncio.ensure_future(stop.wait())
            done, _ = await asyncio.wait([stopped, *background], return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            for task in done - {stopped}:
                task.result()  # a background task ends only by an error
            log.info("coordinator stops", sessions=len(self.sessions.present()))
            await self._health.draining()
            self._stop_by = asyncio.get_running_loop().time() + file.drain_s
            await runs.finish_rounds(max(file.drain_s - _FAREWELL_S, file.drain_s / 2))
            runs.drain()
            self.sessions.drain("the coordinator is shutting down; connect again in a moment")

    def _metrics(self) -> CoordinatorMetrics | None:
        if self._metrics_at is None:
            return None
        from kernfed_server.services.metrics import CoordinatorMetrics  # noqa: PLC0415  # where an address is set alone

        return CoordinatorMetrics(self.sessions, self._pki.registry.certificates, self._file.data)

    def _serve_metrics(
        self, metrics: CoordinatorMetrics | None, runs: RunManager, stack: contextlib.AsyncExitStack
    ) -> list[Coroutine[Any, Any, None]]:
        """Answer scrapes until the stack ends; what goes on in the background meanwhile."""
        if metrics is None or self._metrics_at is None:
            return []
        metrics.follow(lambda: [active.info for active in list(runs.queue.active.values())])
        stack.enter_context(metrics.served(self._metrics_at))
        return [metrics.watch_loop()]

    async def _serve_page(self, runs: RunManager, store: Store, stack: contextlib.AsyncExitStack) -> Page | None:
        """Answer browsers until the stack ends; None: no address is set."""
        if self._page_at is None:
            return None
        try:
            from kernfed_server.web.server import serving_page  # noqa: PLC0415  # where an address is set alone
            from kernfed_server.web.site import Site  # noqa: PLC0415  # likewise
        except ModuleNotFoundError as err:
            raise ConfigError(
                f"web: the page needs a package that is missing: pip install 'kernfed[web]' ({err})"
            ) from err
        door = Door(self._pki.federation, self._revocations.is_revoked)
        site = Site(door, runs, store, self.sessions)
        folder = self._pki.coordinator_folder
        return await stack.enter_async_context(serving_page(self._page_at, self._file.web, folder, site))

    def _exchange(self, job: JobInfo, submission: task_pb2.Submission | None) -> RemoteExchange:
        told = None if submission is None else ToldSubmission.of(job, submission)
        return RemoteExchange(self.sessions, job.submitted_by, job.method, told)

    @contextlib.asynccontextmanager
    async def _serving_federation(self, runs: RunManager, page: Page | None) -> AsyncIterator[int]:
        admit = admission(self._pki.federation, self._revocations.is_revoked)
        server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=[StatusInterceptor(admit)])
        server.add_generic_rpc_handlers((FederationServicer(self.sessions).handler(),))
        operator_service_pb2_grpc.add_OperatorServiceServicer_to_server(
            OperatorServicer(runs, self._pki.authority.certificate, page), server
        )
        enrolment_service_pb2_grpc.add_EnrolmentServiceServicer_to_server(EnrolmentServicer(self._pki), server)
        self._health.add_to(server, with_watch=True)
        credentials = server_credentials(self._pki.coordinator_folder)
        async with self._listening(server, self._file.listen, "listen", credentials) as port:
            yield port

    @contextlib.asynccontextmanager
    async def _serving_enrolment(self) -> AsyncIterator[int]:
        server = grpc.aio.server(options=ENROLMENT_OPTIONS, interceptors=[StatusInterceptor()])
        enrolment_service_pb2_grpc.add_EnrolmentServiceServicer_to_server(EnrolmentServicer(self._pki), server)
        self._health.add_to(server, with_watch=False)
        credentials = enrolment_server_credentials(self._pki.coordinator_folder)
        async with self._listening(server, self._file.enrolment_listen, "enrolment_listen", credentials) as port:
            yield port

    def _time_to_stop(self) -> float:
        if self._stop_by is None:
            return self._file.drain_s
        return max(self._stop_by - asyncio.get_running_loop().time(), 0.1)

    @contextlib.asynccontextmanager
    async def _listening(
        self, server: grpc.aio.Server, where: str, key: str, credentials: grpc.ServerCredentials
    ) -> AsyncIterator[int]:
        host, wanted = split_listen(where)
        try:
            try:
                port = server.add_secure_port(address(host, wanted), credentials)
            except RuntimeError as err:
                raise UnavailableError(
                    f"{key}: cannot listen on {where}; another coordinator may hold the port, or the address is not "
                    f"of this machine"
                ) from err
            await server.start()
            yield port
        finally:
            await server.stop(self._time_to_stop())


def enrolled_clients(certificates: Iterable[IssuedCertificate]) -> set[str]:
    """Names of the clients that hold a certificate which is neither revoked nor expired."""
    return {c.name for c in live(certificates, utc_now()) if c.role is Role.CLIENT}


def _lock(data: Path) -> ProcessLock:
    remedy = "stop that one, or give this one another folder with `data`"
    return ProcessLock(data / LOCK_FILE, what=f"{data} is the data folder of a coordinator that runs", remedy=remedy)


def _empty_folder(path: Path) -> None:
    """Bodies of replies on their way; whatever lies there is of an earlier life."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(mode=0o700)


async def _cancel(tasks: Sequence[asyncio.Future[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=10)


def _workflows() -> ModuleType:
    """What runs jobs, which the start of all else does not wait for; each method's room is loaded by its first job."""
    from kernfed_server.jobs import execute  # noqa: PLC0415  # loads what all methods share

    return execute


async def serve(file: CoordinatorFile, port_file: Path | None = None) -> None:
    """Run a coordinator until SIGTERM or SIGINT.

    Args:
        file: Configuration.
        port_file: Where to write the two ports once they answer, as `federation enrolment`; for scripts that let the
            system choose them.
    """
    stop = stop_signal()

    def announce(ports: Ports) -> None:
        if port_file is not None:
            # Not durable: after a loss of power the coordinator starts anew, on other ports.
            files.replace(port_file, f"{ports.federation} {ports.enrolment}\n".encode(), durable=False)

    await Coordinator(file).run(stop, announce)
