"""A `[data]` section that a table suggests: types, tasks, and columns that are likely no features."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import ConfigError, DataError
from kernfed.jobs.job_file import JobFile
from kernfed.jobs.toml_text import toml_text
from kernfed_client.commands.check_data import check_data
from kernfed_client.propose import Proposal, propose

NUM = 60


def table() -> dict[str, list[Any]]:
    """Columns of every kind, and everything that is suspicious."""
    random = np.random.default_rng(0)
    age, ill = random.normal(50, 9, NUM), random.integers(0, 2, NUM)
    ward = ["abc"[i % 3] for i in range(NUM)]
    return {
        "row": list(range(NUM)),
        "patient": list(random.permutation(NUM) * 97 + 40_000),
        "name": [f"somebody {i}" for i in range(NUM)],
        "age": [f"{v:.3f}" for v in age],
        "age_again": [f"{v:.3f}" for v in age],
        "ward": ward,
        "ward_code": ["abc".index(w) + 7 for w in ward],
        "smoker": ["" if i % 7 == 0 else ("true" if i % 2 else "false") for i in range(NUM)],
        "seen": [f"2021-0{1 + i % 9}-1{i % 7}" for i in range(NUM)],
        "site": ["here"] * NUM,
        "empty": [""] * NUM,
        "letter": ["dead" if v else "alive" for v in ill],
        "risk": [f"{v + 0.5 * random.random():.4f}" for v in ill],
        "ill": list(ill),
    }


def written(folder: Path, columns: dict[str, list[Any]], more: str = "") -> Path:
    """A client file whose data set has these columns."""
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    (folder / "client.toml").write_text(f'[datasets.heart.train]\npath = "rows.csv"\n{more}')
    return folder / "client.toml"


def suspicions(proposal: Proposal) -> dict[str, str]:
    """Why columns are left out, by their names."""
    return {glance.name: glance.suspicious for glance in proposal.columns if glance.suspicious}


def test_types_and_the_task_follow_from_the_cells(tmp_path: Path) -> None:
    """And a job file takes the section as it is written."""
    found = propose(written(tmp_path, table()))
    assert found.num_rows == NUM
    assert (found.data["task"], found.data["target"]) == ("binary", "ill")
    assert found.data["features"] == ["age", "ward", "smoker", "seen"]
    since = {"kind": "date", "since": "2021-01-01"}
    assert found.data["columns"] == {"ward": "category", "smoker": "boolean", "seen": since}
    assert found.data["missing"] == "indicator"
    assert {g.name: g.gaps for g in found.columns}["smoker"] == 9
    text = 'name = "t"\nmethod = { name = "newton" }\n' + toml_text({"data": found.data})
    assert JobFile.model_validate(tomllib.loads(text)).data is not None


def test_columns_that_are_no_features_are_left_out_and_named(tmp_path: Path) -> None:
    """Each with the reason, of which the notes say the same."""
    found = propose(written(tmp_path, table()))
    says = {
        "row": "number of rows",
        "patient": "identifier",
        "name": "free text",
        "age_again": "same as 'age'",
        "ward_code": "same as 'ward'",
        "site": "same in all rows",
        "empty": "no value",
        "letter": "tells the target",
        "risk": "tells the target",
    }
    told = suspicions(found)
    assert set(told) == set(says)
    for name, part in says.items():
        assert part in told[name]
        assert f"{name} is left out: {told[name]}" in found.notes
    assert "somebody" not in str(found)


def test_other_targets_make_other_tasks(tmp_path: Path) -> None:
    """Words are classes, numbers with many values a regression, and a line tells such a target."""
    columns = table() | {"twice": [f"{2 * float(v):.3f}" for v in table()["age"]]}
    path = written(tmp_path, columns)
    assert propose(path, target="ward").data["task"] == "classification"
    assert "ward_code" in suspicions(propose(path, target="ward"))
    regression = propose(path, "heart", "age")
    assert regression.data["task"] == "regression"
    assert {"age_again", "twice"} <= set(suspicions(regression))


def test_the_client_file_says_how_cells_are_written_and_what_groups_are(tmp_path: Path) -> None:
    """Its names, tokens of gaps and dates count; the column of groups is no feature."""
    columns: dict[str, list[Any]] = {
        "pid": [i // 2 for i in range(NUM)],
        "Tag": [f"{1 + i % 28}.03.2020" for i in range(NUM)],
        "v": ["-9" if i % 4 == 0 else str(i * i % 17) for i in range(NUM)],
        "y": [i * 0.37 % 5 for i in range(NUM)],
    }
    more = 'missing = ["-9"]\ncolumns = { seen = "Tag" }\n[datasets.heart.train.cells]\n'
    more += 'seen = { date_format = "%d.%m.%Y" }\n[datasets.heart]\ngroup = "pid"\n'
    found = propose(written(tmp_path, columns, more))
    assert found.data["features"] == ["seen", "v"]
    assert found.data["columns"] == {"seen": {"kind": "date", "since": "2020-01-01"}}
    assert [g.gaps for g in found.columns] == [0, 0, 15, 0]
    assert "names groups" in suspicions(found)["pid"]


def test_of_few_rows_nothing_is_suspicious_but_one_value(tmp_path: Path) -> None:
    """By chance alone all may differ."""
    few = {name: values[:8] for name, values in table().items() if name in ("row", "name", "site", "ill")}
    assert set(suspicions(propose(written(tmp_path, few)))) == {"site"}


def test_what_cannot_be_proposed_is_told(tmp_path: Path) -> None:
    """With the remedy."""
    path = written(tmp_path, table())
    with pytest.raises(DataError, match=r"'x' is missing; --target takes one of row"):
        propose(path, target="x")
    with pytest.raises(ConfigError, match="no data set 'lung'; it has heart"):
        propose(path, "lung")
    with pytest.raises(DataError, match="no column that looks like a feature"):
        propose(written(tmp_path, {"site": ["here"] * NUM, "ill": [0, 1] * (NUM // 2)}))
    with pytest.raises(ConfigError, match="leave them out"):
        check_data(tmp_path / "job.toml", path, target="ill")


def test_the_command_prints_the_section(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Below the table and the notes; gaps of the target are told."""
    path = written(tmp_path, table() | {"ill": ["", *table()["ill"][1:]]})
    check_data(None, path)
    told = capsys.readouterr().out
    assert 'features = ["age", "ward", "smoker", "seen"]' in told
    assert "1 row lacks the target" in " ".join(told.split())
    assert "the target is the last column, 'ill'" in " ".join(told.split())
