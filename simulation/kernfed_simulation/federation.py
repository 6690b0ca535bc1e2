"""Clients in this process: from client files, from the parts of one data file, or from arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kernfed import plugins
from kernfed.arrays import Floats
from kernfed.errors import ConfigError, DataError, IdentityError, SubmissionError
from kernfed.federation.cohort import Cohort
from kernfed.federation.events import JobEvent
from kernfed.federation.exchange import Exchange
from kernfed.federation.in_process import InProcessExchange, StepFunction
from kernfed.federation.messages.base import Reply, Request
from kernfed.federation.messages.data import DataSchema, LearningTask
from kernfed.jobs.client_file import ClientFile, PartitionFile, PolicySection, load_client_file
from kernfed.jobs.client_models import SiteNetworkSection
from kernfed.jobs.held_to import HeldTo
from kernfed.jobs.job_file import JobFile, data_schema
from kernfed.pki.folder import read_about
from kernfed.tables.read import read
from kernfed_client.daemon.policy import Policy
from kernfed_client.daemon.tasks import rows_of
from kernfed_client.data.loading import Loader
from kernfed_client.data.local_job import LocalJob
from kernfed_client.data.reading.found_columns import GivenColumns
from kernfed_client.data.reading.partition_data import Groups, PartitionData, check_table, partition_source
from kernfed_client.data.reading.partitions import LocalData, prepare, read_partition
from kernfed_client.data.room import Room
from kernfed_client.steps.registry import STEPS
from kernfed_client.sums.site import OpenSums, SumSeats
from kernfed_simulation.partition import Partitioning, Scheme, deal, deal_by_column
from kernfed_simulation.typed import DealtFile

JOB_ID = "simulation"
OPERATOR = "simulation"
"""The operator of a simulation, for policies that name operators."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A client's rows in memory. P columns in the job's order."""

    x_train: Floats
    y_train: npt.NDArray[Any]
    """Targets, or class indices into the job's classes."""
    x_test: Floats
    y_test: npt.NDArray[Any]


def from_client_files(paths: Iterable[Path], state: Path | None = None) -> dict[str, LocalJob]:
    """Clients with the files, data and policies that their daemons would have.

    A client is called as its identity folder says; where there is none yet, as its file.

    Args:
        paths: Client files.
        state: For what a job leaves at each client; unset: where the client file says.

    Raises:
        ConfigError: A file is wrong, or two clients have the same name.
    """
    jobs: dict[str, LocalJob] = {}
    room = Room()
    for path in paths:
        file = load_client_file(path)
        try:
            name = read_about(file.identity).name
        except IdentityError:
            name = path.stem
        if name in jobs:
            raise ConfigError(f"{path}: there is a client {name!r} already; give each client its own file and identity")
        jobs[name] = LocalJob(JOB_ID, name, file, folder=state / name if state else None, durable=False, room=room)
    return jobs


def from_data_file(
    file: PartitionFile,
    partitioning: Partitioning,
    num_clients: int | None,
    job: JobFile,
    state: Path,
    group: str | None = None,
) -> dict[str, LocalJob]:
    """Clients that share the rows of one file.

    Args:
        file: All rows.
        partitioning: Who gets which.
        num_clients: How many; None with `column`, which decides it.
        job: Says which columns, and seeds the draws.
        state: For what the job leaves at each client.
        group: Column whose rows of equal value belong together; unset: rows have no groups.

    Raises:
        DataError: The file cannot be read, does not fit the job, or has too few rows.
        ConfigError: The scheme does not fit the task.
    """
    schema = data_schema(job)
    everything = replace(schema, ranges=())  # each client leaves out, and counts, its own rows
    if schema.columns:
        return _of_typed_file(file, partitioning, num_clients, everything, state, Groups(group))
    if partitioning.scheme is Scheme.COLUMN:
        tables = _by_column(file, everything, partitioning.column, Groups(group))
        return from_tables({name: (table, None) for name, table in tables.items()}, state)
    table = read_partition(file, everything, "data", "train", groups=Groups(group))
    parts = deal(partitioning, table.num_rows, table.labels, num_clients or 0, job.seed)
    return from_tables({name: (table.take(rows).by_itself(), None) for name, rows in parts.items()}, state)


def from_rows(rows: Mapping[str, Rows], classes: tuple[str, ...], state: Path) -> dict[str, LocalJob]:
    """Clients with arrays.

    Args:
        rows: By client name.
        classes: Name of each class index; empty for regression.
        state: For what a job leaves at each client.
    """
    return from_tables(
        {
            name: (_table(r.x_train, r.y_train, classes), _table(r.x_test, r.y_test, classes))
            for name, r in rows.items()
        },
        state,
    )


def from_tables(tables: Mapping[str, tuple[PartitionData, PartitionData | None]], state: Path) -> dict[str, LocalJob]:
    """Clients with training and test rows; without test rows, the job's share is held out as at a daemon."""

    def loader(name: str) -> Callable[[str, DataSchema, str], LocalData]:
        train, test = tables[name]
        return lambda dataset, schema, client: prepare(train, test, schema, client, f"data set {dataset}")

    return _local_jobs({name: loader(name) for name in tables}, state)


