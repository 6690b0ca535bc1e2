"""Reading partitions: the right reading, or a refusal that names file, column and row and no content."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kernfed.errors import DataError
from kernfed.federation.messages.data import DataSchema, LearningTask, MissingRule
from kernfed.jobs.client_file import ClientFile, DatasetSection, PartitionFile, PolicySection
from kernfed_client.data.reading.partition_data import PartitionData
from kernfed_client.data.reading.partitions import load_local_data
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


def test_columns_in_which_few_rows_stand_out_are_constant_to_training_and_named(tmp_path: Path) -> None:
    """Of sixty rows twelve may have a mark, and three may not; of test rows three may, and two may not; notes tell."""
    draw = np.random.default_rng(2)
    marks = np.zeros((60, 16))
    marks[:12, 0] = 1.0
    for j in range(1, 15):
        marks[draw.permutation(60)[:3], j] = 1.0
    marks[:, 15] = draw.normal(size=60)
    names = tuple(f"m{j}" for j in range(16))
    lines = [",".join([*names, "y"])]
    lines += [",".join(f"{v:g}" for v in [*row, i]) for i, row in enumerate(marks)]
    text = "\n".join(lines) + "\n"
    (tmp_path / "rows").mkdir()
    others = draw.normal(size=(20, 16))
    others[:2, 0], others[2:, 0], others[:3, 1], others[3:, 1] = 1.0, 0.0, 1.0, 0.0
    tests = [lines[0], *(",".join(f"{v:g}" for v in [*row, i]) for i, row in enumerate(others))]
    data = local(tmp_path / "rows", text, regression(features=names), "\n".join(tests) + "\n", min_rows=10)
    assert data.sparse_columns == names[:15]
    np.testing.assert_array_equal(data.train.x[:, 1:15], 0.0)
    np.testing.assert_allclose(data.train.x[:, [0, 15]], marks[:, [0, 15]], rtol=1e-5)
    others[:2, 0] = 0.0
    np.testing.assert_allclose(data.test.x, others, rtol=1e-5)
    note, of_tests = data.notes
    assert of_tests.startswith("column 'm0' (test rows 2, 3 of the file): fewer than 3 rows differ")
    assert note.startswith("column 'm1', 'm2', ")
    assert "'m12' and 2 more (" in note
    assert " of the file): fewer rows than policy.min_rows differ" in note


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


@pytest.mark.parametrize(
    ("split", "sides"), [("by-record", {0}), ("by-content", {0}), ("copies-together", {0}), ("row-by-row", {1})]
)
def test_the_job_says_how_rows_are_split(tmp_path: Path, split: str, sides: set[int]) -> None:
    """`data.split` reaches the rows of a file."""
    text = "a,b,y\n" + "".join(f"{i % 30},{(i % 30) ** 2},{i % 30}\n" for i in range(90))
    by_content, by_record = split in ("by-content", "by-record"), split == "by-record"
    wanted = replace(regression(), copies_together=split != "row-by-row", by_content=by_content, by_record=by_record)
    data = local(tmp_path, text, wanted)
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


@pytest.mark.parametrize("own", [False, True])
def test_validation_rows_stand_for_the_test_rows(tmp_path: Path, own: bool) -> None:
    """They are training rows of the job without them, in whole blocks; test rows are in neither part."""
    rows = "a,b,y\n" + "".join(f"{i},{i * i % 37},{i % 2}\n" for i in range(200))
    test = table(["0", "1"] * 20) if own else None
    by_record = schema(by_content=True, by_record=True, copies_together=True)
    usual = local(tmp_path, rows, by_record, test, min_rows=10)
    chosen = local(tmp_path, rows, replace(by_record, validation_fraction=0.2), test, min_rows=10)

    def of(part: PartitionData) -> set[float]:
        return set(part.x[:, 0].tolist())

    assert of(chosen.train) | of(chosen.test) == of(usual.train)
    assert not of(chosen.train) & of(chosen.test)
    assert own or not of(chosen.test) & of(usual.test)
    assert 30 <= chosen.test.num_rows <= 50
    larger = local(tmp_path, rows, replace(by_record, test_fraction=0.45), None, min_rows=10)
    assert own or of(chosen.train) == of(larger.train)


def test_too_few_validation_rows_are_none(tmp_path: Path) -> None:
    """Nothing is measured then, the administrator reads why, and the rows are trained on."""
    rows = "a,b,y\n" + "".join(f"{i},{i * i % 37},{i % 2}\n" for i in range(40))
    order = {"by_content": True, "by_record": True, "copies_together": True}
    wanted = regression(**order, test_fraction=0.0, validation_fraction=0.2)
    data = local(tmp_path, rows, wanted, None, min_rows=21)
    assert (data.train.num_rows, data.test.num_rows, data.few_test_rows) == (40, 0, True)
    assert "fewer test rows than policy.min_rows" in data.notes[0]
    with pytest.raises(DataError, match=r'validation rows .* data.split = "by-record"'):
        local(tmp_path, rows, replace(wanted, by_record=False), None, min_rows=10)
