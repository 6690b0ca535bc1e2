"""A whole federation over real sockets: coordinator and clients in this process, or as processes of their own.

async with Federation(tmp_path, ["a", "b"]) as fed:
    job = await fed.run(fed.job("newton"))
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from unittest import mock

import numpy as np

from kernfed.federation.events import EventKind, JobEvent, JobState
from kernfed.jobs.client_file import load_client_file
from kernfed.jobs.info import JobInfo, JobUpdate
from kernfed.pki.identity import Identity, Role
from kernfed.wire.operator_client import OperatorClient
from kernfed_client.app import ClientDaemon
from kernfed_server.app import Coordinator, Ports
from kernfed_server.config import load_coordinator_file
from kernfed_server.federation.sessions import SessionRegistry
from kernfed_server.keeping.history import PASSING
from kernfed_testing import nodes
from kernfed_testing.identities import Identities, make_identities
from kernfed_testing.machine.ports import free_port
from kernfed_testing.machine.proxy import Proxy
from kernfed_testing.nodes import InProcess, Node, Process

COLUMNS = ("age", "dose", "pressure")


def make_csv(name: str, num_rows: int = 60) -> str:
    """Rows of a client: three number columns, a number `y` and a class `ill`; the same for the same name."""
    draw = np.random.default_rng(list(name.encode()))
    x = draw.normal(size=(num_rows, len(COLUMNS))) + draw.normal(size=len(COLUMNS))
    y = np.sin(x[:, 0]) + 0.5 * x[:, 1] + 0.1 * draw.normal(size=num_rows)
    lines = [",".join((*COLUMNS, "y", "ill"))]
    lines += [f"{a!r},{b!r},{c!r},{t!r},{int(t > 0)}" for (a, b, c), t in zip(x.tolist(), y.tolist(), strict=True)]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Ended:
    """A job that is over, and its events."""

    info: JobInfo
    events: tuple[JobEvent, ...]

    def of(self, kind: EventKind, client: str | None = None) -> list[JobEvent]:
        """Its events of a kind, of one client or of any."""
        return [e for e in self.events if e.kind is kind and client in (None, e.client)]


class Federation:
    """A CA, a coordinator, its clients with their data, and an operator, all in one folder."""

    def __init__(
        self,
        root: Path,
        clients: Iterable[str] | Mapping[str, str],
        *,
        processes: bool = False,
        fresh: bool = False,
        proxied: Iterable[str] = (),
        idle: Iterable[str] = (),
        settings: Mapping[str, str] | None = None,
        heartbeat_s: tuple[float, float] = (0.3, 5.0),
        coordinator: str = "",
        drain_s: float = 1.0,
        environment: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Prepare; entering the context starts everything and leaving it ends everything.

        Args:
            root: Empty folder.
            clients: Names, or names with the text of their CSV files.
            processes: Whether daemons are processes of their own.
            fresh: Whether these are interpreters that start from nothing.
            proxied: Clients that reach the coordinator through a proxy.
            idle: Clients that are enrolled and not started.
            settings: More lines for client files, by client.
            heartbeat_s: Interval and timeout.
            coordinator: More lines for the coordinator file.
            drain_s: Of the coordinator file.
            environment: More of the environment of processes, by client, and of `coordinator`.
        """
        self.root = root
        self.data = dict(clients) if isinstance(clients, Mapping) else {name: make_csv(name) for name in clients}
        self.processes = processes
        self._fresh = fresh
        self._proxied = frozenset(proxied)
        self._idle = frozenset(idle)
        self._settings = settings or {}
        self._heartbeat_s = heartbeat_s
        self._coordinator_settings = coordinator
        self._drain_s = drain_s
        self._environment = environment or {}
        self.ports = Ports(free_port(), free_port())
        """Its own: one that was given by the system may be another's by the time that the coordinator starts again."""
        self.proxies: dict[str, Proxy] = {}
        self.clients: dict[str, Any] = {}
        """Client nodes by name."""
        self.daemons: dict[str, ClientDaemon] = {}
        """In-process clients' daemons, of their present lives."""
        self.coordinator: Any = None
        """The coordinator's node."""
        self._app: Coordinator | None = None
        self._stack = contextlib.AsyncExitStack()

    @property
    def app(self) -> Coordinator:
        """An in-process coordinator."""
        assert self._app is not None
        return self._app

    @property
    def sessions(self) -> SessionRegistry:
        """The sessions of an in-process coordinator."""
        return self.app.sessions

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        self.identities: Identities = make_identities(self.root)
        if not self.processes:
            # Plots are the business of other tests, and cost seconds per job.
            async def no_report(*_: object) -> str:
                return ""

            self._stack.enter_context(mock.patch("kernfed_server.jobs.tasks.task.render_report", no_report))
            # A test that begins to watch late on a busy machine is told of these as well.
            self._stack.enter_context(mock.patch("kernfed_server.keeping.history.PASSING", frozenset()))
        self.coordinator = self._make_coordinator()
        self._stack.push_async_callback(self._stop_coordinator)
        await self.start_coordinator()
        for name in sorted(self.data):
            if name in self._proxied:
                self.proxies[name] = await self._stack.enter_async_context(Proxy(lambda: self.ports.federation))
            self._write_client(name)
            self.clients[name] = self._make_client(name)
            self._stack.push_async_callback(self._stop_client, name)
        started = [name for name in self.clients if name not in self._idle]
        for name in started:
            await self.clients[name].start()
        await self.wait_connected(*started)
        self.operator = await self._stack.enter_async_context(
            OperatorClient(Identity.load(self.identities.operator), f"localhost:{self.ports.federation}")
        )

    # By name: a test may have put another node in the place of one that it killed.
    async def _stop_coordinator(self) -> None:
        await self.coordinator.kill()

    async def _stop_client(self, name: str) -> None:
        await self.clients[name].kill()

    async def start_coordinator(self) -> None:
        """Start the coordinator, on the ports of its last life."""
        self._write_coordinator()
        (self.root / "ports").unlink(missing_ok=True)
        await self.coordinator.start()
        if self.processes:
            ready = await self.coordinator.saw("coordinator ready")
            self.ports = Ports(ready["port"], ready["enrolment_port"])

    async def wait_connected(self, *names: str) -> None:
        """Wait until clients have sessions, of the coordinator's present life."""
        if self.processes:
            for name in names:
                await self.coordinator.saw("client connected", client=name)
            return
        await self._wait_present(lambda present: present.issuperset(names))

    async def wait_disconnected(self, *names: str) -> None:
        """Wait until clients of an in-process coordinator have no sessions."""
        await self._wait_present(lambda present: present.isdisjoint(names))

    async def _wait_present(self, good: Callable[[frozenset[str]], bool]) -> None:
        async with asyncio.timeout(nodes.LIMIT_S):
            while not good(self.sessions.present()):
                await self.sessions.wait_change(nodes.LIMIT_S)

    def job(self, method: str, clients: Iterable[str] = (), **settings: Any) -> str:
        """Text of a job file on the harness's data.

        Args:
            method: `method.name`.
            clients: The cohort; all clients where empty.
            settings: Of the method; those named `cohort_*` and `data_*` go to these sections. `features = False`: the
                job has no feature map.
        """
        mapped = settings.pop("features", True)

        def lines(prefix: str) -> list[str]:
            return [f"{k.removeprefix(prefix)} = {json.dumps(v)}" for k, v in settings.items() if k.startswith(prefix)]

        own = {k: v for k, v in settings.items() if not k.startswith(("cohort_", "data_"))}
        seed = [] if method == "probe" else ["seed = 3"]
        text = [f'name = "{method}"', *seed, "[method]", f'name = "{method}"']
        text += [f"{k} = {json.dumps(v)}" for k, v in own.items()]
        text += ["[cohort]", f"clients = {json.dumps(sorted(clients or self.data))}", *lines("cohort_")]
        if method != "probe":
            text += ["[data]", *lines("data_")]
            if "data_target" not in settings:
                text += ['task = "regression"', 'target = "y"']
            text += [f"features = {json.dumps(COLUMNS)}"]
            text += ["[features]", "num_frequencies = 20"] if mapped else []
        return "\n".join(text) + "\n"

    async def submit(self, job_toml: str) -> JobInfo:
        """Submit a job as the operator; processes draw no plots for it, which cost seconds, unless it asks for them."""
        if self.processes and "report = " not in job_toml:
            job_toml = f"report = false\n{job_toml}"
        return await self.operator.submit(job_toml)

    async def run(self, job_toml: str) -> Ended:
        """Submit a job and wait for its end."""
        return await self.end((await self.submit(job_toml)).job_id)

    async def end(self, job_id: str) -> Ended:
        """Wait for a job's end."""
        events: list[JobEvent] = []
        info = await self.operator.get(job_id)
        async with asyncio.timeout(nodes.LIMIT_S):
            async for update in self._updates(job_id):
                if update.event is not None:
                    events.append(update.event.event)
                info = update.job or info
        assert info.state.finished
        return Ended(info, tuple(events))

    async def event(self, job_id: str, kind: EventKind, **fields: object) -> JobEvent:
        """Wait for an event of a job, past or to come."""
        assert not (self.processes and kind in PASSING), f"{kind} may be over already: wait for one that is kept"
        async with asyncio.timeout(nodes.LIMIT_S):
            async for update in self._updates(job_id):
                if update.event is not None:
                    event = update.event.event
                    if event.kind is kind and all(getattr(event, k) == v for k, v in fields.items()):
                        return event
        raise AssertionError(f"job {job_id} ended without an event {kind} {fields}")

    async def _updates(self, job_id: str) -> AsyncIterator[JobUpdate]:
        async with contextlib.aclosing(self.operator.watch(job_id)) as updates:
            async for update in updates:
                yield update

    async def model_sha256(self, ended: Ended) -> str:
        """Digest of the model that a job left."""
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        left = {artifact.name: artifact.sha256 for artifact in await self.operator.artifacts(ended.info.job_id)}
        return left["model.safetensors"]

    def client_folder(self, name: str) -> Path:
        """Where a client's file, data, identity and state lie."""
        return self.root / "clients" / name

    def _write_coordinator(self) -> None:
        interval, timeout = self._heartbeat_s
        port, enrolment = self.ports.federation, self.ports.enrolment
        (self.root / "coordinator.toml").write_text(
            f'listen = "127.0.0.1:{port}"\nenrolment_listen = "127.0.0.1:{enrolment}"\n'
            f"heartbeat_interval_s = {interval}\nheartbeat_timeout_s = {timeout}\ndrain_s = {self._drain_s}\n"
            f"{self._coordinator_settings}\n"
        )

    def _write_client(self, name: str) -> None:
        folder = self.client_folder(name)
        folder.mkdir(parents=True)
        self.identities.make(Role.CLIENT, name, into=folder / "identity")
        (folder / "train.csv").write_text(self.data[name])
        port = self.proxies[name].port if name in self.proxies else self.ports.federation
        (folder / "client.toml").write_text(
            f'coordinator = "localhost:{port}"\ndevice = "cpu"\nthreads = 1\nreconnect_max_s = 0.3\n'
            f'[datasets.default.train]\npath = "train.csv"\n{self._settings.get(name, "")}\n'
        )

    def _make_coordinator(self) -> Node:
        if self.processes:
            environment = self._environment.get("coordinator")
            return Process("kernfed_server", "run", cwd=self.root, env=environment, fresh=self._fresh)

        async def run(stop: asyncio.Event, ready: Callable[[], None]) -> None:
            def announce(ports: Ports) -> None:
                self.ports = ports
                ready()

            self._app = Coordinator(load_coordinator_file(self.root / "coordinator.toml"))
            await self._app.run(stop, announce)

        return InProcess(run, waits=True)

    def _make_client(self, name: str) -> Node:
        if self.processes:
            folder, environment = self.client_folder(name), self._environment.get(name)
            return Process("kernfed_client", "run", cwd=folder, env=environment, fresh=self._fresh)

        async def run(stop: asyncio.Event, ready: Callable[[], None]) -> None:
            self.daemons[name] = ClientDaemon(load_client_file(self.client_folder(name) / "client.toml"))
            await self.daemons[name].run(stop, ready)

        return InProcess(run, waits=False)
