"""Ranges that a job states: rows outside of them are left out everywhere, counted, and named by client and column."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import ConfigError, DataError, JobError
from kernfed.federation.messages.base import Reply
from kernfed.federation.messages.data import ColumnRange, MissingRule
from kernfed.jobs.client_file import ClientFile, DatasetSection, PartitionFile, PolicySection
from kernfed.jobs.job_file import data_schema
from kernfed.methods.registry import METHODS
from kernfed_client.data.reading.partitions import load_local_data
from kernfed_client.data.reading.ranges import row_outside
from kernfed_simulation.federation import Rows
from kernfed_testing.in_process import bench, make_job, regression_rows
from kernfed_testing.partitions import read_csv, regression, schema

RANGES = (ColumnRange(column="a", low=0.0, high=10.0), ColumnRange(column="y", low=-1.0, high=1.0))


def test_rows_outside_are_left_out_and_counted_whatever_else_is_in_them(tmp_path: Path) -> None:
    """By range and in all; infinity lies outside, a gap does not, and the ends of a range are within."""
    text = "a,b,y\n0,1,1\n10,2,-1\n11,3,0\n-1,4,5\n1e300,5,0\n3,6,0\n"
    found = read_csv(tmp_path, text, regression(ranges=RANGES))
    assert found.x[:, 0].tolist() == [0, 10, 3]
    assert (found.num_outside_rows, found.outside_rows, found.num_dropped_rows) == (3, (3, 1), 0)
    found = read_csv(tmp_path, text + ",7,0\n", regression(ranges=RANGES, missing=MissingRule.DROP_ROWS))
    assert (found.num_outside_rows, found.num_dropped_rows, found.num_rows) == (3, 1, 3)
    with pytest.raises(DataError, match="column 'a', line 8: no value"):
        read_csv(tmp_path, text + ",7,0\n", regression(ranges=RANGES))


def test_classes_have_ranges_of_features_alone(tmp_path: Path) -> None:
    """Rows outside go with their classes."""
    found = read_csv(tmp_path, "a,b,y\n1,1,0\n99,2,1\n3,3,1\n", schema(ranges=RANGES[:1]))
    assert found.labels == ["0", "1"]
    assert found.outside_rows == (1,)


def test_where_no_row_is_within_the_data_are_refused(tmp_path: Path) -> None:
    """With the column, its range and the remedy, and no value."""
    with pytest.raises(
        DataError, match=r"all 2 rows hold a value outside .* column 'a', which is to be 0 to 10; corr"
    ) as e:
        read_csv(tmp_path, "a,b,y\n7777,1,0\n7778,2,0\n", regression(ranges=RANGES))
    assert "777" not in str(e.value).replace("(ta", "")


def test_training_and_test_rows_are_counted_together(tmp_path: Path) -> None:
    """Of both partitions; held-out rows are drawn from those that are left."""
    (tmp_path / "train.csv").write_text("a,b,y\n1,1,0\n50,2,0\n2,3,9\n3,3,0\n")
    (tmp_path / "test.csv").write_text("a,b,y\n1,1,0\n1,1,2\n")
    files = {name: PartitionFile(path=tmp_path / f"{name}.csv") for name in ("train", "test")}
    file = ClientFile(datasets={"heart": DatasetSection(**files)}, policy=PolicySection(min_rows=1))
    data = load_local_data(file, "heart", regression(ranges=RANGES), "va")
    assert (data.train.num_rows, data.test.num_rows) == (2, 1)
    assert (data.num_outside_rows, data.outside_rows) == (3, (1, 2))
    alone = ClientFile(datasets={"heart": DatasetSection(train=files["train"])}, policy=PolicySection(min_rows=1))
    data = load_local_data(alone, "heart", regression(ranges=RANGES, test_fraction=0.5), "va")
    assert (data.train.num_rows, data.test.num_rows, data.num_outside_rows) == (1, 1, 2)


def test_a_row_of_a_stream_is_judged_by_what_it_has() -> None:
    """Features before their target, a target behind its features, both, or no range at all."""
    wanted = regression(ranges=RANGES)
    assert row_outside(wanted, np.array([11.0, 0]), None)
    assert row_outside(wanted, None, 2.0)
    assert not row_outside(wanted, np.array([1.0, 99]), 0.5)
    assert not row_outside(replace(wanted, ranges=()), np.array([11.0, 0]), 9.0)


TRIED: dict[str, dict[str, Any]] = {
    "local": {},
    "newton": {"rounds": 2},
    "fedavg": {"rounds": 2, "loss": "squared"},
    "personalise": {"num_frequencies": 20, "grid": "lite"},
    "reweight": {"rounds": 2, "scope": "own"},
}


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(TRIED.keys() & METHODS))
def test_every_method_works_as_if_the_rows_outside_were_not_there(tmp_path: Path, method: str) -> None:
    """A row of 100 and a test row with a target of -900 at one client: the same bits as without them, and a note."""
    rows = regression_rows({"ant": 30, "bee": 30, "cat": 30})
    clean = bench(rows, tmp_path / "a").run(make_job(method, **TRIED[method]))
    bee = rows["bee"]
    far = np.vstack([bee.x_train[:7], [[0.1, 100.0, 0.2]], bee.x_train[7:]])
    rows["bee"] = Rows(
        far, np.insert(bee.y_train, 7, 0.0), np.vstack([bee.x_test, bee.x_test[:1]]), np.append(bee.y_test, -900)
    )
    job = make_job(method, data='ranges = { "x[0:3]" = [-20, 20], y = [-50, 50] }', **TRIED[method])
    ranged = bench(rows, tmp_path / "b").run(job)
    assert ranged.metrics[-1] == clean.metrics[-1]
    note = "rows left out that lie outside of data.ranges: bee 2 (x1 1, y 1)"
    assert note in ranged.notes
    assert not any("left out" in text for text in clean.notes)


def test_a_client_that_does_not_know_ranges_is_refused(tmp_path: Path) -> None:
    """One of an earlier release would train on all rows; so is one whose counts contradict each other."""
    rows, job = regression_rows({"ant": 20, "bee": 20}), make_job("newton", data="ranges = { x1 = [-20, 20] }")

    def earlier(reply: Reply) -> Reply:
        changed: Any = {"outside_rows": ()}
        return replace(reply, **changed)

    def contradicting(reply: Reply) -> Reply:
        changed: Any = {"outside_rows": (3,)}
        return replace(reply, **changed)

    for tamper, why in ((earlier, "bee: .*install the same release"), (contradicting, "bee: .*left out 0 rows, but")):
        with pytest.raises(JobError, match=why):
            bench(rows, tmp_path, tamper={("bee", "data.describe"): tamper}).run(job)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ranges = { x9 = [0, 1] }", "'x9' is neither a feature nor the target"),
        ("ranges = { x1 = [1, 0] }", r"x1 = \[1, 0\] holds no value; write the smaller number first"),
        ("ranges = { x1 = [0] }", "ranges"),
        ("ranges = { x1 = [0, inf] }", "ranges"),
    ],
)
def test_ranges_that_do_not_fit_are_refused(line: str, message: str) -> None:
    """By key, with what to write."""
    with pytest.raises(ConfigError, match=message):
        make_job("newton", data=line)


def test_a_class_has_no_range() -> None:
    """A target of classes is refused as a range's column; names with a range of numbers stand for all of them."""
    with pytest.raises(ConfigError, match="target 'y' is a class and has no range"):
        make_job("newton", task="binary", data="ranges = { y = [0, 1] }")
    job = make_job("newton", data='ranges = { "x[1:3]" = [0, 1] }')
    assert [r.column for r in data_schema(job).ranges] == ["x1", "x2"]
