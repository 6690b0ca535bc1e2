"""A federation of containers: a coordinator and clients on private networks, with what tests do to them.

Everything it makes carries a label with the process that made it, and is removed when the block is left; what a killed
test run left is removed by the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import secrets
import tarfile
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, NotFound

from kernfed.pki.identity import Identity
from kernfed.wire.operator_client import OperatorClient
from kernfed_testing.limits import LIMIT_S, until
from kernfed_testing.machine.ports import free_port
from kernfed_testing.machine.running_job import Running
from kernfed_testing.places import HEART

TAG = os.environ.get("KERNFED_TAG", "local")
LABEL = "kernfed-test"
CLIENTS = ("cleveland", "hungarian", "va")
DATA = "/var/lib/kernfed"
SPACE = "/space"
"""Where daemons keep their state in a cluster of little space."""

NUM_ROUNDS = 400
"""So many that a job outlives a fault of one call."""

LONG = 1000
"""So many that it outlives what takes several, or starts a Python."""

JOB = """
name = "heart"
seed = 1
evaluate_every = 200
[method]
name = "fedavg"
ridge = 1e-2
rounds = ROUNDS
local_steps = 1
[cohort]
clients = CLIENTS
dataset = "heart"
min_fraction = 1.0
[data]
task = "binary"
target = "disease"
features = ["age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak"]
classes = ["0", "1"]
missing = "drop-rows"
test_fraction = 0.25
[features]
kernel = "gaussian"
num_frequencies = 50
lengthscale = "median"
"""
"""Every round needs every client, so a fault delays the model and cannot change it."""


def remove_leftovers(engine: docker.DockerClient) -> None:
    """Remove what test runs left whose process is gone."""
    for thing in (*engine.containers.list(all=True, filters={"label": LABEL}), *_networks_and_volumes(engine)):
        labels = thing.attrs.get("Labels") or thing.attrs.get("Config", {}).get("Labels") or {}
        if not Path("/proc", labels.get(LABEL, "0").split("-")[0]).exists():
            _remove(thing)


def _networks_and_volumes(engine: docker.DockerClient, label: str = LABEL) -> list[Any]:
    return [*engine.networks.list(filters={"label": label}), *engine.volumes.list(filters={"label": label})]


def _remove(thing: Any) -> None:
    with contextlib.suppress(NotFound):
        if isinstance(thing, docker.models.containers.Container):
            thing.remove(force=True, v=True)
        else:
            thing.remove()


class Cluster:
    """A coordinator and clients, each a container with a volume; each client on a network of its own."""

    def __init__(self, engine: docker.DockerClient, folder: Path, clients: Iterable[str], *, space_mb: int = 0) -> None:
        """Prepare; `start` starts.

        Args:
            engine: Where to.
            folder: For files that are mounted and for the operator's identity.
            clients: Hospitals of examples/heart.
            space_mb: Size in MiB of what each daemon has for its state, in memory; 0: its volume, without limit.
        """
        self.engine = engine
        self.folder = folder
        self.names = sorted(clients)
        self.label = f"{os.getpid()}-{secrets.token_hex(3)}"
        self.port = free_port()
        self._space_mb = space_mb

    # Making

    @property
    def labels(self) -> dict[str, str]:
        """Of everything that belongs to this cluster."""
        return {LABEL: self.label}

    def name(self, what: str) -> str:
        """Name at the engine of something of this cluster."""
        return f"kernfed-test-{self.label}-{what}"

    def start(self) -> None:
        """Bring everything up, and wait until every client has a session."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for what in ("operators", *self.names):
            self.engine.networks.create(self.name(what), internal=what != "operators", labels=self.labels)
        for what in ("coordinator", "tokens", *self.names):
            self.engine.volumes.create(self.name(what), labels=self.labels)
        self._write_files()
        status, text = self.init()
        assert status == 0, text
        self.start_coordinator()
        for client in self.names:
            self.start_client(client)
        self.operator_identity()
        self.wait_connected()

    def _write_files(self) -> None:
        state = SPACE if self._space_mb else DATA
        (self.folder / "coordinator.toml").write_text(
            f'pki = "{DATA}/pki"\ndata = "{state}/data"\n'
            "heartbeat_interval_s = 1\nheartbeat_timeout_s = 4\ndrain_s = 2\n"
        )
        (self.folder / "client.toml").write_text(
            f'identity = "{DATA}/identity"\nstate = "{state}/state"\ndevice = "cpu"\nthreads = 1\n'
            'reconnect_max_s = 1\n[datasets.heart.train]\npath = "/data/patients.csv"\n'
        )

    def run(self, what: str, image: str, network: str, **settings: Any) -> Any:
        """Start a container with the hardening of docker-compose.yml."""
        tmpfs = {"/tmp": "mode=1777,size=256m"}
        if self._space_mb:
            tmpfs[SPACE] = f"uid=10001,gid=10001,mode=0700,size={self._space_mb}m"
        return self.engine.containers.run(
            image,
            name=self.name(what),
            detach=True,
            labels=self.labels,
            network=network,
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true"],
            pids_limit=256,
            tmpfs=tmpfs,
            **settings,
        )

    def start_coordinator(self, tag: str = TAG) -> None:
        """Start the coordinator's container, on its volume and its port."""
        container = self.run(
            "coordinator",
            f"kernfed-coordinator:{tag}",
            self.name("operators"),
            environment={"KERNFED_ENROL": " ".join(self.names)},
            ports={"8470/tcp": ("127.0.0.1", self.port)},
            volumes=self.coordinator_volumes(),
        )
        for client in self.names:
            self.engine.networks.get(self.name(client)).connect(container, aliases=["coordinator"])

    def coordinator_volumes(self) -> dict[str, dict[str, str]]:
        """What the coordinator's container mounts."""
        return {
            self.name("coordinator"): {"bind": DATA},
            self.name("tokens"): {"bind": "/run/kernfed/tokens"},
            str(self.folder / "coordinator.toml"): {"bind": "/etc/kernfed/coordinator.toml", "mode": "ro"},
        }

    def init(self) -> tuple[int, str]:
        """Make the federation on the coordinator's volume; returns exit status and all that was printed."""
        container = self.run(
            "init",
            f"kernfed-coordinator:{TAG}",
            self.name("operators"),
            command=[
                "init",
                "--federation",
                "hearts",
                "--host",
                "coordinator",
                "--host",
                "localhost",
                "--operator",
                "ann",
            ],
            volumes=self.coordinator_volumes(),
        )
        status = int(container.wait(timeout=LIMIT_S)["StatusCode"])
        text = str(container.logs().decode())
        container.remove(v=True)
        return status, text

    def start_client(self, client: str, tag: str = TAG, network: str | None = None) -> None:
        """Start a client's container; it enrols itself where its volume is empty."""
        self.run(
            client,
            f"kernfed-client:{tag}",
            self.name(network or client),
            environment={"KERNFED_TOKEN_FILE": f"/run/kernfed/tokens/{client}"},
            volumes=self.client_volumes(client),
        )

    def client_volumes(self, client: str) -> dict[str, dict[str, str]]:
        """What a client's container mounts."""
        return {
            self.name(client): {"bind": DATA},
            self.name("tokens"): {"bind": "/run/kernfed/tokens"},
            str(self.folder / "client.toml"): {"bind": "/etc/kernfed/client.toml", "mode": "ro"},
            str(HEART / "data" / f"{client}.csv"): {"bind": "/data/patients.csv", "mode": "ro"},
        }

    def remove(self) -> None:
        """Remove everything that carries this cluster's label."""
        own = f"{LABEL}={self.label}"
        for container in self.engine.containers.list(all=True, filters={"label": own}):
            _remove(container)
        for thing in _networks_and_volumes(self.engine, own):
            _remove(thing)

    # Looking

    def container(self, what: str = "coordinator") -> Any:
        """A container, as it is now."""
        return self.engine.containers.get(self.name(what))

    def logs(self, what: str) -> str:
        """All that a container printed."""
        return str(self.container(what).logs().decode())

    def execute(self, what: str, *command: str) -> tuple[int, str]:
        """Run a command in a container; returns exit status and all that it printed."""
        status, text = self.container(what).exec_run(list(command))
        return int(status), text.decode()

    def operator_identity(self) -> Path:
        """The operator's identity folder, copied out of the coordinator's volume at the first call."""
        folder = self.folder / "operator-ann"
        if not folder.exists():
            copied = until(self._operator_archive, "the operator's identity")
            with tarfile.open(fileobj=io.BytesIO(copied)) as archive:
                archive.extractall(self.folder, filter="data")
            folder.chmod(0o700)
        return folder

    def _operator_archive(self) -> bytes | None:
        try:
            pieces, _ = self.container().get_archive(f"{DATA}/pki/operator-ann")
            return b"".join(pieces)
        except NotFound:
            return None

    def wait_connected(self, *clients: str) -> None:
        """Wait until clients, or all, have sessions with the coordinator's present life."""
        wanted = set(clients or self.names)

        async def connected() -> set[str]:
            async with self.operator() as operator:
                return {c.name for c in await operator.clients() if c.connected}

        def there() -> bool:
            with contextlib.suppress(Exception):  # not up yet, in one of many ways; the bound is `until`'s
                return asyncio.run(connected()) >= wanted
            return False

        try:
            until(there, f"sessions of {sorted(wanted)}")
        except AssertionError as err:
            tails = "".join(f"\n--- {what}\n{self.logs(what)[-2000:]}" for what in ("coordinator", *self.names))
            raise AssertionError(f"{err}{tails}") from None

    def heal(self) -> None:
        """Undo what an earlier test may have left: start, unpause and connect what is not."""
        for what in ("coordinator", *self.names):
            container = self.container(what)
            if container.status == "paused":
                container.unpause()
            elif container.status != "running":
                container.start()
        for client in self.names:
            with contextlib.suppress(APIError):  # it is connected
                self.engine.networks.get(self.name(client)).connect(self.container(client))
        self.wait_connected()

    # Jobs

    def operator(self) -> OperatorClient:
        """A client for the operator, by the published port."""
        return OperatorClient(Identity.load(self.operator_identity()), f"localhost:{self.port}")

    def job(self, num_rounds: int) -> str:
        """The job of these tests, on this cluster's clients."""
        return JOB.replace("ROUNDS", str(num_rounds)).replace("CLIENTS", str(self.names).replace("'", '"'))

    @contextlib.asynccontextmanager
    async def running_job(self, num_rounds: int = NUM_ROUNDS) -> AsyncIterator[Running]:
        """A job that has closed some rounds and is far from its end; cancelled if it is left unfinished."""
        async with self.operator() as operator:
            info = await operator.submit(self.job(num_rounds))
            running = Running(operator, info.job_id, num_rounds)
            try:
                await running.round_closed(20)
                yield running
            finally:
                with contextlib.suppress(Exception):  # the test's own failure matters
                    await operator.cancel(info.job_id)


@contextlib.contextmanager
def cluster(engine: docker.DockerClient, folder: Path, clients: Iterable[str], **settings: Any) -> Iterator[Cluster]:
    """A running cluster; leaving the block removes every trace."""
    made = Cluster(engine, folder, clients, **settings)
    try:
        made.start()
        yield made
    finally:
        made.remove()
