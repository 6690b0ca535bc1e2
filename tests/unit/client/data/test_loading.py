"""Rows of a job as the client file lets it have them, and what the site is told of them beside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs

from kernfed.errors import JobStateMissingError, PolicyError
from kernfed.federation.messages.data import DescribeDataRequest, LearningTask, StandardiseRequest
from kernfed.jobs.client_file import ClientFile, DatasetSection, PartitionFile
from kernfed_client.data.guards.dealt_blocks import FOLDER
from kernfed_client.data.guards.kept_sets import kept_sets
from kernfed_client.data.local_job import LocalJob
from kernfed_client.steps.data import describe
from kernfed_client.steps.registry import STEPS
from kernfed_testing.partitions import schema


def test_the_log_names_what_no_message_says(tmp_path: Path) -> None:
    """Class, column, value and lines of few rows are in the daemon's log, and none of the values in the answer."""
    rows = [f"{i % 7},0,{i % 2}" for i in range(40)]
    rows[4], rows[9], rows[20] = "3,5,0", "987654,0,1", "2,0,2"
    (tmp_path / "rows.csv").write_text("a,b,y\n" + "\n".join(rows) + "\n")
    section = DatasetSection(train=PartitionFile(path=tmp_path / "rows.csv"))
    file = ClientFile(state=tmp_path / "state", datasets={"heart": section})
    job = LocalJob("job", "va", file)
    rule = {"by_content": True, "by_record": True, "test_fraction": 0.0}
    wanted = schema(classes=("0", "1", "2"), task=LearningTask.CLASSIFICATION, **rule)
    with capture_logs() as logged:
        told = describe(job, DescribeDataRequest(dataset="heart", schema=wanted))
    notes = [entry["note"] for entry in logged if "note" in entry]
    assert any(note.startswith("class '2' (row 22 of the file)") for note in notes)
    assert any(note.startswith("column 'b' (row 6 of the file)") for note in notes)
    assert any("987654; row 11 of the file" in note for note in notes)
    assert told.classes == ("0", "1")
    assert told.rare_classes_left_out
    assert "987654" not in repr(told)


def test_a_job_that_is_refused_after_its_rows_were_dealt_goes_on_with_none(tmp_path: Path) -> None:
    """Scales that no rows can have end it: its blocks are forgotten, here too, and dealt beside others' when asked."""
    draw = np.random.default_rng(3)
    rows = "\n".join(f"{a},{b},{a + b}" for a, b in draw.normal(size=(60, 2)))
    (tmp_path / "rows.csv").write_text(f"a,b,y\n{rows}\n")
    section = DatasetSection(train=PartitionFile(path=tmp_path / "rows.csv"))
    job = LocalJob("job", "va", ClientFile(state=tmp_path / "state", datasets={"heart": section}))
    rule = {"by_content": True, "by_record": True, "test_fraction": 0.0}
    asked = DescribeDataRequest(dataset="heart", schema=schema(task=LearningTask.REGRESSION, **rule))
    STEPS[DescribeDataRequest](job, asked)
    wrong = StandardiseRequest(mean=np.zeros(2), deviation=np.full(2, 1e-9), classes=(), median_distance=False)
    with pytest.raises(PolicyError, match="cannot be those"):
        STEPS[StandardiseRequest](job, wrong)
    with pytest.raises(JobStateMissingError):
        assert job.block is None
    assert [{*kept} for kept in kept_sets(tmp_path / "state" / FOLDER)] == [{"words"}]
    STEPS[DescribeDataRequest](job, asked)
    assert [{*kept} for kept in kept_sets(tmp_path / "state" / FOLDER) if "block" in kept] == [{"words", "block"}]
