"""Tests of `kernfed.models.global_model`: save, load, check, predict."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load, save

import kernfed
from kernfed.errors import ConfigError, DataError
from kernfed.federation.messages.data import LearningTask
from kernfed.models.global_model import sha256
from kernfed.tensors.feature_maps import FeatureMap
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.models import frame, make_model


@pytest.mark.parametrize("task", LearningTask)
def test_a_saved_model_predicts_as_before(task: LearningTask, tmp_path: Path) -> None:
    """Scores survive saving and loading bit for bit, and follow the model's formula."""
    model = make_model(task)
    model.save(tmp_path / "new" / "folder")
    again = kernfed.load_model(tmp_path / "new" / "folder")
    scores = again.predict_scores(frame())
    assert np.array_equal(scores, model.predict_scores(frame()))
    x = (frame().to_numpy(dtype=float) - model.mean) / model.deviation
    phi = FeatureMap(model.spec)(torch.from_numpy(x)).numpy()
    want = (phi - model.feature_mean) @ model.weights + model.target_mean
    np.testing.assert_allclose(scores, want, rtol=0, atol=1e-12)
    predicted = again.predict(frame())
    if task is LearningTask.REGRESSION:
        assert np.array_equal(predicted, scores[:, 0])
    elif task is LearningTask.BINARY:
        assert predicted.tolist() == ["yes" if s >= 0.5 else "no" for s in scores[:, 0]]
    else:
        assert predicted.tolist() == ["abc"[i] for i in scores.argmax(axis=1)]
    assert again.job == model.job


def test_columns_go_by_name() -> None:
    """Order does not matter, and columns that the model does not know are left alone."""
    data = frame()
    shuffled = data.assign(extra="text")[["chol", "extra", "age", "höhe"]]
    model = make_model()
    assert np.array_equal(model.predict_scores(shuffled), model.predict_scores(data))
    assert np.array_equal(model.predict_scores(data.to_numpy()), model.predict_scores(data))


