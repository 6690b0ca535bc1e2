"""`kernfed predict` on the heart data."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from kernfed.cli.main import app
from kernfed.errors import ConfigError, DataError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, fingerprint, make_spec
from kernfed.federation.messages.data import LearningTask
from kernfed.models.global_model import GlobalModel, load_model
from kernfed_testing import places

HEART = places.HEART / "data"
COLUMNS = ("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak")


def model_of(task: LearningTask, classes: tuple[str, ...], columns: tuple[str, ...] = COLUMNS) -> GlobalModel:
    frame = pd.read_csv(HEART / "cleveland.csv")
    spec = make_spec(Kernel.GAUSSIAN, FeatureForm.COSINE, len(columns), 3.0, 20, 7)
    outputs = len(classes) if task is LearningTask.CLASSIFICATION else 1
    rng = np.random.default_rng(0)
    return GlobalModel(
        task=task,
        feature_names=columns,
        target="disease",
        classes=classes,
        mean=frame[list(columns)].mean().to_numpy(),
        deviation=frame[list(columns)].std().to_numpy(),
        spec=spec,
        fingerprint=fingerprint(spec),
        weights=rng.normal(size=(spec.num_features, outputs)),
        feature_mean=np.zeros(spec.num_features),
        target_mean=np.full(outputs, 0.4),
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    model_of(LearningTask.BINARY, ("0", "1")).save(tmp_path / "model")
    return tmp_path / "model"


def run(model: Path, data: Path, out: Path, *more: str) -> Result:
    arguments = ["predict", "--model", str(model), "--data", str(data), "--out", str(out), *more]
    return CliRunner().invoke(app, arguments)


def rows(path: Path, **settings: Any) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, **settings))


def test_predictions_do_not_depend_on_the_order_of_columns(model: Path, tmp_path: Path) -> None:
    """Columns are found by name; all that was there is still there, as it was written."""
    content = rows(HEART / "cleveland.csv")
    shuffled = ["oldpeak", "note", *reversed(COLUMNS[:-1]), "disease"]
    with (tmp_path / "new.csv").open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, shuffled, lineterminator="\r\n")
        writer.writeheader()
        writer.writerows({**row, "note": f'00{i}, "x"\n'} for i, row in enumerate(content))
    assert run(model, HEART / "cleveland.csv", tmp_path / "a.csv").exit_code == 0
    assert run(model, tmp_path / "new.csv", tmp_path / "b.csv").exit_code == 0
    first, second = rows(tmp_path / "a.csv"), rows(tmp_path / "b.csv")
    assert [(r["prediction"], r["score"]) for r in first] == [(r["prediction"], r["score"]) for r in second]
    assert {r["prediction"] for r in first} == {"0", "1"}
    assert [r["oldpeak"] for r in second] == [r["oldpeak"] for r in content]
    assert second[7]["note"] == '007, "x"\n'
    frame = pd.read_csv(HEART / "cleveland.csv")
    np.testing.assert_allclose([float(r["score"]) for r in first], load_model(model).predict_scores(frame)[:, 0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.replace("chol", "cholesterol", 1), r"new\.csv: column 'chol' is missing"),
        (
            lambda t: t.replace(",1,4,140,", ",1,4,high,", 1),
            r"new\.csv: column 'trestbps', line 2: text where a number is needed; correct it$",
        ),
        (
            lambda t: t.replace("\n44,1,4,130,", "\n44,1,4,,", 1),
            r"column 'trestbps', line 3.*: no value; correct",
        ),
        (lambda t: t.replace("\n44,1,4,130,", "\n44,1,4,inf,", 1), r"column 'trestbps', line 3: infinite"),
        (
            lambda t: t.replace("\n44,1,4,130,", "\n44,1,4,130,9,", 1),
            r"line 3 has 12 cells but the header has 11",
        ),
        (lambda t: t.replace("sex", "age", 1), r"new\.csv: column 'age' stands 2 times"),
        (lambda t: t.splitlines()[0] + "\n", r"new\.csv: has no rows"),
        (lambda t: "", r"new\.csv: holds no header line"),
        (lambda t: t.replace("disease", "prediction", 1), r"'prediction' is in the way"),
    ],
)
def test_faulty_data_are_refused_with_file_column_and_row(
    model: Path, tmp_path: Path, change: Callable[[str], str], message: str
) -> None:
    """Nothing is written then."""
    (tmp_path / "new.csv").write_text(change((HEART / "va.csv").read_text()))
    result = run(model, tmp_path / "new.csv", tmp_path / "out.csv")
    assert isinstance(result.exception, DataError)
    with pytest.raises(DataError, match=message):
        raise result.exception
    assert not (tmp_path / "out.csv").exists()


def test_rows_with_gaps_are_kept_left_out_or_refused(model: Path, tmp_path: Path) -> None:
    """`blank` keeps each row, `skip` tells the line of each that it keeps; both say which column lacks how many."""
    data = HEART / "va.csv"  # gaps in many rows
    whole = rows(data)
    useful = [i for i, row in enumerate(whole) if all(row[name] for name in COLUMNS)]
    refused = run(model, data, tmp_path / "out.csv")
    assert isinstance(refused.exception, DataError)
    assert "set --missing blank or skip" in str(refused.exception)
    blank = run(model, data, tmp_path / "blank.csv", "--missing", "blank")
    skip = run(model, data, tmp_path / "skip.csv", "--missing", "skip")
    for done in (blank, skip):
        assert done.exit_code == 0
        assert f"{len(whole) - len(useful)} of {len(whole)} rows have no prediction:" in done.stderr
        assert "va.csv: column 'trestbps', line " in done.stderr
        assert f"{len(useful)} rows predicted" in done.stdout
    kept, left = rows(tmp_path / "blank.csv"), rows(tmp_path / "skip.csv")
    assert [{k: r[k] for k in whole[0]} for r in kept] == whole
    assert [i for i, r in enumerate(kept) if r["prediction"]] == useful
    assert [int(r["line"]) for r in left] == [i + 2 for i in useful]
    assert [(r["prediction"], r["score"]) for r in left] == [(kept[i]["prediction"], kept[i]["score"]) for i in useful]
    (tmp_path / "none.csv").write_text(",".join(COLUMNS) + "\n" + "," * (len(COLUMNS) - 1) + "\n")
    none = run(model, tmp_path / "none.csv", tmp_path / "out.csv", "--missing", "skip")
    assert isinstance(none.exception, DataError)
    assert "no row can be predicted" in str(none.exception)
    assert not (tmp_path / "out.csv").exists()


def test_the_rule_of_the_models_job_is_the_default(model: Path, tmp_path: Path) -> None:
    """A job that dropped rows with gaps leaves a model that passes over them; an infinite value is passed over too."""
    dropped = replace(model_of(LearningTask.BINARY, ("0", "1")), job={"missing": "drop-rows"})
    dropped.save(tmp_path / "model")
    text = (HEART / "cleveland.csv").read_text().splitlines()
    (tmp_path / "new.csv").write_text("\n".join([*text[:3], text[3].replace("67,", ",", 1).replace("37,", "inf,", 1)]))
    done = run(tmp_path / "model", tmp_path / "new.csv", tmp_path / "out.csv")
    assert done.exit_code == 0
    assert "1 of 3 rows have no prediction:" in done.stderr
    assert [bool(r["prediction"]) for r in rows(tmp_path / "out.csv")] == [True, True, False]
    assert run(tmp_path / "model", tmp_path / "new.csv", tmp_path / "b.csv", "--missing", "refuse").exit_code != 0


@pytest.mark.slow
def test_parquet_and_standard_streams(model: Path, tmp_path: Path) -> None:
    """The same rows give the same predictions, whatever they are read from."""
    frame = pd.read_csv(HEART / "cleveland.csv")
    frame.to_parquet(tmp_path / "new.parquet")
    assert run(model, HEART / "cleveland.csv", tmp_path / "a.csv").exit_code == 0
    assert run(model, tmp_path / "new.parquet", tmp_path / "b.csv").exit_code == 0
    for mine, other in zip(rows(tmp_path / "a.csv"), rows(tmp_path / "b.csv"), strict=True):
        assert (mine["prediction"], mine["score"]) == (other["prediction"], other["score"])
    program = "from kernfed.cli.main import main; main()"
    command = [sys.executable, "-c", program, "predict", "--model", str(model), "--data", "-", "--out", "-"]
    content = (HEART / "cleveland.csv").read_bytes()
    piped = subprocess.run(command, input=content, capture_output=True, check=True)  # our own command
    assert piped.stdout == (tmp_path / "a.csv").read_bytes()
    assert piped.stderr.decode() == f"-: {len(frame)} rows predicted\n"


def test_a_device_that_is_not_there_is_said(model: Path, tmp_path: Path) -> None:
    """The option is named."""
    result = run(model, HEART / "cleveland.csv", tmp_path / "out.csv", "--device", "cuda:99")
    assert isinstance(result.exception, ConfigError)
    assert "--device cuda:99" in str(result.exception)


def test_every_task_has_its_columns(tmp_path: Path) -> None:
    """Regression: a number. Classes: the name, and a score for each."""
    model_of(LearningTask.REGRESSION, ()).save(tmp_path / "r")
    assert run(tmp_path / "r", HEART / "cleveland.csv", tmp_path / "r.csv").exit_code == 0
    assert list(rows(tmp_path / "r.csv")[0])[-2:] == ["disease", "prediction"]
    model_of(LearningTask.CLASSIFICATION, ("low", "mid", "high")).save(tmp_path / "c")
    assert run(tmp_path / "c", HEART / "cleveland.csv", tmp_path / "c.csv").exit_code == 0
    for row in rows(tmp_path / "c.csv"):
        scores = {name: float(row[f"score_{name}"]) for name in ("low", "mid", "high")}
        assert row["prediction"] == max(scores, key=scores.__getitem__)


def test_the_data_may_come_through_a_pipe(model: Path, tmp_path: Path) -> None:
    """The file is opened once, so that what another program writes can be read."""
    os.mkfifo(tmp_path / "pipe")
    content = (HEART / "cleveland.csv").read_bytes()
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(content,))
    writer.start()
    assert run(model, tmp_path / "pipe", tmp_path / "a.csv").exit_code == 0
    writer.join()
    assert run(model, HEART / "cleveland.csv", tmp_path / "b.csv").exit_code == 0
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_semicolons_and_encodings_are_declared(model: Path, tmp_path: Path) -> None:
    """What goes in with semicolons comes out with them."""
    text = (HEART / "cleveland.csv").read_text().replace(",", ";").replace("disease", "krank\u00e4")
    (tmp_path / "new.csv").write_bytes(text.encode("latin-1"))
    wrong = run(model, tmp_path / "new.csv", tmp_path / "out.csv", "--delimiter", ";")
    assert isinstance(wrong.exception, DataError)
    done = run(model, tmp_path / "new.csv", tmp_path / "out.csv", "--delimiter", ";", "--encoding", "latin-1")
    assert done.exit_code == 0
    assert "krank\u00e4" in rows(tmp_path / "out.csv", delimiter=";")[0]


def test_a_folder_without_a_model_is_said(tmp_path: Path) -> None:
    """The error names the folder's file."""
    result = run(tmp_path, HEART / "cleveland.csv", tmp_path / "out.csv")
    assert isinstance(result.exception, ConfigError)


def test_a_note_of_the_model_is_told_to_who_predicts(tmp_path: Path) -> None:
    """On the error stream, so that the output stays as it was; the predictions are written all the same."""
    made = replace(model_of(LearningTask.BINARY, ("0", "1")), job={"note": "this is nobody's personal model"})
    made.save(tmp_path / "model")
    done = run(tmp_path / "model", HEART / "cleveland.csv", tmp_path / "out.csv")
    assert "this is nobody's personal model" in done.stderr
    assert len(rows(tmp_path / "out.csv")) == len(pd.read_csv(HEART / "cleveland.csv"))
