"""The client file: the coordinator's address, our identity, our data sets, and the information that may leave."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator

from kernfed import plugins
from kernfed.federation.messages.base import Kind
from kernfed.jobs.client_cells import CellSection, Decimal, Thousands, check_separators
from kernfed.jobs.client_models import BackboneSection, ModelSection, SiteNetworkSection
from kernfed.jobs.proxy_section import ProxySection
from kernfed.jobs.secure_sum_section import SecureSumSection
from kernfed.jobs.toml_file import parse_toml, read_toml
from kernfed.section import GIVEN, Label, Only, Section
from kernfed.tables import outside
from kernfed.wire.channel import Address, optional_address
from kernfed.wording import listed

FORMATS = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".parquet": "parquet", ".pq": "parquet", ".npz": "npz"}
"""Of a partition's file, by its suffix."""
PARTITIONS = ("train", "test", "unlabelled", "stream")
"""Of a data set."""
NOT_BY_DEFAULT = (Kind.UNLABELLED_SAMPLE, Kind.STORED_STATISTIC)
DEFAULT_KINDS = tuple(k for k in Kind if k not in NOT_BY_DEFAULT)


OWN_FORMATS = ("csv", "parquet", "npz", "images")


def format_by_suffix(path: Path) -> str | None:
    """The format of a file by its suffix; None where that tells none.

    Raises:
        ConfigError: A package from outside that reads tables is at fault.
    """
    suffix = path.suffix.lower()
    return FORMATS.get(suffix) or (outside.format_of(suffix) if suffix else None)


def _known_format(name: str) -> str:
    if name not in (*OWN_FORMATS, *outside.names()):
        known = listed([*OWN_FORMATS, *outside.names()])
        raise ValueError(f"{name!r:.80} is no format that can be read here; known are {known}; {plugins.told()}")
    return name


Format = Annotated[str, AfterValidator(_known_format)]
"""Of a table."""


class PartitionFile(Section):
    """Path of a partition, and the way to read it."""

    path: Path = Field(
        description="CSV, Parquet or NPZ file, or for a backbone a folder of images with a sub-folder per class; "
        "relative to the client file."
    )
    format: Format | None = Field(
        None,
        description="csv, parquet, npz, images, or one that a package from outside reads; unset: by the file's suffix, "
        "and images for a folder.",
    )
    encoding: Annotated[str, Only(format="csv")] = Field(
        "utf-8", description="Text encoding; a byte order mark is understood."
    )
    delimiter: Annotated[str, Only(format="csv")] = Field(
        ",", min_length=1, max_length=1, description="Column separator, e.g. ; or a tab."
    )
    missing: Annotated[list[str], Only(format=("csv", "parquet", "npz"))] = Field(
        ["", "NA", "NaN", "nan", "null", "?"], description="Cells that stand for a gap, as text or as numbers."
    )
    columns: Annotated[dict[str, str], Only(format=("csv", "parquet", "npz"))] = Field(
        {}, description="Column names of the job, each with the name used in this file."
    )
    decimal: Annotated[Decimal, Only(format="csv")] = Field(
        ".", description="What stands before the decimals of numbers, in all columns."
    )
    thousands: Annotated[Thousands, Only(format="csv")] = Field(
        "", description="What stands between groups of three digits of numbers, in all columns; empty: nothing."
    )
    cells: Annotated[dict[str, CellSection], Only(format=("csv", "parquet", "npz"))] = Field(
        {}, description="Column names of the job, each with the way in which this file writes the column."
    )
    labels: dict[str, str] = Field({}, description="Target values of this file, each with the class name of the job.")
    x_key: Annotated[str, Only(format="npz")] = Field("x", description="Array of features, shape (rows, columns).")
    y_key: Annotated[str, Only(format="npz")] = Field("y", description="Array of targets, shape (rows,).")
    x_columns: Annotated[list[str] | None, Only(format="npz")] = Field(
        None, description="Names of the columns of x; unset: array `columns` of the file, else x0, x1, ..."
    )
    text: Annotated[str | None, Only(format=("csv", "parquet"))] = Field(
        None, description="Column of texts, for a backbone that reads text."
    )

    def value_in_effect(self, key: str) -> object:
        """An unset format is that of the file's suffix; one from outside is read as Parquet files are."""
        value = super().value_in_effect(key)
        if key != "format":
            return value
        found = value if isinstance(value, str) else format_by_suffix(self.path)
        return found if found in (None, *OWN_FORMATS) else "parquet"

    def cells_of(self, column: str) -> CellSection | None:
        """The way in which the file writes a column of the job; None: as Python writes numbers, words as they are."""
        found = self.cells.get(column)
        if (self.decimal, self.thousands) == (".", ""):
            return found
        found = found or CellSection()
        decimal = found.decimal or self.decimal
        thousands = self.thousands if found.thousands is None else found.thousands
        return found.model_copy(
            update={"decimal": decimal, "thousands": thousands if thousands != decimal else ""},
        )

    @model_validator(mode="after")
    def _separators_differ(self) -> Self:
        check_separators(self.decimal, self.thousands)
        return self

    @field_validator("columns")
    @classmethod
    def _distinct(cls, value: dict[str, str]) -> dict[str, str]:
        twice = sorted({v for v in value.values() if list(value.values()).count(v) > 1})
        if twice:
            raise ValueError(f"{', '.join(twice)} stands for two columns; map each column once")
        return value


