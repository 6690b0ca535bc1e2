"""Partitions as a client reads them: a schema of two columns and a target, and files for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernfed.federation.messages.data import DataSchema, LearningTask, MissingRule
from kernfed.jobs.client_file import PartitionFile
from kernfed_client.data.reading.partition_data import PartitionData
from kernfed_client.data.reading.partitions import read_partition

SECRET = "s3cr3t-31337"
GOOD = "a,b,y\n1,2,0\n3,4,1\n"


def schema(**changes: Any) -> DataSchema:
    facts: dict[str, Any] = {
        "task": LearningTask.BINARY,
        "target": "y",
        "features": ("a", "b"),
        "classes": ("0", "1"),
        "missing": MissingRule.REFUSE,
        "test_fraction": 0.25,
        "seed": 1,
    }
    return DataSchema(**(facts | changes))


def regression(**changes: Any) -> DataSchema:
    return schema(task=LearningTask.REGRESSION, classes=(), **changes)


def read(path: Path, wanted: DataSchema | None = None, **file: Any) -> PartitionData:
    return read_partition(PartitionFile(path=path, **file), wanted or schema(), "heart", "train")


def read_csv(tmp_path: Path, text: str | bytes, wanted: DataSchema | None = None, **file: Any) -> PartitionData:
    path = tmp_path / "site.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read(path, wanted, **file)
