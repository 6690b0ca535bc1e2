"""Reading partitions: the right reading, or a refusal that names file, column and row and no content."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernfed.errors import DataError
from kernfed.federation.messages.data import DataSchema, LearningTask, MissingRule
from kernfed.jobs.client_file import ClientFile, DatasetSection, PartitionFile, PolicySection
from kernfed_client.data.partition_data import PartitionData
from kernfed_client.data.partitions import held_out_rows, load_local_data, units_of
from kernfed_testing.partitions import GOOD, SECRET, read_csv, regression, schema


def test_dropping_every_row_is_refused(tmp_path: Path) -> None:
    """A file in which every row has a gap is refused."""
    with pytest.raises(DataError, match="all 2 rows lack a value"):
        read_csv(tmp_path, "a,b,y\n1,,0\n,2,1\n", schema(missing=MissingRule.DROP_ROWS))


def local(tmp_path: Path, text: str, wanted: DataSchema, test: str | None = None, min_rows: int = 1) -> Any:
    (tmp_path / "train.csv").write_text(text)
    (tmp_path / "test.csv").write_text(test or "")
    section = DatasetSection(
        train=PartitionFile(path=tmp_path / "train.csv"),
        test=PartitionFile(path=tmp_path / "test.csv") if test else None,
    )
    file = ClientFile(datasets={"heart": section}, policy=PolicySection(min_rows=min_rows))
    return load_local_data(file, "heart", wanted, "va")


def table(labels: list[str]) -> str:
    return "a,b,y\n" + "".join(f"{i},{i},{label}\n" for i, label in enumerate(labels))


def test_one_class_is_allowed_and_noted(tmp_path: Path) -> None:
    """A client with one class takes part, with a note."""
    data = local(tmp_path, table(["1"] * 8), schema())
    assert data.classes == ("1",)
    assert "one class" in data.notes[0]
    assert (data.train.num_rows, data.test.num_rows) == (6, 2)


def test_a_test_partition_is_taken_whole(tmp_path: Path) -> None:
    """With test rows of its own a client holds out none of its training rows."""
    data = local(tmp_path, table(["0"] * 8), schema(), test=table(["1", "0"]))
    assert (data.train.num_rows, data.test.num_rows, data.classes) == (8, 2, ("0", "1"))


def test_a_faulty_test_partition_is_named(tmp_path: Path) -> None:
    """A fault in the test rows names the test file."""
    with pytest.raises(DataError, match=r"data set heart, test \(test\.csv\): column 'y', line 3"):
        local(tmp_path, table(["0"] * 8), schema(), test=table(["1", "2"]))


def test_a_data_set_that_is_not_offered_is_named() -> None:
    """A data set that the client file lacks is named in the refusal."""
    with pytest.raises(DataError, match=r"'heart' is not offered here \(offered: none\)"):
        load_local_data(ClientFile(), "heart", schema(), "va")


def test_labels_never_leave_where_the_target_is_no_class(tmp_path: Path) -> None:
    """A refusal of a target with too many values tells their number and none of them."""
    text = table([f"{SECRET}-{i}" for i in range(40)])
    with pytest.raises(DataError, match="40 different values in 40 rows") as caught:
        local(tmp_path, text, schema(task=LearningTask.CLASSIFICATION, classes=()))
    assert SECRET not in str(caught.value)
    with pytest.raises(DataError, match="40 classes but the task is binary") as caught:
        local(tmp_path, text, schema(classes=()))
    assert SECRET not in str(caught.value)


@given(
    labels=st.lists(st.sampled_from("abcde"), min_size=1, max_size=60),
    fraction=st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9]),
    seed=st.integers(0, 2**63 - 1),
)
def test_the_split_is_stratified_and_deterministic(labels: list[str], fraction: float, seed: int) -> None:
    """Held-out rows are the same each time, in proportion for each class, and leave each class a training row."""
    held_out = held_out_rows(labels, len(labels), fraction, seed, "va")
    assert (held_out == held_out_rows(list(labels), len(labels), fraction, seed, "va")).all()
    total = 0
    for name in set(labels):
        here = np.array([label == name for label in labels])
        n, k = here.sum(), held_out[here].sum()
        assert k <= n - 1, "every class keeps a training row"
        assert abs(k - fraction * n) < 1 or k == n - 1
        total += int(k)
    assert total <= int(fraction * len(labels) + 0.5)
    if all(labels.count(name) - 1 >= fraction * labels.count(name) + 1 for name in set(labels)):
        assert total == int(fraction * len(labels) + 0.5)


def test_the_split_depends_on_seed_and_client_alone() -> None:
    """Another seed or another client holds out other rows."""
    base = held_out_rows(None, 100, 0.25, 1, "va")
    assert base.sum() == 25
    assert (base != held_out_rows(None, 100, 0.25, 2, "va")).any()
    assert (base != held_out_rows(None, 100, 0.25, 1, "cleveland")).any()


def test_one_row_is_a_training_row() -> None:
    """A single row is never held out."""
    assert held_out_rows(None, 1, 0.9, 1, "va").tolist() == [False]


def made_rows(x: Any, y: Any = None, labels: list[str] | None = None) -> PartitionData:
    return PartitionData(x, labels, y, 0, np.arange(1, len(x) + 1))


@pytest.mark.parametrize("classes", [0, 2])
def test_copies_of_a_row_are_held_out_together(classes: int) -> None:
    """Rows that repeat go to one side with their copies; without copies the draw is that of single rows."""
    draw = np.random.default_rng(1)
    x, y = draw.normal(size=(60, 3)), draw.integers(0, classes, size=60) if classes else draw.normal(size=60)
    four = np.tile(np.arange(60), 4)
    labels = [f"c{v}" for v in y[four]] if classes else None
    unit = units_of(made_rows(x[four], None if classes else y[four], labels))
    held_out = held_out_rows(labels, 240, 0.25, 1, "va", unit)
    assert (held_out.reshape(4, 60) == held_out[:60]).all()
    assert 52 <= held_out.sum() <= 60
    assert not (held_out_rows(labels, 240, 0.25, 1, "va").reshape(4, 60) == held_out[:60]).all()
    names = None if labels is None else labels[:60]
    whole = held_out_rows(names, 60, 0.25, 1, "va", units_of(made_rows(x, None if classes else y, names)))
    assert (whole == held_out_rows(names, 60, 0.25, 1, "va")).all()


def test_few_different_rows_are_no_copies() -> None:
    """A table of two yes-or-no columns has equal rows by its nature; a few copied rows are copies."""
    draw = np.random.default_rng(2)
    assert units_of(made_rows(draw.integers(0, 2, size=(400, 2)).astype(np.float64), labels=["a", "b"] * 200)) is None
    copied = made_rows(np.repeat(draw.normal(size=(2, 3)), 4, axis=0), np.repeat([1.0, 2.0], 4))
    held_out = held_out_rows(None, 8, 0.25, 1, "va", units_of(copied))
    assert held_out.sum() == 4
    assert len(set(held_out[:4])) == 1


@pytest.mark.parametrize(("together", "sides"), [(True, {0}), (False, {1})])
def test_the_job_says_how_rows_are_split(tmp_path: Path, together: bool, sides: set[int]) -> None:
    """`data.split` reaches the rows of a file."""
    text = "a,b,y\n" + "".join(f"{i % 30},{(i % 30) ** 2},{i % 30}\n" for i in range(90))
    data = local(tmp_path, text, replace(regression(), copies_together=together))
    shared = {float(v) for v in data.train.x[:, 0]} & {float(v) for v in data.test.x[:, 0]}
    assert {int(bool(shared))} == sides


@pytest.mark.parametrize("column", ["a", "y"])
def test_numbers_of_no_use_are_refused(tmp_path: Path, column: str) -> None:
    """A feature or target of 1e160 is refused by its column and line."""
    rows = {"a": "1", "b": "2", "y": "3"} | {column: "1e160"}
    with pytest.raises(DataError, match=rf"column '{column}', line 3: a number beyond 1e\+100"):
        read_csv(tmp_path, f"a,b,y\n1,2,3\n{rows['a']},{rows['b']},{rows['y']}\n", regression())


@pytest.mark.parametrize("name", ["csv", "parquet", "npz"])
def test_a_test_partition_without_rows_is_no_test_rows(tmp_path: Path, name: str) -> None:
    """A test partition that names its columns and has no row means that nothing is measured here."""
    train, test = tmp_path / "train.csv", tmp_path / f"test.{name}"
    train.write_text(GOOD)
    if name == "csv":
        test.write_text("a,b,y\n")
    elif name == "parquet":
        pq.write_table(pa.table({"a": pa.array([], pa.float64()), "b": [], "y": pa.array([], pa.string())}), test)
    else:
        np.savez(test, x=np.zeros((0, 2)), y=np.array([], dtype=str), columns=np.array(["a", "b"]))
    section = DatasetSection(train=PartitionFile(path=train), test=PartitionFile(path=test))
    data = load_local_data(ClientFile(datasets={"heart": section}), "heart", schema(), "ann")
    assert (data.train.num_rows, data.test.num_rows) == (2, 0)
    assert data.notes == ("the test partition has no rows, so nothing is measured at this client",)


@pytest.mark.parametrize("own", [False, True])
def test_fewer_test_rows_than_the_policy_asks_for_are_none(tmp_path: Path, own: bool) -> None:
    """A few rows are not held out at all, and a small test partition is left out; the administrator reads why."""
    rows, test = table(["0", "1"] * 20), table(["0", "1"] * 4) if own else None
    few = local(tmp_path, rows, schema(), test, min_rows=11)
    assert (few.train.num_rows, few.test.num_rows, few.few_test_rows) == (40, 0, True)
    assert "fewer test rows than policy.min_rows" in few.notes[0]
    enough = local(tmp_path, rows, schema(), test, min_rows=8)
    assert (enough.test.num_rows, enough.few_test_rows) == (8 if own else 10, False)
