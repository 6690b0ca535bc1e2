"""Clients whose rows are at hand in Python: data frames, or arrays of features and targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kernfed.columns.plan import columns_of
from kernfed.errors import ConfigError, DataError
from kernfed.federation.messages.data import DataSchema
from kernfed.jobs.client_file import ClientFile, DatasetSection, PartitionFile
from kernfed.jobs.job_file import JobFile, data_schema
from kernfed.maths.tasks import TASKS
from kernfed.tables.cells import read_label
from kernfed.tables.parquet import read_arrow
from kernfed.tables.raw_table import Source
from kernfed_client.data.local_job import LocalJob
from kernfed_client.data.reading.partition_data import PartitionData, check_table
from kernfed_client.data.room import Room
from kernfed_simulation.federation import JOB_ID, from_tables, own_policy

PARTITIONS = ("train", "test")
_Parts = Mapping[str, tuple[str, pa.Table]]
"""By partition: how messages call it, and its rows."""


def from_frames(clients: Mapping[str, Any], job: JobFile, state: Path) -> tuple[dict[str, LocalJob], list[Any]]:
    """Clients with rows in memory.

    Args:
        clients: By name: a data frame or a dict of columns; (X, y), X a data frame or an array of the job's features in
            their order; or a dict with `train`, and `test` where that is apart, each of which is one of these.
        job: Says which columns.
        state: For what the job leaves at each client while it runs.

    Returns:
        The clients, and the values of the target's classes, in the target's own type; none where a class has several.

    Raises:
        ConfigError: A client is none of these.
        DataError: Rows do not fit the job; names client, column and row.
    """
    if not isinstance(clients, Mapping) or not clients:
        raise ConfigError('clients is no table of rows by client; give e.g. {"north": frame, "south": (X, y)}')
    schema = data_schema(job)
    tables = {
        str(name): {part: (where, _table(rows, schema, where)) for part, where, rows in _parts(name, given)}
        for name, given in clients.items()
    }
    own = _own_values([table for parts in tables.values() for _, table in parts.values()], schema)
    if schema.columns:
        return _typed(tables, job.cohort.dataset, state), own
    return _untyped(tables, schema, state), own


def _parts(name: Any, given: Any) -> Iterator[tuple[str, str, Any]]:
    """Partitions of a client, how messages call each, and its rows."""
    apart = isinstance(given, Mapping) and "train" in given and set(given) <= set(PARTITIONS)
    for part, rows in (given if apart else {"train": given}).items():
        yield part, f"client {name}, {part}" if apart else f"client {name}", rows


def _own_values(tables: Sequence[pa.Table], schema: DataSchema) -> list[Any]:
    """The values of the target's classes, in the target's own type; none where a class has several."""
    values: dict[str, set[Any]] = {}
    for table in tables if TASKS[schema.task].has_classes else ():
        if schema.target in table.column_names:
            for value in table[schema.target].unique().to_pylist():
                if (label := read_label(value, ())) is not None:
                    values.setdefault(label, set()).add(value)
    own = [value for of_class in values.values() for value in of_class]
    return own if len(own) == len(values) else []


def _untyped(tables: Mapping[str, _Parts], schema: DataSchema, state: Path) -> dict[str, LocalJob]:
    everything = replace(schema, ranges=())  # a client leaves out, and counts, its rows outside as it prepares them
    read: dict[str, tuple[PartitionData, PartitionData | None]] = {}
    for name, parts in tables.items():
        found = {}
        for part, (where, table) in parts.items():
            file = PartitionFile(path=Path(f"{name}.{part}"), format="parquet")
            classes = TASKS[schema.task].has_classes
            source = Source(file, where, schema.features, schema.target, classes, with_records=True)
            found[part] = check_table(source, everything, read_arrow(source, table))
        read[name] = found["train"], found.get("test")
    return from_tables(read, state)


def _typed(tables: Mapping[str, _Parts], dataset: str, state: Path) -> dict[str, LocalJob]:
    """Clients whose columns have types: their levels are agreed on before a row is read, so the rows become files."""
    jobs, room = {}, Room()
    for name, parts in sorted(tables.items()):
        folder = state / name
        folder.mkdir(parents=True, exist_ok=True)
        files = {}
        for part, (_, table) in parts.items():
            path = folder / f"{part}.parquet"
            pq.write_table(table, path)
            files[part] = PartitionFile(path=path)
        file = ClientFile(state=state, policy=own_policy(), datasets={dataset: DatasetSection(**files)})
        jobs[name] = LocalJob(JOB_ID, name, file, folder=folder, durable=False, room=room)
    return jobs


def _table(rows: Any, schema: DataSchema, where: str) -> pa.Table:
    """Rows as a table of Arrow.

    Raises:
        DataError: They cannot be one.
    """
    try:
        if isinstance(rows, tuple | list) and len(rows) == 2:
            return _joined(rows[0], rows[1], schema, where)
        return _frame(rows, where)
    except (pa.ArrowException, TypeError, ValueError) as err:
        raise DataError(f"{where}: its rows are no table: {str(err).splitlines()[0]:.200}") from err


def _joined(x: Any, y: Any, schema: DataSchema, where: str) -> pa.Table:
    """Features beside their target."""
    if _is_frame(x):
        table = _frame(x, where)
    else:
        numbers = np.asarray(x)
        names = columns_of(schema.columns, schema.features)
        if numbers.ndim != 2 or numbers.shape[1] != len(names):
            raise DataError(
                f"{where}: X has shape {numbers.shape}, want (rows, {len(names)}): the job's features "
                f"{', '.join(names[:12])}, in this order; or give a data frame, whose columns have names"
            )
        table = pa.table({name: numbers[:, j] for j, name in enumerate(names)})
    target = pa.array(y.tolist() if isinstance(y, np.ndarray) and y.dtype == object else y, from_pandas=True)
    if len(target) != table.num_rows:
        raise DataError(f"{where}: X has {table.num_rows} rows and y {len(target)}; give one target for each row")
    if schema.target in table.column_names:
        raise DataError(f"{where}: X has the target {schema.target!r} too; leave it out of X, or give X alone")
    return table.append_column(schema.target, target)


def _is_frame(rows: Any) -> bool:
    return isinstance(rows, Mapping | pa.Table) or hasattr(rows, "columns") or hasattr(rows, "__arrow_c_stream__")


def _frame(rows: Any, where: str) -> pa.Table:
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, Mapping):
        return pa.table({str(name): pa.array(column, from_pandas=True) for name, column in rows.items()})
    if hasattr(rows, "iloc"):  # of pandas, which need not be installed
        named = rows.rename(columns=str)
        return pa.Table.from_pandas(named, preserve_index=False)
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.table(rows)
    raise DataError(f"{where}: rows of type {type(rows).__name__} are no table; give a data frame, or (X, y)")