def test_no_rows_give_no_predictions() -> None:
    """An empty frame is not an error."""
    assert make_model().predict(frame(0)).shape == (0,)
    assert make_model().predict_scores(frame(0)).shape == (0, 3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (frame().drop(columns="höhe"), "'höhe' is missing"),
        (pd.concat([frame(), frame()[["age"]]], axis=1), "'age' is there 2 times"),
        (frame().assign(age=["1", "2", "x", "4", "5", "6", "7"]), "'age', row 1 .*not a number"),
        (frame().assign(age=pd.Series([1, 2, None, 4, 5, 6, 7])), "'age', row 3 .*missing"),
        (frame().assign(age=pd.array([1, 2, 3, 4, 5, 6, None], dtype="Int64")), "'age', row 7 .*missing"),
        (frame().assign(chol=[1, 2, 3, 4, np.inf, 6, 7]), "'chol', row 5 .*infinite"),
        (frame().assign(chol=pd.Series([1, 2, None, "high", 5, 6, 7])), "'chol', row 4 .*not a number"),
        (np.zeros((2, 4)), "shape"),
        (np.zeros(3), "shape"),
        ([["a", "b", "c"]], "not numbers"),
    ],
)
def test_unfit_data_are_refused_by_column_and_row(data: object, message: str) -> None:
    """What the model cannot use is named."""
    with pytest.raises(DataError, match=message):
        make_model().predict(data)  # type: ignore[arg-type]  # what is no table is refused


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    """Files of equal models are equal, saving over an old model replaces it, nothing else stays behind."""
    make_model(LearningTask.REGRESSION).save(tmp_path / "one")
    for folder in ("one", "two"):
        make_model().save(tmp_path / folder)
    names = ["model.json", "model.safetensors"]
    for folder in ("one", "two"):
        assert sorted(p.name for p in (tmp_path / folder).iterdir()) == names
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_identity_is_what_predictions_depend_on(tmp_path: Path) -> None:
    """`sha256` ignores where the model comes from and sees one bit of a weight."""
    model = make_model()
    weights = model.weights.copy()
    weights[3, 1] = np.nextafter(weights[3, 1], 9)
    variants = {"same": model, "job": make_model(job={"name": "other"}), "bit": make_model(weights=weights)}
    for name, variant in variants.items():
        variant.save(tmp_path / name)
    digests = {name: sha256(tmp_path / name) for name in variants}
    assert digests["same"] == digests["job"] != digests["bit"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": np.zeros((20, 2))}, "weights has shape"),
        ({"weights": np.full((20, 3), np.nan)}, "weights holds NaN"),
        ({"mean": np.zeros(2)}, "mean has shape"),
        ({"deviation": np.array([1.0, 0.0, 1.0])}, "deviation"),
        ({"classes": ("a", "b")}, "weights has shape"),
        ({"classes": ("a", "a", "b")}, "classes"),
        ({"classes": ()}, "classes"),
        ({"feature_names": ("age", "age", "chol")}, "feature names"),
        ({"fingerprint": "0" * 64}, "fingerprints differ"),
        ({"spec": dataclasses.replace(make_model().spec, seed=5)}, "fingerprints differ"),
        ({"spec": dataclasses.replace(make_model().spec, num_features=19)}, "gives 20"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    """A model is checked when it is made, so also when it is loaded."""
    with pytest.raises(ConfigError, match=message):
        make_model(**changes)


def edit_facts(folder: Path, key: str, value: object) -> None:
    facts = json.loads((folder / "model.json").read_text())
    if value is None:
        del facts[key]
    else:
        facts[key] = value
    (folder / "model.json").write_text(json.dumps(facts))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("task", "guess", "task"),
        ("target", None, "target"),
        ("surprise", 1, "surprise"),
        ("format", "kernfed.model/2", "format"),
        ("classes", ["a", "b"], "weights has shape"),
        ("fingerprint", "0" * 64, "fingerprints differ"),
        ("arrays_sha256", "0" * 64, "digests differ"),
        ("features", {"kernel": "gaussian"}, "features.form"),
    ],
)
def test_an_edited_description_is_refused(tmp_path: Path, key: str, value: object, message: str) -> None:
    """Errors name the file and the key."""
    make_model().save(tmp_path)
    edit_facts(tmp_path, key, value)
    with pytest.raises(ConfigError, match=message) as caught:
        kernfed.load_model(tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "pickle"])
def test_damaged_files_are_refused(tmp_path: Path, name: str, damage: str) -> None:
    """A missing, empty, cut or foreign file is an error that names it, and is never unpickled."""
    make_model().save(tmp_path)
    path = tmp_path / name
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes({"empty": b"", "cut": path.read_bytes()[:-9], "pickle": b"\x80\x04cos\nsystem\n."}[damage])
    with pytest.raises(ConfigError, match=name):
        kernfed.load_model(tmp_path)


@pytest.mark.parametrize("change", ["dtype", "extra", "not-safetensors"])
def test_arrays_are_checked_even_when_the_digest_fits(tmp_path: Path, change: str) -> None:
    """Another type, another set of arrays or no arrays at all are refused."""
    import hashlib

    make_model().save(tmp_path)
    path = tmp_path / "model.safetensors"
    arrays = load(path.read_bytes())
    if change == "dtype":
        data = save({name: array.astype(np.float32) for name, array in arrays.items()})
    elif change == "extra":
        data = save(arrays | {"more": np.zeros(1)})
    else:
        data = b"\xff" * 100
    path.write_bytes(data)
    edit_facts(tmp_path, "arrays_sha256", hashlib.sha256(data).hexdigest())
    with pytest.raises(ConfigError, match=r"model\.safetensors"):
        kernfed.load_model(tmp_path)


@pytest.mark.slow
def test_importing_kernfed_is_light() -> None:
    """`import kernfed` loads nothing heavy, and loading a model needs no torch, no pandas and no scikit-learn."""
    code = (
        "import sys, kernfed; assert 'numpy' not in sys.modules; kernfed.load_model; assert kernfed.__version__; "
        "assert not {'torch', 'pandas', 'sklearn'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], timeout=LIMIT_S, check=True)
    with pytest.raises(AttributeError, match="nothing"):
        kernfed.nothing  # noqa: B018
