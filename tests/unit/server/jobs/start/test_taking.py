"""The schema by which clients read their data is that of the release under which a run began."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kernfed.federation.messages.data import DescribeDataRequest
from kernfed.jobs.held_to import contradiction
from kernfed.jobs.job_file import JobFile, data_schema
from kernfed_server.jobs.run import RULES
from kernfed_server.jobs.start.rules import as_begun
from kernfed_server.jobs.start.taking import asked_schema

JOB = JobFile.model_validate(
    {
        "name": "job",
        "method": {"name": "local"},
        "data": {"task": "regression", "target": "y", "features": ["a"], "test_fraction": 0.25},
    }
)


@pytest.mark.parametrize(
    ("rules", "split"),
    [(RULES, (True, True, True)), (3, (False, True, True)), (2, (False, False, True)), (0, (False, False, False))],
)
def test_a_run_keeps_the_split_of_its_release(rules: int, split: tuple[bool, bool, bool]) -> None:
    """By record, by content, copies together; a signed file that says otherwise refuses draws by the seed alone."""
    run: Any = SimpleNamespace(rules=rules, publish=lambda _: None)
    schema = asked_schema(as_begun(JOB, run), None)
    assert (schema.by_record, schema.by_content, schema.copies_together) == split
    refusal = contradiction(JOB, DescribeDataRequest(dataset="default", schema=schema))
    assert bool(refusal) == (rules < 3)
    assert data_schema(JOB).by_record
