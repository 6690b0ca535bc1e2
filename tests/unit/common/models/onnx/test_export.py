"""Tests of `kernfed.models.onnx`, and of the command: onnxruntime computes what the model does."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from typer.testing import CliRunner

from kernfed.cli.main import app
from kernfed.columns.plan import ColumnKind, ColumnPlan, DatePart, MissingRule, UnknownRule
from kernfed.errors import ConfigError, DataError
from kernfed.features import spec as features
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, make_spec
from kernfed.federation.messages.data import LearningTask
from kernfed.maths.losses import Link
from kernfed.models import onnx
from kernfed.models.base import Model
from kernfed.models.estimator import Classifier, estimator
from kernfed.models.network_model import NetworkModel
from kernfed.models.network_spec import NetworkKind, initial_parameters, make_network_spec
from kernfed.models.onnx import export
from kernfed.models.onnx.export import as_onnx, difference
from kernfed.models.onnx_file import export_onnx
from kernfed_testing.models import linear_model, make_model

REGRESSION, BINARY, CLASSES = LearningTask.REGRESSION, LearningTask.BINARY, LearningTask.CLASSIFICATION
NAMES = {REGRESSION: (), BINARY: ("no", "yes"), CLASSES: ("low", "mid", "high")}
DRAW = np.random.default_rng(3)
COLUMNS = (
    ColumnPlan(
        name="age", kind=ColumnKind.NUMBER, missing=MissingRule.MEDIAN, fill=50.0, clip=(0.0, 110.0), settled=True
    ),
    ColumnPlan(name="dose", kind=ColumnKind.NUMBER, missing=MissingRule.INDICATOR, fill=0.7, log1p=True, settled=True),
    ColumnPlan(
        name="rank",
        kind=ColumnKind.NUMBER,
        missing=MissingRule.MEAN,
        fill=0.5,
        rank=True,
        knots=(0.0, 1.0, 1.0, 1.0, 4.0, 9.0),
        settled=True,
    ),
    ColumnPlan(
        name="site of pain",
        kind=ColumnKind.CATEGORY,
        missing=MissingRule.INDICATOR,
        levels=("head", "höhe"),
        unknown=UnknownRule.OTHER,
        settled=True,
    ),
    ColumnPlan(
        name="sex", kind=ColumnKind.CATEGORY, missing=MissingRule.REFUSE, levels=("female", "male"), settled=True
    ),
    ColumnPlan(
        name="stage",
        kind=ColumnKind.ORDINAL,
        missing=MissingRule.MEAN,
        fill=1.25,
        levels=("I", "II", "III"),
        unknown=UnknownRule.MISSING,
        settled=True,
    ),
    ColumnPlan(name="smoker", kind=ColumnKind.BOOLEAN, missing=MissingRule.INDICATOR, fill=0.2, settled=True),
    ColumnPlan(
        name="seen",
        kind=ColumnKind.DATE,
        missing=MissingRule.INDICATOR,
        fill=10.0,
        since="2020-02-28",
        parts=(DatePart.DAYS, DatePart.MONTH, DatePart.WEEKDAY),
        settled=True,
    ),
)


def run(model: Model, inputs: dict[str, Any]) -> dict[str, Any]:
    """Outputs by name."""
    session = onnxruntime.InferenceSession(as_onnx(model).SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, inputs), strict=True))


@pytest.mark.parametrize(
    ("kernel", "form"),
    [
        *(
            (kernel, FeatureForm.NYSTROEM)
            for kernel in (Kernel.GAUSSIAN, Kernel.LAPLACE, Kernel.MATERN32, Kernel.MATERN52)
        ),
        *((Kernel.LAPLACE, form) for form in (FeatureForm.COSINE, FeatureForm.SINE_COSINE, FeatureForm.HALF_COSINE)),
        (Kernel.LINEAR, FeatureForm.COSINE),
        (Kernel.POLYNOMIAL2, FeatureForm.COSINE),
    ],
)
@pytest.mark.parametrize("task", LearningTask)
def test_every_feature_map_agrees(kernel: Kernel, form: FeatureForm, task: LearningTask) -> None:
    """Scores are those of the model to 1e-10, whatever the map, with a lengthscale per column."""
    made = make_spec(kernel, form, 3, (0.5, 1.0, 2.0), 20, 7)
    size = made.num_features
    outputs = 3 if task is CLASSES else 1
    model = make_model(
        task,
        spec=made,
        fingerprint=features.fingerprint(made),
        weights=DRAW.standard_normal((size, outputs)),
        feature_mean=DRAW.standard_normal(size),
    )
    assert difference(model, as_onnx(model).SerializeToString()) < 1e-10  # type: ignore[operator]  # onnxruntime is here


@pytest.mark.parametrize(
    ("kind", "widths", "image", "batch_norm", "digits"),
    [
        (NetworkKind.LINEAR, (), (), False, 1e-12),
        (NetworkKind.MLP, (8, 5), (), False, 1e-12),
        (NetworkKind.MLP, (8, 5), (), True, 1e-12),
        (NetworkKind.CNN, (3, 4, 6), (1, 12, 13), False, 1e-5),
        (NetworkKind.CNN, (3, 4, 6), (2, 12, 13), True, 1e-5),
    ],
)
@pytest.mark.parametrize("task", LearningTask)
def test_every_network_agrees(
    kind: NetworkKind,
    widths: tuple[int, ...],
    image: tuple[int, ...],
    batch_norm: bool,
    digits: float,
    task: LearningTask,
) -> None:
    """Networks too, those of convolutions in float32 as they compute."""
    d, outputs = int(np.prod(image)) or 3, 3 if task is CLASSES else 1
    d = d if image else 3
    network = make_network_spec(kind, task, d, outputs, widths, image, batch_norm)
    model = NetworkModel(
        task=task,
        feature_names=tuple(f"x{i}" for i in range(d)),
        target="y",
        classes=NAMES[task],
        mean=DRAW.standard_normal(d),
        deviation=DRAW.uniform(0.5, 2, d),
        network=network,
        parameters=np.abs(initial_parameters(network, 3)) + DRAW.uniform(-0.2, 0.3, network.num_parameters).clip(0),
        target_mean=np.full(outputs, 2.0 if task is REGRESSION else 0.0),
        target_deviation=np.full(outputs, 3.0 if task is REGRESSION else 1.0),
    )
    assert difference(model, as_onnx(model).SerializeToString()) < digits  # type: ignore[operator]  # onnxruntime is here


@pytest.mark.parametrize("link", [Link.IDENTITY, Link.EXPONENTIAL])
def test_columns_of_every_kind_agree(link: Link) -> None:
    """Limits, logarithms, ranks, levels, truth, parts of dates, and what takes the place of gaps."""
    model = linear_model(COLUMNS, link=link)
    assert difference(model, as_onnx(model).SerializeToString(), 2000) < 1e-12  # type: ignore[operator]  # onnxruntime is here


def test_every_month_and_weekday_of_a_date() -> None:
    """Days of four hundred years, leap days and days before 1970 among them, are of the month that they are of."""
    plan = replace(COLUMNS[-1], parts=(DatePart.MONTH, DatePart.WEEKDAY), missing=MissingRule.REFUSE)
    model = linear_model((plan,))
    days = np.concatenate([np.arange(-200_000, 50_000, 17), np.arange(-200, 900)])
    frame = pd.DataFrame({"seen": (np.datetime64("1970-01-01", "D") + days).astype(str).astype(object)})
    found = run(model, {"seen": days[:, None].astype(np.float64)})["scores"]
    assert np.allclose(found, model.predict_scores(frame), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("age", np.inf),
        ("age", -np.inf),
        ("dose", -1.5),
        ("sex", "divers"),
        ("sex", ""),
        ("smoker", 0.5),
    ],
)
def test_what_the_model_refuses_is_no_number(column: str, cell: Any) -> None:
    """A row that the model refuses has NaN scores and no class; the row beside it is predicted."""
    model = linear_model(COLUMNS, LearningTask.BINARY)
    good = {"age": 40.0, "dose": 1.0, "rank": 1.0, "site of pain": "head", "sex": "male", "stage": "II", "smoker": 1.0}
    inputs = {
        name: np.array([[value], [value]], dtype=object if isinstance(value, str) else float)
        for name, value in good.items()
    }
    inputs["seen"] = np.array([[18_000.0], [18_000.0]])
    inputs[column][1, 0] = cell
    frame = pd.DataFrame({name: values[:, 0] for name, values in inputs.items()} | {"seen": ["2019-04-14"] * 2})
    found = run(model, inputs)
    assert np.isfinite(found["scores"][0]).all()
    assert np.isnan(found["scores"][1]).all()
    assert np.isnan(found["probabilities"][1]).all()
    assert found["prediction"].tolist()[1] == ""
    if cell != "":
        with pytest.raises(DataError):
            model.predict_scores(frame)


@pytest.mark.parametrize("cell", [np.nan, np.inf])
def test_a_refused_row_of_several_classes_has_no_probabilities(cell: float) -> None:
    """They are NaN, and not the same for each class."""
    found = run(make_model(CLASSES), {"rows": np.array([[50.0, 1.7, 200.0], [50.0, cell, 200.0]])})
    assert np.isfinite(found["probabilities"][0]).all()
    assert np.isnan(found["probabilities"][1]).all()
    assert found["prediction"].tolist()[1] == ""


def test_columns_may_have_the_names_of_results() -> None:
    """Those in between are called otherwise; the name of an output is refused with the remedy."""
    columns = tuple(replace(COLUMNS[0], name=name) for name in ("constant_0", "isnan_0", "concat_9"))
    model = linear_model(columns)
    assert difference(model, as_onnx(model).SerializeToString()) < 1e-12  # type: ignore[operator]  # onnxruntime is here
    with pytest.raises(ConfigError, match="column 'scores' has the name of an output"):
        as_onnx(linear_model((replace(COLUMNS[0], name="scores"),)))


@pytest.mark.parametrize("task", [BINARY, CLASSES])
def test_classes_and_probabilities_are_those_of_the_model(task: LearningTask, tmp_path: Path) -> None:
    """Names of classes, and probabilities of least squares also where no score is above 0."""
    model = make_model(task)
    x = DRAW.standard_normal((300, 3)) * model.deviation * 3 + model.mean
    found, wanted = run(model, {"rows": x}), estimator(model, labels="text")
    assert isinstance(wanted, Classifier)
    assert found["prediction"].tolist() == model.predict(x).tolist()
    order = [list(model.classes).index(name) for name in wanted.classes_]
    assert np.allclose(found["probabilities"][:, order], wanted.predict_proba(x), rtol=0, atol=1e-12)
    assert np.allclose(found["probabilities"].sum(axis=1), 1.0)


def test_names_of_results_are_no_names_of_columns() -> None:
    """A column may be called as a result within the graph is; one that is called as an output is refused."""
    number = ColumnPlan(name="", kind=ColumnKind.NUMBER, missing=MissingRule.MEAN, settled=True)
    columns = tuple(replace(number, name=name) for name in ("constant_0", "isnan_0", "constant_0_", "probabilities"))
    model = linear_model(columns)
    assert difference(model, as_onnx(model).SerializeToString()) < 1e-10  # type: ignore[operator]  # onnxruntime is here
    with pytest.raises(ConfigError, match="column 'scores' has the name of an output of the file"):
        as_onnx(linear_model((replace(number, name="scores"), *columns)))


@pytest.mark.parametrize("task", [BINARY, CLASSES])
def test_a_row_that_is_refused_has_no_probabilities(task: LearningTask) -> None:
    """NaN for each class, as the scores are, and not the same share for all; so too where the numbers are too large."""
    model = make_model(task)
    found = run(model, {"rows": np.array([[50.0, 1.7, 200.0], [np.nan, 1.7, 200.0], [-1e308, 1e308, -1e308]])})
    assert np.isfinite(found["probabilities"][0]).all()
    assert np.isnan(found["probabilities"][1:]).all()
    with pytest.raises(
        DataError, match=r"row 1 \(counted from 1\): its numbers are too far from those of the training"
    ):
        model.predict(np.array([[-1e308, 1e308, -1e308]]))


def test_an_infinite_score_is_none() -> None:
    """Of an exponential link beyond float64 the file has NaN, and the model refuses the row."""
    model = linear_model((COLUMNS[4],), link=Link.EXPONENTIAL, target_mean=np.array([1e4]))
    assert np.isnan(run(model, {"sex": np.array([["male"]], dtype=object)})["scores"]).all()
    with pytest.raises(DataError, match="row 1"):
        model.predict(pd.DataFrame({"sex": ["male"]}))


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A folder that is not there is no fault in kernfed."""
    with pytest.raises(ConfigError, match="cannot be written: No such file"):
        export_onnx(make_model(), tmp_path / "nowhere" / "model.onnx")


