"""The coordinator file: where to listen, where the PKI and the data lie, limits."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from kernfed.errors import ConfigError
from kernfed.jobs.toml_file import parse_toml, read_toml
from kernfed.pki.federation import FederationPki
from kernfed.pki.folder import CA
from kernfed.section import Section
from kernfed.wire.channel import Address, ListenAddress, address, optional_address, split_address
from kernfed.wire.frames import MAX_HEARTBEAT_S, MAX_SILENCE_S


class WebSection(Section):
    """The operator's page: off, unless one of the first two keys is set."""

    listen: Address | None = Field(
        None, description="host:port of the operator's page (TLS with the coordinator's certificate); unset: none."
    )
    port: int | None = Field(None, ge=0, le=65535, description='Short for listen = "127.0.0.1:PORT"; unset: none.')
    address: Address | None = Field(
        None,
        description="host:port as browsers dial it, for the links of `kernfed web`; unset: that of `listen`, or, "
        "where it listens on every address, the host that the operator's commands dial.",
    )

    @property
    def served_at(self) -> str | None:
        """host:port of the page; None: there is none."""
        return optional_address(self.listen, self.port, "", "the page is")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        _ = self.served_at
        return self


class CoordinatorFile(Section):
    """A coordinator's configuration. Every key has a default: a file may be empty, or missing."""

    listen: ListenAddress = Field(
        "0.0.0.0:8470", description="host:port for clients and operators (mutual TLS)."
    )  # a service
    enrolment_listen: ListenAddress = Field(
        "0.0.0.0:8471", description="host:port for enrolment (server-authenticated TLS)."
    )
    pki: Path = Field(Path("pki"), description="Folder made by `kernfed-coordinator init` or `kernfed pki init`.")
    data: Path = Field(Path("data"), description="Folder for jobs, artifacts and the database.")
    database: str | None = Field(
        None, description="sqlite:///… or postgresql+psycopg://…; unset: an SQLite file in the data folder."
    )
    heartbeat_interval_s: float = Field(
        5.0, gt=0, le=MAX_HEARTBEAT_S, description="Seconds between heartbeats, both ways."
    )
    heartbeat_timeout_s: float = Field(
        20.0, gt=0, le=MAX_SILENCE_S, description="A client silent for this long is dropped."
    )
    max_body_bytes: int = Field(8 << 30, ge=1 << 20, description="Largest reply body accepted.")
    max_inflight_bytes: int = Field(
        16 << 30, ge=1 << 20, description="Bytes of replies that a client may have under way; more ends its session."
    )
    max_frames_per_s: float = Field(
        5000.0, ge=10, le=1e6, description="Frames of a client read per second, without pieces of bodies; others wait."
    )
    jobs_per_client: int = Field(1, ge=1, le=1000, description="Jobs that a client works for at a time.")
    foreign_states: bool = Field(
        False,
        description="Whether jobs may begin from states that no job of this coordinator left: of another one, of a "
        "simulation, or made up by an operator, who may then choose weights and scales that tell of single rows.",
    )
    drain_s: float = Field(10.0, ge=0, le=3600, description="Time to close rounds and sessions on SIGTERM.")
    metrics_listen: Address | None = Field(
        None, description="host:port for Prometheus metrics, plain HTTP without a password; unset: none."
    )
    metrics_port: int | None = Field(
        None, ge=0, le=65535, description='Short for metrics_listen = "127.0.0.1:PORT"; unset: none.'
    )
    web: WebSection = Field(default_factory=WebSection, description="The operator's page.")

    @property
    def metrics_at(self) -> str | None:
        """host:port of metrics; None: there are none."""
        return optional_address(self.metrics_listen, self.metrics_port, "metrics_", "metrics are")

    @model_validator(mode="after")
    def _one_place_of_metrics(self) -> Self:
        _ = self.metrics_at
        return self


def load_coordinator_file(path: Path | None) -> CoordinatorFile:
    """Read a coordinator file; relative paths in it are taken from the file's folder. None: all defaults.

    Raises:
        ConfigError: Names file, key and remedy.
    """
    if path is None:
        return CoordinatorFile()
    parsed = parse_toml(CoordinatorFile, read_toml(path, "name the coordinator file with --config"), str(path))
    base = path.resolve().parent
    return parsed.model_copy(update={"pki": base / parsed.pki, "data": base / parsed.data})


def open_pki(file: CoordinatorFile) -> FederationPki:
    """The federation of a coordinator file. Nothing here makes one: a folder that is empty was lost, or never made.

    Raises:
        ConfigError: The folder holds no CA.
        IdentityError: The CA's files cannot be used.
    """
    if not (file.pki / CA).exists():
        raise ConfigError(
            f"{file.pki} holds no federation: mount or restore the volume that holds its CA; a new CA would lock out "
            "every client and operator. Where there never was one, `kernfed-coordinator init` makes it, once"
        )
    return FederationPki.open(file.pki)


def database_url(file: CoordinatorFile) -> str:
    """SQLAlchemy URL of the coordinator's store."""
    return file.database or f"sqlite:///{file.data.resolve() / 'coordinator.sqlite'}"


def probe_address(file: CoordinatorFile) -> str:
    """Address of the enrolment port for a probe on the same machine: loopback, where it listens on all addresses.

    Raises:
        ConfigError: The port is 0, so it is known only to whoever started the coordinator.
    """
    host, port = split_address(file.enrolment_listen)
    return address({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)  # noqa: S104  # nosec B104  # compared, not bound


def usual_file() -> Path | None:
    """`coordinator.toml` of the current folder, where there is one."""
    path = Path("coordinator.toml")
    return path if path.exists() else None
