"""What a client tells of its columns before a job: levels of enough rows, and means that tell of no few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.columns.plan import NUM_QUANTILES, ColumnFound, ColumnKind, ColumnPlan, MissingRule, UnknownRule
from kernfed.errors import DataError
from kernfed.jobs.client_file import ClientFile, DatasetSection, PartitionFile, PolicySection
from kernfed_client.data.reading.found_columns import find_columns

KIND = ColumnPlan(name="kind", kind=ColumnKind.CATEGORY, missing=MissingRule.REFUSE, unknown=UnknownRule.OTHER)
SIZE = ColumnPlan(name="size", kind=ColumnKind.NUMBER, missing=MissingRule.MEAN)


def found(
    folder: Path, rows: Sequence[tuple[object, ...]], *plans: ColumnPlan, group: str | None = None, **policy: Any
) -> tuple[ColumnFound, ...]:
    """What is in a file of kind, size and patient."""
    path = folder / "rows.csv"
    path.write_text("kind,size,patient\n" + "\n".join(",".join(map(str, row)) for row in rows) + "\n")
    section = DatasetSection(train=PartitionFile(path=path), group=group)
    file = ClientFile(datasets={"heart": section}, policy=PolicySection(**{"min_rows": 3, **policy}))
    return find_columns(file, "heart", plans)


def test_levels_of_few_rows_are_not_told(tmp_path: Path) -> None:
    """Neither how many rows the others have; the job may ask for more than the policy."""
    rows = [(kind, 1, i) for i, kind in enumerate("aaaabbbccd")]
    assert found(tmp_path, rows, KIND)[0] == ColumnFound(levels=("a", "b"), num_rows=0, mean=0.0, deviation=0.0)
    assert found(tmp_path, rows, replace(KIND, least_rows=4))[0].levels == ("a",)
    assert found(tmp_path, rows, KIND, min_rows=1)[0].levels == ("a", "b", "c", "d")


def test_levels_of_few_groups_are_not_told(tmp_path: Path) -> None:
    """Many rows of one patient are one patient."""
    rows = [("a", 1, "ann")] * 6 + [("b", 1, i) for i in range(3)]
    assert found(tmp_path, rows, KIND, group="patient")[0].levels == ("b",)


def test_a_mean_is_told_coarsely_and_of_enough_rows_alone(tmp_path: Path) -> None:
    """Within a sixteenth of the deviation, of a multiple of `min_rows` rows; exactly where single rows may be told."""
    values = np.random.default_rng(0).normal(5.0, 2.0, 40)
    rows = [("a", f"{v:.6f}", i) for i, v in enumerate(values)] + [("a", "", 99)]
    told = found(tmp_path, rows, SIZE)[0]
    assert told.num_rows == 39
    assert 0 < abs(told.mean - values.mean()) <= told.deviation / 32
    assert (told.mean / told.deviation * 16).is_integer()
    one_more = found(tmp_path, [*rows, ("a", f"{values.mean() + 0.1:.6f}", 100)], SIZE)[0]
    assert (one_more.mean, one_more.num_rows) == (told.mean, told.num_rows)
    assert found(tmp_path, rows, SIZE, min_rows=1)[0].mean == pytest.approx(values.mean(), abs=1e-6)
    assert found(tmp_path, [("a", 1, 1), ("a", 2, 2), ("a", "", 3)], SIZE)[0].num_rows == 0


def test_the_mean_is_of_what_becomes_a_feature(tmp_path: Path) -> None:
    """Of clipped and transformed numbers."""
    rows = [("a", v, 1) for v in (0, 3, 100)]
    told = found(tmp_path, rows, replace(SIZE, clip=(0.0, 3.0), log1p=True), min_rows=1)[0]
    assert told.mean == pytest.approx(np.log([1, 4, 4]).mean())


def test_a_column_of_names_is_refused(tmp_path: Path) -> None:
    """Where single rows may be told, a column of as many levels as rows is one of identifiers all the same."""
    with pytest.raises(DataError, match="look like names") as caught:
        found(tmp_path, [(f"name {i}", 1, i) for i in range(30)], KIND, min_rows=1)
    assert "name 1" not in str(caught.value)


def test_the_column_of_groups_stays_here(tmp_path: Path) -> None:
    """A job that asks for its levels is refused."""
    rows = [("a", 1, "ann")] * 6
    with pytest.raises(DataError, match="names groups"):
        found(tmp_path, rows, replace(KIND, name="patient"), group="patient")


def test_quantiles_are_told_where_a_median_or_ranks_are_wanted(tmp_path: Path) -> None:
    """Of means of neighbours and coarsely; exactly where single rows may be told, and none of too few rows."""
    values = np.exp(np.random.default_rng(0).normal(0.0, 1.0, 40))
    rows = [("a", f"{v:.6f}", i) for i, v in enumerate(values)]
    median = replace(SIZE, missing=MissingRule.MEDIAN)
    assert found(tmp_path, rows, SIZE)[0].quantiles == ()
    exact = found(tmp_path, rows, median, min_rows=1)[0].quantiles
    assert exact[NUM_QUANTILES // 2] == pytest.approx(np.median(values), abs=1e-6)
    told = found(tmp_path, rows, median)[0].quantiles
    assert list(told) == sorted(told)
    assert not {f"{v:.6f}" for v in values} & {f"{v:.6f}" for v in told}
    assert 0 < np.abs(np.array(told) - exact)[30:70].max() < 0.3
    ranks = replace(SIZE, missing=MissingRule.REFUSE, rank=True)
    assert found(tmp_path, rows, ranks)[0].quantiles == told
    assert found(tmp_path, rows[:2], ranks)[0].quantiles == ()
