"""Every job on a file finds the same rows held out, and groups lie on one side."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kernfed.errors import ConfigError, DataError, PolicyError
from kernfed.federation.messages.data import ColumnRange, DataSchema, LearningTask, MissingRule
from kernfed.jobs.client_file import ClientFile, DatasetSection, PartitionFile, PolicySection, load_client_file
from kernfed_client.data.guards.records import Records
from kernfed_client.data.guards.split import held_out_by_record, refuse_few_groups
from kernfed_client.data.reading.partition_data import PartitionData
from kernfed_client.data.reading.partitions import LocalData, load_local_data
from kernfed_testing.partitions import regression

NUM = 200
BY_RECORD = regression(by_content=True, by_record=True)


def columns(seed: int = 1) -> dict[str, list[object]]:
    """Columns a, b, c and y, a class, and a patient of each row; five rows have no c."""
    draw = np.random.default_rng(seed)
    found: dict[str, list[object]] = {name: draw.normal(size=NUM).tolist() for name in ("a", "b", "c", "y")}
    found["c"] = [None if i < 5 else v for i, v in enumerate(found["c"])]
    found["sick"] = [["no", "yes"][i] for i in (draw.random(NUM) < 0.3).astype(int)]
    found["patient"] = [f"p{i}" for i in draw.integers(40, size=NUM)]
    return found


def site(
    folder: Path, table: dict[str, list[object]], name: str = "rows.csv", min_rows: int = 10, **section: str
) -> ClientFile:
    """A client whose data set is such a table."""
    path = folder / name
    if name.endswith("parquet"):
        pq.write_table(pa.table(table), path)
    else:
        lines = zip(*table.values(), strict=True)
        path.write_text(
            "\n".join([",".join(table), *(",".join("" if v is None else str(v) for v in r) for r in lines)])
        )
    dataset = DatasetSection.model_validate({"train": PartitionFile(path=path), **section})
    return ClientFile(state=folder / "state", datasets={"d": dataset}, policy=PolicySection(min_rows=min_rows))


def read(file: ClientFile, schema: DataSchema = BY_RECORD) -> LocalData:
    """Rows that a job trains and is measured on."""
    return load_local_data(file, "d", schema, "va")


def places(data: LocalData, first: int = 2) -> tuple[set[int], set[int]]:
    """Places in the file of the rows to train and to test on."""
    train, test = ({int(v) - first for v in part.row_numbers} for part in (data.train, data.test))
    return train, test


OTHERS = {
    "other features": {"features": ("b",)},
    "another target": {"target": "b", "features": ("a",)},
    "classes": {"target": "sick", "task": LearningTask.BINARY, "classes": ("no", "yes")},
    "another seed": {"seed": 99},
}


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_every_job_on_a_file_holds_out_the_same_rows(tmp_path: Path, changes: dict[str, object], name: str) -> None:
    """Whatever its columns, target and seed are, and from CSV as from Parquet."""
    base = places(read(site(tmp_path, columns())))
    first = 1 if name.endswith("parquet") else 2
    assert places(read(site(tmp_path, columns(), name), replace(BY_RECORD, **changes)), first) == base  # type: ignore[arg-type]  # by name
    assert len(base[1]) == 50


def test_what_a_job_leaves_out_moves_no_row_to_the_other_side(tmp_path: Path) -> None:
    """Rows that a range leaves out are missing on their side, and the others stay where they are."""
    file = site(tmp_path, columns())
    train, test = places(read(file))
    fewer = places(read(file, replace(BY_RECORD, ranges=(ColumnRange(column="a", low=-1.0, high=9.0),))))
    assert fewer[0] < train
    assert fewer[1] <= test


def test_jobs_that_drop_other_gaps_are_no_near_jobs(tmp_path: Path) -> None:
    """They hold out other rows, the same whatever else they use; else few rows would tell them apart."""
    file = site(tmp_path, columns())
    plain, *gaps = (
        places(read(file, replace(BY_RECORD, features=features, missing=MissingRule.DROP_ROWS)))
        for features in (("a",), ("a", "c"), ("c", "b"))
    )
    assert gaps[0] == gaps[1]
    assert len(plain[1] ^ gaps[0][1]) >= 10
    assert len(plain[0] ^ gaps[0][0]) >= 10


def test_jobs_to_which_other_records_are_copies_are_no_near_jobs(tmp_path: Path) -> None:
    """In a table of whole numbers fewer columns make more copies: jobs hold out the same rows, or many others."""
    draw = np.random.default_rng(3)
    tops = {"age": 50, "sex": 2, "pain": 4, "pressure": 10, "chol": 200, "y": 3}
    table: dict[str, list[object]] = {name: draw.integers(top, size=NUM).tolist() for name, top in tops.items()}
    file, features = site(tmp_path, table), tuple(tops)[:-1]
    found = [
        places(read(file, replace(BY_RECORD, features=chosen)))
        for num in (3, 4, 5)
        for chosen in itertools.combinations(features, num)
    ]
    assert len({frozenset(test) for _, test in found}) > 1
    for (train, test), (other_train, other_test) in itertools.combinations(found, 2):
        assert len(train ^ other_train) in (0, *range(10, NUM))
        assert len(test ^ other_test) in (0, *range(10, NUM))


def test_the_order_of_rows_and_columns_does_not_count(tmp_path: Path) -> None:
    """A file that is sorted anew, with its columns in another order, holds the same rows out."""
    table, order = columns(), np.random.default_rng(5).permutation(NUM)
    turned = {name: [table[name][i] for i in order] for name in reversed(table)}
    base, other = read(site(tmp_path, table)).test, read(site(tmp_path, turned, "turned.csv")).test
    assert sorted(base.x[:, 0].tolist()) == sorted(other.x[:, 0].tolist())


def test_copies_in_the_columns_of_a_job_lie_on_one_side(tmp_path: Path) -> None:
    """Rows that other columns tell apart are copies to a job without those; many copies are not held out more often."""
    table = columns()
    for name in ("a", "b", "y"):
        table[name] = [table[name][i % 50] for i in range(NUM)]
    train, test = places(read(site(tmp_path, table)))
    assert not {i % 50 for i in train} & {i % 50 for i in test}
    assert 0.1 * NUM <= len(test) <= 0.4 * NUM


def test_few_different_records_are_dealt_one_by_one(tmp_path: Path) -> None:
    """A table of two yes-or-no columns has equal records by its nature: as many are held out as the fraction says."""
    draw = np.random.default_rng(2)
    table: dict[str, list[object]] = {name: draw.integers(2, size=NUM).tolist() for name in ("a", "b", "y")}
    assert read(site(tmp_path, table)).test.num_rows == 50


GROUPS = {
    "by-record": BY_RECORD,
    "by-content": replace(BY_RECORD, by_record=False),
    "copies-together": regression(copies_together=True),
    "row-by-row": regression(),
}


@pytest.mark.parametrize("schema", GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_a_group_lies_on_one_side_and_in_one_block(tmp_path: Path, schema: DataSchema, name: str) -> None:
    """By each rule of the split; blocks and test rows are of at least so many groups."""
    table = columns()
    data = read(site(tmp_path, table, name, min_rows=5, group="patient"), schema)
    first = 1 if name.endswith("parquet") else 2
    train, test = ({table["patient"][i] for i in part} for part in places(data, first))
    assert not train & test
    assert 5 <= len(test) <= 15
    assert data.block is not None
    patients = np.array([table["patient"][i - first] for i in data.train.row_numbers])
    of_blocks = [set(patients[data.block == block]) for block in np.unique(data.block)]
    assert sum(map(len, of_blocks)) == len(train)
    assert min(map(len, of_blocks)) >= 5


def test_a_column_that_comes_later_moves_no_group(tmp_path: Path) -> None:
    """The name of the group alone orders rows, so the file may grow."""
    table = columns()
    base = places(read(site(tmp_path, table, group="patient")))
    table["new"] = list(range(NUM))
    assert places(read(site(tmp_path, table, group="patient"))) == base


def test_a_gap_in_the_group_is_refused_with_its_line(tmp_path: Path) -> None:
    """The site reads line and remedy, and the operator neither these nor the name of the column."""
    table = columns()
    table["patient"][7] = table["patient"][9] = None
    with pytest.raises(
        DataError, match=r"column 'patient', the group, line 9 \(the first of 2 lines\): no value"
    ) as gap:
        read(site(tmp_path, table, group="patient"))
    assert "patient" not in gap.value.public
    with pytest.raises(
        DataError, match=r"column 'person', the group, is missing; correct `group` of \[datasets\.d\]"
    ) as no:
        read(site(tmp_path, table, group="person"))
    assert "person" not in no.value.public


def test_the_column_of_groups_is_no_feature_unless_the_site_says_so(tmp_path: Path) -> None:
    """A job on it is refused, as a feature and as a target; a site may allow it."""
    table = columns()
    table["patient"] = [int(str(name)[1:]) for name in table["patient"]]
    for changes in ({"features": ("a", "patient")}, {"target": "patient"}):
        schema = replace(BY_RECORD, **changes)
        with pytest.raises(DataError, match=r"column 'patient' names groups.*`group_column` of \[datasets\.d\]"):
            read(site(tmp_path, table, group="patient"), schema)
        assert read(site(tmp_path, table, group="patient", group_column="usable"), schema).train.num_groups < NUM


def test_few_groups_are_refused_and_a_large_one_is_told(tmp_path: Path) -> None:
    """Eight patients are too few for a policy of ten; a patient of most rows is told."""
    table = columns()
    table["patient"] = [i % 8 for i in range(NUM)]
    file = site(tmp_path, table, group="patient")
    with pytest.raises(PolicyError, match=r"fewer groups than policy\.min_groups"):
        refuse_few_groups(file, "d", read(file).train)
    table["patient"] = [i if i % 4 == 0 else "one" for i in range(NUM)]
    assert any(
        "150 of 200 rows are of one group" in note for note in read(site(tmp_path, table, group="patient")).notes
    )


def test_a_test_partition_shares_no_group(tmp_path: Path) -> None:
    """Partitions of a site's own are refused where a patient has rows in both; the operator reads no number."""
    file = site(tmp_path, columns(), group="patient")
    section = file.datasets["d"].model_copy(update={"test": file.datasets["d"].train})
    with pytest.raises(DataError, match="40 groups have rows in the training and in the test partition") as shared:
        read(file.model_copy(update={"datasets": {"d": section}}))
    assert "40" not in shared.value.public