def _of_typed_file(
    file: PartitionFile,
    partitioning: Partitioning,
    num_clients: int | None,
    schema: DataSchema,
    state: Path,
    groups: Groups,
) -> dict[str, LocalJob]:
    """Clients that share the rows of a file whose columns have types, dealt out by the target alone."""
    plain, apart = replace(schema, features=(), columns=()), None
    if partitioning.scheme is Scheme.COLUMN:
        tables, apart = _by_column(file, plain, partitioning.column, groups), partitioning.column
        rows = {name: table.row_numbers for name, table in tables.items()}
    else:
        table = read_partition(file, plain, "data", "train", groups=groups)
        parts = deal(partitioning, table.num_rows, table.labels, num_clients or 0, schema.seed)
        rows = {name: table.row_numbers[places] for name, places in parts.items()}
    dealt = DealtFile(file, rows, groups, apart)
    jobs = _local_jobs({name: functools.partial(dealt.load, name) for name in rows}, state)
    for name, job in jobs.items():
        job.memory(GivenColumns).find = dealt.finder(name)
    return jobs


def _local_jobs(loaders: Mapping[str, Loader], state: Path) -> dict[str, LocalJob]:
    room = Room()

    def open_job(name: str) -> LocalJob:
        file = ClientFile(state=state, policy=own_policy())
        return LocalJob(JOB_ID, name, file, loaders[name], folder=state / name, durable=False, room=room)

    return {name: open_job(name) for name in sorted(loaders)}


def own_policy() -> PolicySection:
    """Of clients whose rows are at hand: nothing is kept from whoever has them, and what is installed may be used."""
    return PolicySection(min_rows=1, plugins=[plugin.name for plugin in plugins.installed()])


def with_networks(jobs: Mapping[str, LocalJob], networks: Mapping[str, SiteNetworkSection]) -> None:
    """Let each client have these [networks] beside those of its file."""
    for job in jobs.values():
        job.file = job.file.model_copy(update={"networks": {**job.file.networks, **networks}})


Exchanges = Callable[[Mapping[type[Request[Any]], StepFunction], Mapping[str, LocalJob]], Exchange]
"""(the clients' steps, their jobs) -> what carries requests to them."""


def open_cohort(
    job: JobFile,
    jobs: Mapping[str, LocalJob],
    observe: Callable[[JobEvent], None] = lambda _: None,
    exchange: Exchanges = InProcessExchange,
) -> Cohort:
    """The job's cohort over clients in this process, or in those of an exchange.

    Raises:
        ConfigError: The job names a client that is not here, or asks for more clients than there are.
    """
    names = sorted(jobs) if job.cohort.clients is None else sorted(job.cohort.clients)
    missing = [name for name in names if name not in jobs]
    if missing:
        raise ConfigError(
            f"cohort.clients names {', '.join(missing)}, but the simulation has {', '.join(sorted(jobs))}; "
            "give each its rows or a client file, or remove cohort.clients from the job"
        )
    if job.cohort.min_clients > len(names):
        raise ConfigError(
            f"cohort.min_clients is {job.cohort.min_clients}, but the simulation has {len(names)} clients; lower it"
        )
    for name in names:
        jobs[name].memory(SumSeats).sums = OpenSums()
    return Cohort(
        exchange(_permitted_steps(job, len(names)), {name: jobs[name] for name in names}),
        names,
        job_id=JOB_ID,
        quorum=job.cohort.quorum,
        float_bits=job.float_bits,
        observe=observe,
    )


def _permitted_steps(file: JobFile, cohort_size: int) -> dict[type[Request[Any]], StepFunction]:
    """The clients' steps behind their policies and held to the job file, as in their daemons."""
    method, held = file.method.name, HeldTo(file)

    def guarded(step: StepFunction) -> StepFunction:
        def run(job: LocalJob, request: Request[Any]) -> Reply:
            policy = Policy(job.file.policy)
            policy.check_job(file, OPERATOR, job.client)
            if other := held.contradiction(request):
                raise SubmissionError(other)
            policy.check(request, OPERATOR, method, None, cohort_size)
            reply = step(job, request)
            if request.kinds:
                policy.check(request, OPERATOR, method, rows_of(job), cohort_size)
            return reply

        return run

    return {request: guarded(step) for request, step in STEPS.items()}


def _by_column(file: PartitionFile, schema: DataSchema, column: str, groups: Groups) -> dict[str, PartitionData]:
    """The rows of each value of a column, as if each lay in a file of its own, without that column."""
    source = replace(partition_source(file, schema, "data", "train", groups), apart=column)
    table = read(source)
    wanted = replace(schema, task=LearningTask.CLASSIFICATION, target=column, features=(), classes=(), ranges=())
    named = file.model_copy(update={"y_key": column})  # in NPZ archives the target is an array of another name
    owners = read(partition_source(named, wanted, "data", "train"))
    assert owners.codes is not None  # noqa: S101  # its target is a class
    lacking = table.row_numbers[owners.absent_targets]
    if lacking.size:
        of = f"row {lacking[0]} ({lacking.size} such rows)"
        raise DataError(f"{file.path.name}: column {column!r} has no value in {of}; complete it")
    parts = deal_by_column([owners.names[code] for code in owners.codes])
    return {name: check_table(source, schema, table.take(rows)) for name, rows in parts.items()}


def _table(x: Floats, y: npt.NDArray[Any], classes: tuple[str, ...]) -> PartitionData:
    numbers = np.arange(1, len(x) + 1, dtype=np.int64)
    if classes:
        return PartitionData(np.asarray(x, np.float64), [classes[int(i)] for i in y], None, 0, numbers)
    return PartitionData(np.asarray(x, np.float64), None, np.asarray(y, np.float64), 0, numbers)
