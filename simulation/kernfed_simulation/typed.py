"""Clients that share the rows of a file whose columns have types: they read it when all have agreed on how."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from kernfed.arrays import Integers
from kernfed.columns.plan import ColumnFound, ColumnPlan
from kernfed.federation.messages.data import DataSchema
from kernfed.jobs.client_file import PartitionFile, PolicySection
from kernfed.tables.raw_table import RawTable, Source
from kernfed.tables.read import read
from kernfed_client.data.reading.found_columns import Finder, columns_source, found_in, schema_of
from kernfed_client.data.reading.partition_data import Groups, check_table, partition_source
from kernfed_client.data.reading.partitions import LocalData, prepare


class DealtFile:
    """A file of which each client has some rows, as if they lay in a file of its own."""

    def __init__(self, file: PartitionFile, rows: Mapping[str, Integers], groups: Groups, apart: str | None) -> None:
        """Begin.

        Args:
            file: All rows.
            rows: By client, the numbers of its rows in the file.
            groups: Of the rows.
            apart: Column that dealt the rows out; None: there is none.
        """
        self._file, self._rows, self._groups, self._apart = file, rows, groups, apart
        self._read = functools.lru_cache(maxsize=1)(self._read_all)

    def load(self, name: str, dataset: str, schema: DataSchema, client: str) -> LocalData:
        """A client's rows, as a job asks for them."""
        everything = replace(schema, ranges=())  # each client leaves out, and counts, its own rows
        source, table = self._read(everything)
        own = check_table(source, everything, self._own(name, table))
        return prepare(own, None, schema, client, f"data set {dataset}")

    def finder(self, name: str) -> Finder:
        """What finds a client's levels and means."""

        def find(_: str, plans: Sequence[ColumnPlan]) -> tuple[ColumnFound, ...]:
            source = columns_source(self._source(schema_of(plans)))
            return found_in(source, self._own(name, read(source)), plans, PolicySection(min_rows=1))

        return find

    def _read_all(self, schema: DataSchema) -> tuple[Source, RawTable]:
        source = self._source(schema)
        return source, read(source)

    def _source(self, schema: DataSchema) -> Source:
        return replace(partition_source(self._file, schema, "data", "train", self._groups), apart=self._apart)

    def _own(self, name: str, table: RawTable) -> RawTable:
        return table.take(np.flatnonzero(np.isin(table.row_numbers, self._rows[name])))