class StreamFile(PartitionFile):
    """Source of the rows of a stream, for online learning, and the way to read them."""

    path: Annotated[Path, Only(source=("file", "follow", "socket"))] = Field(
        Path("-"), description="file: its path. follow: a folder. socket: where the socket is made."
    )
    source: Literal["file", "follow", "socket", "stdin"] = Field(
        "file",
        description="file: one file, replayed in order. follow: a folder to which rows and files are added, in the "
        "order of their names. socket: JSON lines that come to a local socket. stdin: JSON lines that come to the "
        "daemon's standard input.",
    )
    key: Annotated[str | None, Only(source=("follow", "socket", "stdin"))] = Field(
        None, description="Column that names a row, so that its target may come later, with the same key."
    )
    format: Annotated[Format | None, Only(source="file")] = Field(None, description="Unset: by the file's suffix.")
    decimal: Annotated[Decimal, Only(source="follow"), Only(source="file", format="csv")] = Field(
        ".", description="What stands before the decimals of numbers, in all columns."
    )
    thousands: Annotated[Thousands, Only(source="follow"), Only(source="file", format="csv")] = Field(
        "", description="What stands between groups of three digits of numbers, in all columns; empty: nothing."
    )
    delimiter: Annotated[str, Only(source="follow"), Only(source="file", format="csv")] = Field(
        ",", min_length=1, max_length=1, description="Column separator, e.g. ; or a tab."
    )

    def value_in_effect(self, key: str) -> object:
        """What comes as lines is read like CSV, but for the separator."""
        return "csv" if key == "format" and self.source != "file" else super().value_in_effect(key)

    @model_validator(mode="after")
    def _has_path(self) -> Self:
        if self.source != "stdin" and self.path == Path("-"):
            raise ValueError(f'source = "{self.source}" needs a path')
        return self


class DatasetSection(Section):
    """A named data set and its partitions."""

    group: str | None = Field(
        None,
        min_length=1,
        description="Column of the files, e.g. of patients, whose rows of equal value belong together: they lie on one "
        "side of every split, and in one fold and batch. It never leaves this site.",
    )
    group_column: Annotated[Literal["kept", "usable"], Only(group=GIVEN)] = Field(
        "kept", description="Whether a job may take the column of groups as a feature or target."
    )
    train: PartitionFile
    test: PartitionFile | None = None
    unlabelled: PartitionFile | None = None
    stream: StreamFile | None = None

    @model_validator(mode="after")
    def _group_of_rows(self) -> Self:
        if self.group is not None and self.stream is not None:
            raise ValueError(
                "group does nothing to a stream, whose rows are predicted as they come, before they are learned, "
                "whoever's they are; remove group, or put the stream into a data set of its own"
            )
        return self


