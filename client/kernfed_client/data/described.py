"""The first stage of a job at a client: its rows as read and checked, before anything is scaled."""

from __future__ import annotations

from dataclasses import dataclass

from kernfed.federation.messages.data import DataSchema
from kernfed_client.data.reading.partitions import LocalData


@dataclass(frozen=True, slots=True)
class Described:
    """Rows that fit the job's schema."""

    dataset: str
    """Name of the data set, as the client file has it."""
    schema: DataSchema
    """The job's demands on the data."""
    data: LocalData
    """Rows to train and test on, in their own units."""
