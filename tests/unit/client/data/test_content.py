"""A job goes on with the rows that it was prepared on, or says that they changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernfed.errors import DataError, PolicyError
from kernfed.federation.messages.data import DataSchema, LearningTask, MissingRule
from kernfed.jobs.client_file import ClientFile, DatasetSection, PartitionFile, PolicySection, StreamFile
from kernfed_client.data.content import digest
from kernfed_client.data.local_job import LocalJob
from kernfed_client.data.reading.partitions import LocalData, load_local_data

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


def opened(
    tmp_path: Path, job_id: str = "job", *, stream: bool = False, policy: PolicySection | None = None
) -> LocalJob:
    """A job at a client that has just started."""
    part = PartitionFile(path=tmp_path / "rows.csv")
    section = DatasetSection(train=part, stream=StreamFile(path=tmp_path, source="follow") if stream else None)
    file = client_file(tmp_path, section)
    return LocalJob(job_id, "ann", file if policy is None else file.model_copy(update={"policy": policy}))


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
    """A method on streams takes only ranges from the files of a data set with a stream, which may be replaced."""
    on_stream = replace(SCHEMA, on_stream=True)
    write(tmp_path)
    opened(tmp_path, stream=True).load("d", on_stream)
    write(tmp_path, add=1.0)
    assert opened(tmp_path, stream=True).load("d", on_stream).train.num_rows == 6


@pytest.mark.parametrize("schema", [SCHEMA, replace(SCHEMA, on_stream=True)])
def test_a_stream_that_is_not_learned_from_changes_nothing(tmp_path: Path, schema: DataSchema) -> None:
    """Other rows are refused where the method learns from the training rows: it knows no streams, or there is none."""
    write(tmp_path)
    opened(tmp_path, stream=not schema.on_stream).load("d", schema)
    write(tmp_path, add=1.0)
    with pytest.raises(DataError, match="rows are not those"):
        opened(tmp_path, stream=not schema.on_stream).load("d", schema)


@pytest.mark.parametrize("on_stream", [False, True])
def test_jobs_beside_a_stream_are_held_to_earlier_ones(tmp_path: Path, on_stream: bool) -> None:
    """A job that leaves out one row of the training file is refused, whether or not its method learns from a stream."""
    gaps = [f"{i},{'' if i == 5 else i},{i * i}" for i in range(40)]
    (tmp_path / "rows.csv").write_text("a,b,y\n" + "\n".join(gaps) + "\n")
    schema = replace(SCHEMA, missing=MissingRule.DROP_ROWS, test_fraction=0.0, on_stream=on_stream)
    policy = PolicySection()
    opened(tmp_path, "one", stream=True, policy=policy).load("d", schema)
    with pytest.raises(PolicyError, match="differ from those of an earlier job"):
        opened(tmp_path, "two", stream=True, policy=policy).load("d", replace(schema, features=("a", "b")))


def test_a_job_of_before_goes_on_as_it_was(tmp_path: Path) -> None:
    """A release before knew nothing of columns in which few rows stand out: a job that it began takes them as they are.

    It also kept no data of jobs beside a stream, and let a job draw its rows.
    """
    rows = [f"{int(i == 3)},{i}" for i in range(40)]
    (tmp_path / "rows.csv").write_text("a,y\n" + "\n".join(rows) + "\n")
    policy = PolicySection()
    began, goes_on = (opened(tmp_path, job_id, policy=policy) for job_id in ("new", "new"))
    whole = replace(SCHEMA, test_fraction=0.0)
    assert not began.load("d", whole).train.x.any()
    assert not goes_on.load("d", whole).train.x.any()
    former = opened(tmp_path, "former", stream=True, policy=policy)
    setup = former.folder / "setup"
    setup.mkdir(parents=True)
    (setup / "00.task").write_bytes(b"kept")
    assert former.load("d", SCHEMA).num_dropped_rows == 0  # a drawn split
    kept = opened(tmp_path, "kept", policy=policy)
    (kept.folder / "setup").mkdir(parents=True)
    (kept.folder / "setup" / "content").write_text(digest(former_rows(tmp_path, whole)))
    assert kept.load("d", whole).train.x.sum() == 1.0


def test_blocks_of_a_job_of_before_stay_as_they_were(tmp_path: Path) -> None:
    """A release before joined no blocks: a job that it began goes on with those it had."""
    (tmp_path / "rows.csv").write_text("a,y\n" + "".join(f"{int(i % 8 == 0)},{i}\n" for i in range(160)))
    schema = replace(SCHEMA, test_fraction=0.0)
    now = opened(tmp_path, "now", policy=PolicySection())
    found = now.load("d", schema)
    assert found.block is not None
    assert np.bincount(found.block).min() > 20
    before = opened(tmp_path, "before", policy=PolicySection())
    (before.folder / "setup").mkdir(parents=True)
    (before.folder / "setup" / "content").write_text(f"{digest(found)} 2")
    kept = before.load("d", schema).block
    assert kept is not None
    assert np.bincount(kept).max() < 20


def former_rows(tmp_path: Path, schema: DataSchema) -> LocalData:
    """The rows as a release before took them."""
    file = client_file(tmp_path, DatasetSection(train=PartitionFile(path=tmp_path / "rows.csv")))
    return load_local_data(file, "d", schema, "ann")
