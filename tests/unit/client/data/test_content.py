"""A job goes on with the rows that it was prepared on, or says that they changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernfed.errors import DataError
from kernfed.federation.messages.data import DataSchema, LearningTask, MissingRule
from kernfed.jobs.client_file import ClientFile, DatasetSection, PartitionFile, PolicySection, StreamFile
from kernfed_client.data.local_job import LocalJob

SCHEMA = DataSchema(
    task=LearningTask.REGRESSION,
    target="y",
    features=("a",),
    classes=(),
    missing=MissingRule.REFUSE,
    test_fraction=0.25,
    seed=1,
)


def client_file(tmp_path: Path, section: DatasetSection) -> ClientFile:
    return ClientFile(state=tmp_path / "state", datasets={"d": section}, policy=PolicySection(min_rows=1))


def opened(tmp_path: Path, job_id: str = "job", *, stream: bool = False) -> LocalJob:
    """A job at a client that has just started."""
    part = PartitionFile(path=tmp_path / "rows.csv")
    section = DatasetSection(train=part, stream=StreamFile(path=tmp_path, source="follow") if stream else None)
    return LocalJob(
        job_id, "ann", ClientFile(state=tmp_path / "state", datasets={"d": section}, policy=PolicySection(min_rows=1))
    )


def write(tmp_path: Path, add: float = 0.0, order: int = 1) -> None:
    rows = [f"{i},{2 * i + add}" for i in range(8)][::order]
    (tmp_path / "rows.csv").write_text("a,y\n" + "\n".join(rows) + "\n")


@pytest.mark.parametrize("change", [{"add": 100.0}, {"order": -1}])
def test_other_rows_after_a_restart_are_refused(tmp_path: Path, change: dict[str, int]) -> None:
    """A job whose file was replaced while its client was down is told so; with the former file it goes on."""
    write(tmp_path)
    opened(tmp_path).load("d", SCHEMA)
    write(tmp_path, **change)
    said = r"rows are not those with which.*or this release leaves out.*put the former files back.*or cancel the job"
    with pytest.raises(DataError, match=said):
        opened(tmp_path).load("d", SCHEMA)
    opened(tmp_path, "another").load("d", SCHEMA)
    write(tmp_path)
    assert opened(tmp_path).load("d", SCHEMA).train.num_rows == 6


def test_a_file_that_only_looks_different_is_the_same(tmp_path: Path) -> None:
    """The rows count, not the bytes of the file."""
    write(tmp_path)
    opened(tmp_path).load("d", SCHEMA)
    path = tmp_path / "rows.csv"
    path.write_text(path.read_text().replace("\n", "\r\n"))
    assert opened(tmp_path).load("d", SCHEMA).train.num_rows == 6


def test_the_history_of_a_stream_may_grow(tmp_path: Path) -> None:
    """A data set with a stream takes only ranges from its files, which may be replaced."""
    write(tmp_path)
    opened(tmp_path, stream=True).load("d", SCHEMA)
    write(tmp_path, add=1.0)
    assert opened(tmp_path, stream=True).load("d", SCHEMA).train.num_rows == 6