def test_a_stream_has_no_groups(tmp_path: Path) -> None:
    """The client file that names one is refused, with the reason."""
    path = tmp_path / "client.toml"
    path.write_text('[datasets.d]\ngroup = "patient"\ntrain.path = "a.csv"\nstream.path = "b.csv"\n')
    with pytest.raises(ConfigError, match="group does nothing to a stream, whose rows are predicted as they come"):
        load_client_file(path)


def test_an_npz_file_names_groups_by_an_array_or_a_column(tmp_path: Path) -> None:
    """Both give the same split."""
    draw = np.random.default_rng(3)
    x, patient = draw.normal(size=(NUM, 2)), draw.integers(40, size=NUM)
    np.savez(tmp_path / "one.npz", x=x, y=x[:, 0], columns=np.array(["a", "b"]), patient=patient)
    np.savez(tmp_path / "two.npz", x=np.column_stack([x, patient]), y=x[:, 0], columns=np.array(["a", "b", "patient"]))
    found = []
    for name in ("one.npz", "two.npz"):
        section = DatasetSection(train=PartitionFile(path=tmp_path / name), group="patient")
        found.append(places(read(ClientFile(datasets={"d": section}, policy=PolicySection(min_rows=2))), 1))
    assert found[0] == found[1]
    train, test = ({int(patient[i]) for i in part} for part in found[0])
    assert test
    assert not train & test


def test_no_class_lies_wholly_in_front_of_the_cut() -> None:
    """Fewer blocks are held out where else a class, or training, has no rows; by one look at many rows and blocks."""
    draw, num = np.random.default_rng(5), 30_000
    word = draw.permutation(num).astype(np.uint64) + np.uint64(7)
    labels = ["rare" if w < 70 else "often" for w in word]  # all of the rare ones are among the first 63
    rows = PartitionData(
        draw.normal(size=(num, 1)), labels, None, 0, np.arange(1, num + 1), records=Records.of_words(word)
    )
    found = held_out_by_record(rows, 0.4, 10)
    np.testing.assert_array_equal(np.sort(word[found]), np.arange(7, 67))
    assert held_out_by_record(replace(rows, labels=None), 0.4, 10).sum() == 12_000
    few = rows.take(np.flatnonzero(word < 7 + 25))
    assert held_out_by_record(few, 0.4, 10).sum() == 10
    assert not held_out_by_record(few, 0.4, 20).any()
