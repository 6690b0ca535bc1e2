"""What a site is told of an online job before it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernfed.jobs.job_file import JobFile, data_schema
from kernfed_client.data.reading.partitions import load_local_data
from kernfed_client.foresight import foresee
from kernfed_testing.hostile.adversary import COLUMNS, ON, Target, rows


@pytest.mark.parametrize(("every", "told"), [(0, False), (20, True)])
def test_a_stream_whose_rounds_would_grow_is_told(tmp_path: Path, every: int, told: bool) -> None:
    """With the column that makes them grow, and the rows that a round would have; a job on numbers is not told."""
    table = {**rows(600), "x2": np.arange(600).tolist()}
    table["x1"] = [int(i % every == 0) for i in range(600)] if every else table["x1"]
    target = Target(tmp_path, table, ON)
    job = JobFile.model_validate(
        {
            "name": "s",
            "method": {"name": "online"},
            "data": {"task": "regression", "target": "y", "features": list(COLUMNS)},
        }
    )
    data = load_local_data(target.file, "default", data_schema(job), "ant")
    notes = list(foresee(target.file, job, data, "ant"))
    if told:
        (note,) = notes
        assert note.startswith("a round of the stream would have about 190 rows here, and not 10")
        assert "'x1'" in note
        assert "'x0'" not in note
    else:
        assert not notes