class PolicySection(Section):
    """The information that may leave this site."""

    allow: list[Kind] = Field(list(DEFAULT_KINDS), description="Kinds of information that replies may carry.")
    min_rows: int = Field(
        10,
        ge=1,
        description="Fewest rows that an answer may stand for: training rows, rows of a batch, test rows.",
    )
    min_groups: int | None = Field(
        None,
        ge=1,
        description="Fewest groups, where a data set names a `group`, that training rows, test rows, batches and folds "
        "may come from; unset: as many as `min_rows`.",
    )
    min_cohort: int = Field(
        1,
        ge=1,
        le=100_000,
        description="Fewest clients of a job that this client takes part in, by the word of the coordinator.",
    )
    drawn_splits: bool = Field(
        False,
        description="Whether a job may draw the rows that are held out by its own seed (`data.split`), although two "
        "such jobs differ by single rows, or by the columns that it uses; with `min_rows = 1` every job may.",
    )
    near_jobs: Literal["refuse", "wait-for-rows", "allow"] = Field(
        "refuse",
        description="A job whose rows here differ from those of an earlier job in fewer than `min_rows`: refuse it "
        "where the file is the same, so that the job chose the rows; refuse it also where the file has changed, so "
        "that jobs wait until enough rows came; or let the two tell about these few.",
    )
    rare_classes: Literal["leave-out", "allow"] = Field(
        "leave-out",
        description="Rows of a class of which this client has fewer training rows than `min_rows`: leave them out, or "
        "let sums over the rows of single classes stand for fewer.",
    )
    sparse_columns: Literal["constant", "constant-in-tests", "allow"] = Field(
        "constant",
        description="Values of a column, the target too, that fewer training rows than `min_rows`, or fewer "
        "than a tenth of the test rows (at least 3), have while all others have one value, or what other columns say: "
        "take them as the others; do so with fewer test rows than `min_rows`, so that metrics are of rows that are not "
        "quite so; or let sums over such columns stand for fewer rows. Products of two columns in a polynomial are "
        "treated alike, and rows that stand far out.",
    )
    few_values: Literal["refuse", "allow"] = Field(
        "refuse",
        description="Random features, networks and kernels of columns of few values, of which fewer training rows than "
        "`min_rows` have some combination: refuse them, or let them tell the sum of the targets of each combination.",
    )
    max_sample_points: int = Field(
        1000, ge=1, description="Most unlabelled rows that a job may get, where unlabelled_sample is allowed."
    )
    operators: list[str] | None = Field(None, description="Operators whose jobs are run; unset: all.")
    methods: list[str] | None = Field(None, description="Methods that are run; unset: all.")
    plugins: list[str] = Field(
        [],
        description="Packages from outside that are installed here and whose steps and laws of features jobs may use, "
        "by the names that pip knows.",
    )
    operator_keys: dict[str, list[Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]]] = Field(
        {},
        description="Fingerprints of operators' keys, as `kernfed pki key` prints them: jobs of an operator that is "
        "named here must be signed by one of its keys.",
    )
    unsigned: Literal["refuse", "allow"] | None = Field(
        None,
        description="Jobs without their operator's signature, of which the coordinator alone says whose they are and "
        "what they run; unset: refuse where `operators`, `operator_keys`, `methods` or `approve` is set, else allow.",
    )
    approve: Literal["all", "known", "manual"] = Field(
        "all",
        description="Jobs that the rest of the policy allows: run them all; or answer nothing of a job until somebody "
        "here approves it, each one (manual), or each one whose plan was not approved for good before (known).",
    )
    secure_sum: SecureSumSection = SecureSumSection()
    stale_revocations: Literal["warn", "refuse"] = Field(
        "warn",
        description="Signed jobs while this client holds no list of revoked operators that still counts, which is for "
        "a week after it was signed: run them, with a warning in log, health and audit; or refuse them.",
    )

    @model_validator(mode="after")
    def _approved_as_signed(self) -> Self:
        if self.approve != "all" and self.unsigned == "allow":
            raise ValueError(
                f'approve = "{self.approve}" needs jobs that their operators signed, for of others nobody knows what '
                'they send; remove unsigned = "allow"'
            )
        return self

    @property
    def goes_by_names(self) -> bool:
        """Whether it counts whose job it is, or what it says."""
        named = self.operators is not None or self.methods is not None or bool(self.operator_keys)
        return named or self.approve != "all"

    @property
    def least_groups(self) -> int:
        """Fewest groups that an answer may stand for, where rows have groups."""
        return self.min_rows if self.min_groups is None else self.min_groups


