"""Test points of a client: its unlabelled rows, where it has some."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernfed.errors import DataError
from kernfed.jobs.client_file import ClientFile, DatasetSection, PartitionFile, PolicySection
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.reweight.points import test_rows as rows_of_test
from kernfed_testing.partitions import regression


def test_other_unlabelled_rows_after_a_restart_are_refused(tmp_path: Path) -> None:
    """The unlabelled partition, which a job reads when it first needs it, is the same rows again, or refused."""

    def opened() -> LocalJob:
        parts = {name: PartitionFile(path=tmp_path / f"{name}.csv") for name in ("rows", "unlabelled")}
        section = DatasetSection(train=parts["rows"], unlabelled=parts["unlabelled"])
        file = ClientFile(state=tmp_path / "state", datasets={"d": section}, policy=PolicySection(min_rows=1))
        job = LocalJob("job", "ann", file)
        job.load("d", regression())
        return job

    (tmp_path / "rows.csv").write_text("a,b,y\n" + "".join(f"{i},0.5,{i}\n" for i in range(8)))
    (tmp_path / "unlabelled.csv").write_text("a,b\n1,1\n2,2\n")
    assert rows_of_test(opened()).shape == (2, 2)
    assert rows_of_test(opened()).shape == (2, 2)
    (tmp_path / "unlabelled.csv").write_text("a,b\n1,1\n3,2\n")
    with pytest.raises(DataError, match="data set d: its unlabelled rows are not those"):
        rows_of_test(opened())
