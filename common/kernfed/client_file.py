"""The client file: whom to dial, who we are, which data sets we offer, and what may leave."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from kernfed.messages.base import Kind
from kernfed.toml_file import Section, parse_toml, read_toml

Label = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]

DEFAULT_KINDS = tuple(k for k in Kind if k is not Kind.UNLABELLED_SAMPLE)


class PartitionFile(Section):
    """Where a partition lies and how to read it."""

    path: Path = Field(description="CSV, Parquet or NPZ file; relative to the client file.")
    format: Literal["csv", "parquet", "npz"] | None = Field(None, description="Unset: by the file's suffix.")
    encoding: str = Field("utf-8", description="CSV text encoding; a byte order mark is understood.")
    delimiter: str = Field(",", min_length=1, max_length=1, description="CSV column separator, e.g. ; or a tab.")
    missing: list[str] = Field(["", "NA", "NaN", "nan", "null", "?"], description="CSV cells that mean: no value.")
    columns: dict[str, str] = Field({}, description="Column names of the job, each with the name used in this file.")
    labels: dict[str, str] = Field({}, description="Target values of this file, each with the class name of the job.")
    x_key: str = Field("x", description="NPZ: array of features, shape (rows, columns).")
    y_key: str = Field("y", description="NPZ: array of targets, shape (rows,).")
    x_columns: list[str] | None = Field(
        None,
        description="NPZ: names of the columns of x; unset: array `columns` of the file, else x0, x1, ...",
    )

    @field_validator("columns")
    @classmethod
    def _distinct(cls, value: dict[str, str]) -> dict[str, str]:
        twice = sorted({v for v in value.values() if list(value.values()).count(v) > 1})
        if twice:
            raise ValueError(f"{', '.join(twice)} stands for two columns; map each column once")
        return value


class DatasetSection(Section):
    """A named data set and its partitions."""

    train: PartitionFile
    test: PartitionFile | None = None
    unlabelled: PartitionFile | None = None
    stream: PartitionFile | None = None


class PolicySection(Section):
    """What may leave this site."""

    allow: list[Kind] = Field(list(DEFAULT_KINDS), description="Kinds of information that replies may carry.")
    min_rows: int = Field(10, ge=1, description="Fewest training rows that any aggregate may stand for.")
    operators: list[str] | None = Field(None, description="Operators whose jobs are run; unset: all.")
    methods: list[str] | None = Field(None, description="Methods that are run; unset: all.")


class ClientFile(Section):
    """A client daemon's configuration."""

    coordinator: str | None = Field(
        None,
        description="host:port to dial; unset: the address given at enrolment.",
        pattern=r"^\S+:\d{1,5}$",
    )
    identity: Path = Field(Path("identity"), description="Folder made by `kernfed-client enrol`.")
    state: Path = Field(Path("state"), description="Folder for job state, replies not yet delivered and own models.")
    device: str = Field("auto", description="auto (CUDA where there is one), cpu, cuda or cuda:N.")
    threads: int | None = Field(None, ge=1, le=1024, description="CPU threads of the maths; unset: all.")
    max_body_bytes: int = Field(8 << 30, ge=1 << 20, description="Largest request body accepted.")
    reconnect_max_s: float = Field(30.0, gt=0, description="Longest pause between attempts to connect.")
    metrics_port: int | None = Field(None, ge=0, le=65535, description="Prometheus metrics on loopback; unset: none.")
    datasets: dict[Label, DatasetSection] = Field(default_factory=dict)
    policy: PolicySection = PolicySection()

    @model_validator(mode="after")
    def _device_known(self) -> Self:
        kind, _, index = self.device.partition(":")
        if kind not in ("auto", "cpu", "cuda") or (index and not (kind == "cuda" and index.isdigit())):
            raise ValueError(f"device {self.device!r} is unknown; use auto, cpu, cuda or cuda:0")
        return self


def load_client_file(path: Path) -> ClientFile:
    """Read a client file; relative paths in it are taken from the file's folder.

    Raises:
        ConfigError: Names file, key and remedy.
    """
    parsed = parse_toml(ClientFile, read_toml(path), str(path))
    base = path.resolve().parent

    def place(partition: PartitionFile | None) -> PartitionFile | None:
        return partition and partition.model_copy(update={"path": base / partition.path})

    datasets = {
        name: section.model_copy(update={part: place(getattr(section, part)) for part in DatasetSection.model_fields})
        for name, section in parsed.datasets.items()
    }
    return parsed.model_copy(
        update={"identity": base / parsed.identity, "state": base / parsed.state, "datasets": datasets}
    )