def test_the_file_says_what_it_is(tmp_path: Path) -> None:
    """Target, task, columns, classes and job stand in it; the same model gives the same bytes."""
    model = make_model(BINARY, job={"name": "heart", "note": "kept apart"})
    told = export_onnx(model, tmp_path / "a.onnx")
    export_onnx(model, tmp_path / "b.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert (told.inputs, told.outputs) == (("rows",), ("prediction", "probabilities", "scores"))
    facts = onnxruntime.InferenceSession(tmp_path / "a.onnx").get_modelmeta().custom_metadata_map
    assert json.loads(facts["columns"]) == list(model.feature_names)
    assert json.loads(facts["classes"]) == list(model.classes)
    assert json.loads(facts["job"])["name"] == "heart"


def test_a_file_that_computes_something_else_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is compared with the model first, and is not left behind where they differ."""
    monkeypatch.setattr(export, "difference", lambda *_: 1e-3)
    with pytest.raises(ConfigError, match=r"0\.001 of their size off"):
        export_onnx(make_model(REGRESSION), tmp_path / "a.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("task", LearningTask)
def test_the_command_writes_a_file_for_a_saved_model(task: LearningTask, tmp_path: Path) -> None:
    """It tells inputs and outputs, and how far the file is from the model."""
    make_model(task).save(tmp_path)
    told = CliRunner().invoke(
        app, ["model", "export", "--model", str(tmp_path), "--onnx", str(tmp_path / "heart.onnx")]
    )
    assert told.exit_code == 0
    assert "inputs: rows\noutputs: prediction, " in told.output
    assert "onnxruntime computes the model's scores" in told.output
    assert onnxruntime.InferenceSession(tmp_path / "heart.onnx").get_inputs()[0].shape == ["rows", 3]


def test_a_package_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without onnx nothing is written, and the remedy is said; without onnxruntime the file is not compared."""
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "onnxruntime", None)
        assert export_onnx(make_model(), tmp_path / "a.onnx").apart is None
    monkeypatch.delattr(onnx, "export")
    for name in ("export", "cells", "graph", "scores"):
        monkeypatch.delitem(sys.modules, f"{onnx.__name__}.{name}")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ConfigError, match=r"pip install 'kernfed\[onnx\]'"):
        export_onnx(make_model(), tmp_path / "b.onnx")
    assert not (tmp_path / "b.onnx").exists()


def test_numbers_that_leave_no_score_are_refused() -> None:
    """A row so far out that float64 has no score of it is named; an integer beyond float64 is no number."""
    columns = (ColumnPlan(name="x", kind=ColumnKind.NUMBER, missing=MissingRule.REFUSE, settled=True),)
    model = linear_model(columns, weights=np.array([[1e10]]))
    with pytest.raises(DataError, match=r"row 2 .* too far from those of the training rows"):
        model.predict_scores(np.array([[1.0], [1e308]]))
    with pytest.raises(DataError):
        model.predict_scores(np.array([[10**400]], dtype=object))
