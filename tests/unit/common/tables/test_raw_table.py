"""What is told of faults in a table, here and to others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernfed.errors import DataError
from kernfed.jobs.client_file import PartitionFile
from kernfed.tables.raw_table import Faults, Source


def test_others_are_told_no_lines_and_no_counts() -> None:
    """Lines, counts and the file's own names of columns stay here; the column and the problem may leave."""
    source = Source(PartitionFile(path=Path("rows.csv"), columns={"a": "alpha"}), "rows.csv", ("a",), "y")
    faults = Faults(source, "line")
    faults.add_rows("a", np.array([5, 3, 9]), "no value; remove these rows")
    faults.add("y", 7, "a class that the job does not know")
    with pytest.raises(
        DataError, match=r"column 'a' \('alpha' in the file\), line 3 \(the first of 3 lines\)"
    ) as found:
        faults.raise_if_any()
    assert found.value.public.splitlines() == [
        "rows.csv: column 'a': no value; remove these rows (this client's log says more)",
        "rows.csv: column 'y': a class that the job does not know (this client's log says more)",
    ]