class ClientFile(Section):
    """A client daemon's configuration."""

    coordinator: Address | None = Field(None, description="host:port to dial; unset: the address given at enrolment.")
    identity: Path = Field(Path("identity"), description="Folder made by `kernfed-client enrol`.")
    state: Path = Field(Path("state"), description="Folder for job state, replies not yet delivered and own models.")
    device: str = Field("auto", description="auto (CUDA where there is one), cpu, cuda or cuda:N.")
    threads: int | None = Field(
        None, ge=1, le=1024, description="CPU threads of products of large matrices; unset: all. Small ones have one."
    )
    max_body_bytes: int = Field(8 << 30, ge=1 << 20, description="Largest request body accepted.")
    reconnect_max_s: float = Field(30.0, gt=0, description="Longest pause between attempts to connect.")
    metrics_listen: Address | None = Field(
        None, description="host:port for Prometheus metrics, plain HTTP without a password; unset: none."
    )
    metrics_port: int | None = Field(
        None, ge=0, le=65535, description='Short for metrics_listen = "127.0.0.1:PORT"; unset: none.'
    )
    max_memory_bytes: int | None = Field(
        None,
        ge=1 << 20,
        description="Most memory that a job's matrices may take, and as much again what requests that wait may; unset: "
        "9/10 of the available memory.",
    )
    datasets: dict[Label, DatasetSection] = Field(default_factory=dict)
    models: dict[Label, ModelSection] = Field(default_factory=dict)
    backbones: dict[Label, BackboneSection] = Field(default_factory=dict)
    networks: dict[Label, SiteNetworkSection] = Field(default_factory=dict)
    feature_cache_bytes: int = Field(
        4 << 30, ge=0, description="Most disk that features of backbones take in the state folder; 0: none are kept."
    )
    audit_file_bytes: int = Field(
        64 << 20,
        ge=1 << 12,
        description="Size at which the audit log goes on in a new file; the old one stays.",
    )
    audit_monthly: bool = Field(True, description="Whether the audit log goes on in a new file each month (UTC) too.")
    policy: PolicySection = PolicySection()
    network: ProxySection = ProxySection()

    @property
    def metrics_at(self) -> str | None:
        """host:port of metrics; None: there are none."""
        return optional_address(self.metrics_listen, self.metrics_port, "metrics_", "metrics are")

    @model_validator(mode="after")
    def _one_place_of_metrics(self) -> Self:
        _ = self.metrics_at
        return self

    @model_validator(mode="after")
    def _device_known(self) -> Self:
        kind, _, index = self.device.partition(":")
        if kind not in ("auto", "cpu", "cuda") or (index and not (kind == "cuda" and index.isdigit())):
            raise ValueError(f"device {self.device!r} is unknown; use auto, cpu, cuda or cuda:0")
        return self


def _place_backbone(section: BackboneSection, base: Path) -> BackboneSection:
    """Weights, and a sentence model that is a folder, are looked for beside the client file."""
    kind, _, what = section.source.partition(":")
    changes: dict[str, object] = {"weights": base / section.weights} if section.weights else {}
    if kind == "sentence-transformers" and (base / what).is_dir():
        changes["source"] = f"{kind}:{base / what}"
    return section.model_copy(update=changes)


def job_folder(state: Path, job_id: str) -> Path:
    """What is kept of a job at a client, below its state folder: by the id's digest, for the id comes from a peer."""
    return state / "jobs" / hashlib.sha256(job_id.encode()).hexdigest()[:32]


STREAM_STATES = "online"
"""Folder in a job's folder with what a method on streams learned; it outlasts the job, for another to go on from it."""


def load_client_file(path: Path) -> ClientFile:
    """Read a client file; relative paths in it are taken from the file's folder.

    Raises:
        ConfigError: Names file, key and remedy.
    """
    parsed = parse_toml(ClientFile, read_toml(path, "name the client file with --config"), str(path))
    base = path.resolve().parent

    def place(partition: PartitionFile | None) -> PartitionFile | None:
        return partition and partition.model_copy(update={"path": base / partition.path})

    datasets = {
        name: section.model_copy(update={part: place(getattr(section, part)) for part in PARTITIONS})
        for name, section in parsed.datasets.items()
    }
    return parsed.model_copy(
        update={
            "backbones": {name: _place_backbone(section, base) for name, section in parsed.backbones.items()},
            "networks": {name: section.placed(base) for name, section in parsed.networks.items()},
            "identity": base / parsed.identity,
            "state": base / parsed.state,
            "network": parsed.network.placed(base),
            "datasets": datasets,
        }
    )
