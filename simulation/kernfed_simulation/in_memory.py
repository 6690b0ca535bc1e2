"""Clients whose rows are at hand in Python: data frames, or arrays of features and targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from kernfed.errors import ConfigError, DataError
from kernfed.federation.messages.data import DataSchema
from kernfed.jobs.client_file import PartitionFile
from kernfed.maths.tasks import TASKS
from kernfed.tables.cells import read_label
from kernfed.tables.parquet import read_arrow
from kernfed.tables.raw_table import Source
from kernfed_client.data.local_job import LocalJob
from kernfed_client.data.reading.partition_data import PartitionData, check_table
from kernfed_simulation.federation import from_tables

PARTITIONS = ("train", "test")


def from_frames(clients: Mapping[str, Any], schema: DataSchema, state: Path) -> tuple[dict[str, LocalJob], list[Any]]:
    """Clients with rows in memory.

    Args:
        clients: By name: a data frame or a dict of columns; (X, y), X a data frame or an array of the job's features in
            their order; or a dict with `train`, and `test` where that is apart, each of which is one of these.
        schema: What the job expects.
        state: For what the job leaves at each client while it runs.

    Returns:
        The clients, and the values of the target's classes, in the target's own type; none where a class has several.

    Raises:
        ConfigError: A client is none of these.
        DataError: Rows do not fit the job; names client, column and row.
    """
    if not isinstance(clients, Mapping) or not clients:
        raise ConfigError('clients is no table of rows by client; give e.g. {"north": frame, "south": (X, y)}')
    everything = replace(schema, ranges=())  # a client leaves out, and counts, its rows outside as it prepares them
    tables: dict[str, tuple[PartitionData, PartitionData | None]] = {}
    values: dict[str, set[Any]] = {}
    for name, given in clients.items():
        apart = isinstance(given, Mapping) and "train" in given and set(given) <= set(PARTITIONS)
        found: dict[str, PartitionData] = {}
        for part, rows in (given if apart else {"train": given}).items():
            where = f"client {name}, {part}" if apart else f"client {name}"
            table = _table(rows, schema, where)
            file = PartitionFile(path=Path(f"{name}.{part}"), format="parquet")
            classes = TASKS[schema.task].has_classes
            source = Source(file, where, schema.features, schema.target, classes, with_records=True)
            if classes and schema.target in table.column_names:
                for value in table[schema.target].unique().to_pylist():
                    if (label := read_label(value, ())) is not None:
                        values.setdefault(label, set()).add(value)
            found[part] = check_table(source, everything, read_arrow(source, table))
        tables[str(name)] = found["train"], found.get("test")
    own = [value for of_class in values.values() for value in of_class]
    return from_tables(tables, state), own if len(own) == len(values) else []


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
        if numbers.ndim != 2 or numbers.shape[1] != len(schema.features):
            raise DataError(
                f"{where}: X has shape {numbers.shape}, want (rows, {len(schema.features)}): the job's features "
                f"{', '.join(schema.features[:12])}, in this order; or give a data frame, whose columns have names"
            )
        table = pa.table({name: numbers[:, j] for j, name in enumerate(schema.features)})
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
