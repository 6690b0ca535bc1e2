"""Streams of rows for online learning, and the plainest of them: a table replayed in its order.

A position says how far a stream was read. It is a small JSON value that is kept with what was learned, so a client that
was killed goes on at the same row: none is lost, none counts twice. Reading never waits; there are rows now, or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from kernfed.arrays import Floats
from kernfed_client.data.reading.partition_data import PartitionData
from kernfed_client.streams.faults import FileChange, RowFault

Position = Mapping[str, Any]
"""JSON values; empty: the beginning."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a stream, in the data's units."""

    x: Floats | None
    """Features, (P,), finite; None: this is the target of a row that came before."""
    y: float | None
    """Target, or 0/1 for the class; None: it comes later."""
    key: str | None
    """Key that connects a row with a target that comes later."""
    number: int
    """Which row of a table that is replayed, from 0; -1: of a live stream."""
    where: str = ""
    """File and line, for the client's own log; of rows with a key alone."""
    mark: int = -1
    """See `kernfed_client.data.guards.row_marks`; -1: the stream has none."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows that were read."""

    rows: tuple[Row, ...]
    position: Position
    """Behind these rows."""
    faults: Mapping[RowFault, int] = field(default_factory=dict)
    """Rows between the positions that were left out."""
    changes: Mapping[FileChange, int] = field(default_factory=dict)
    """What happened to files between the positions."""
    waits_for_disk: bool = False
    """Whether rows are at hand that cannot be written down, for the disk is full or gone."""
    lost: tuple[int, ...] = ()
    """Marks of rows between the positions that were left out for a fault."""

    @property
    def num_skipped(self) -> int:
        """Rows between the positions that were left out for a fault."""
        return sum(self.faults.values())


class Stream(Protocol):
    """Source of rows."""

    live: bool
    """Whether rows may come after the last one there is now."""
    num_rows: int
    """Rows of a stream that ends; 0 of a live one."""
    marked: bool
    """Whether its rows have marks."""

    def read(self, position: Position, max_rows: int) -> Chunk:
        """At most `max_rows` rows behind a position; none where there are none now."""
        ...

    def ended(self, position: Position) -> bool:
        """Whether there will never be a row behind a position."""
        ...

    def leave_out(self, fault: RowFault, where: str) -> None:
        """Tell the client's people of a row that was read and could not be used."""
        ...


class TableStream:
    """Rows of a checked table, in their order."""

    live = False

    def __init__(self, table: PartitionData, classes: tuple[str, ...] = (), marks: Sequence[int] = ()) -> None:
        """`marks` of the table's rows; empty: they have none."""
        self.x = table.x
        self.marked = len(marks) > 0
        self._marks = marks or [-1] * table.num_rows
        self.num_rows = table.num_rows
        if table.y is not None:
            self.y = table.y
        else:
            index = {name: float(i) for i, name in enumerate(classes)}
            self.y = np.array([index[label] for label in table.labels or ()])

    def read(self, position: Position, max_rows: int) -> Chunk:
        """See `Stream.read`."""
        start = int(position.get("row", 0))
        stop = min(start + max_rows, self.num_rows)
        rows = tuple(Row(self.x[i], float(self.y[i]), None, i, mark=self._marks[i]) for i in range(start, stop))
        return Chunk(rows, {"row": stop})

    def ended(self, position: Position) -> bool:
        """See `Stream.ended`."""
        return int(position.get("row", 0)) >= self.num_rows

    def leave_out(self, fault: RowFault, where: str) -> None:
        """See `Stream.leave_out`; a table has no row that waits for its target."""
        raise AssertionError(f"{where}: {fault}, in a table")
