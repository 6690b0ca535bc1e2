"""Tests of `kernfed.models.estimator`: a model inside scikit-learn, and what scripts of before asked of it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import permutation_importance
from sklearn.metrics import get_scorer, r2_score
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.validation import check_is_fitted

import kernfed
from kernfed.errors import ConfigError, DataError
from kernfed.federation.messages.data import LearningTask
from kernfed.models.estimator import Classifier, Estimator, Regressor, estimator
from kernfed.models.global_model import GlobalModel
from kernfed.models.network_model import NetworkModel
from kernfed.models.network_spec import NetworkKind, make_network_spec
from kernfed_testing.models import frame, make_model

UNFITTED = {
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
}
"""scikit-learn's checks of estimators that do not fit one."""


def saved(folder: Path, task: LearningTask, **changes: Any) -> Estimator:
    """A model as it comes back from its files."""
    make_model(task, **changes).save(folder)
    return kernfed.load_model(folder)


@pytest.mark.filterwarnings("ignore:Estimator .* does not inherit from `sklearn.base.BaseEstimator`")
@pytest.mark.parametrize("task", LearningTask)
def test_scikit_learn_takes_it_for_a_fitted_estimator(task: LearningTask, tmp_path: Path) -> None:
    """Kind, columns, parameters and copies are as expected, and all checks of scikit-learn that fit nothing pass."""
    found = saved(tmp_path, task)
    assert is_regressor(found) is (task is LearningTask.REGRESSION)
    assert is_classifier(found) is (task is not LearningTask.REGRESSION)
    assert hasattr(found, "predict_proba") is is_classifier(found)
    check_is_fitted(found)
    assert found.feature_names_in_.tolist() == ["age", "höhe", "chol"]
    assert found.n_features_in_ == 3
    copy = clone(found).set_params(device="cpu")
    assert np.array_equal(copy.predict(frame()), found.predict(frame()))
    checks = [(check.func.__name__, run, check) for run, check in estimator_checks_generator(found)]
    assert {name for name, _, _ in checks} >= UNFITTED
    for name, run, check in checks:
        if name in UNFITTED:
            check(run)


@pytest.mark.parametrize("task", LearningTask)
def test_it_works_inside_scikit_learn(task: LearningTask, tmp_path: Path) -> None:
    """In a pipeline, under permutation importance, and frozen in cross-validation it predicts as by itself."""
    outputs = 3 if task is LearningTask.CLASSIFICATION else 1
    found, rows = saved(tmp_path, task, feature_mean=np.zeros(20), target_mean=np.full(outputs, 0.5)), frame(40)
    y = found.predict(rows)
    pipe = make_pipeline(FunctionTransformer(), found)
    assert np.array_equal(pipe.predict(rows), y)
    assert pipe.score(rows, y) == 1.0
    assert "kernfed" in repr(pipe)
    assert "kernfed" in pipe._repr_html_()
    importance = permutation_importance(found, rows, y, n_repeats=2, random_state=0).importances_mean
    assert (importance > 0).any()
    assert cross_val_score(FrozenEstimator(found), rows, y, cv=2).tolist() == [1.0, 1.0]


def test_classes_have_the_type_of_the_target_and_are_sorted(tmp_path: Path) -> None:
    """Columns of probabilities, decisions and scorers follow them, whichever class the job called the positive one."""
    rows = frame(200)
    found = saved(tmp_path, LearningTask.BINARY, classes=("1", "0"), target_mean=np.array([0.5]))
    assert found.classes == ("1", "0")
    assert found.classes_.tolist() == [0, 1]
    scores = found.predict_scores(rows)[:, 0]  # of class 0
    assert found.predict(rows).tolist() == [0 if score >= 0.5 else 1 for score in scores]
    proba = found.predict_proba(rows)
    assert np.array_equal(proba[:, 0], np.clip(scores, 0, 1))
    assert np.array_equal(proba.sum(axis=1), np.ones(200))
    assert np.array_equal(found.decision_function(rows), 0.5 - scores)
    y = (scores < np.median(scores)).astype(int)
    assert get_scorer("roc_auc")(found, rows, y) == 1.0
    calibrated = CalibratedClassifierCV(FrozenEstimator(found), cv=2).fit(rows, y)
    assert calibrated.classes_.tolist() == [0, 1]
    assert np.corrcoef(calibrated.predict_proba(rows)[:, 1], y)[0, 1] > 0.5


def test_of_several_classes_the_one_that_is_predicted_is_the_most_probable(tmp_path: Path) -> None:
    """Least-squares scores of any size become probabilities that keep the largest, also where all are below 0."""
    rows = frame(200)
    found = saved(tmp_path, LearningTask.CLASSIFICATION, classes=("2", "10", "1"), target_mean=np.array([-2.0, 0, -1]))
    assert found.classes_.tolist() == [1, 2, 10]
    assert (found.predict_scores(rows).max(axis=1) < 0).any()
    proba = found.predict_proba(rows)
    assert proba.min() >= 0
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    assert np.array_equal(found.classes_[proba.argmax(axis=1)], found.predict(rows))
    assert np.array_equal(found.classes_[found.decision_function(rows).argmax(axis=1)], found.predict(rows))


def test_scores_are_those_of_scikit_learn(tmp_path: Path) -> None:
    """R² and accuracy with weights; the text of a class is the class; what does not fit is refused in words."""
    rows = frame(30)
    regressor = saved(tmp_path / "r", LearningTask.REGRESSION)
    y, weights = regressor.predict(rows) + np.arange(30) / 30, np.arange(1, 31)
    want = r2_score(y, regressor.predict(rows), sample_weight=weights)
    assert regressor.score(rows, y, sample_weight=weights) == pytest.approx(want, rel=1e-12)
    assert regressor.score(rows, np.zeros(30)) == 0.0
    with pytest.raises(DataError, match="29 targets for 30 rows"):
        regressor.score(rows, y[:-1])
    with pytest.raises(DataError, match="no number"):
        regressor.score(rows, ["a"] * 30)
    classifier = saved(tmp_path / "c", LearningTask.BINARY, classes=("0", "1"))
    right = classifier.predict(rows)
    wrong = np.where(np.arange(30) < 10, 1 - right, right)
    assert classifier.score(rows, wrong) == pytest.approx(20 / 30)
    assert classifier.score(rows, wrong.astype(str)) == pytest.approx(20 / 30)
    assert classifier.score(rows, wrong, sample_weight=np.arange(30) >= 10) == 1.0
    with pytest.raises(DataError, match="no value of the target"):
        classifier.score(rows, ["yes"] * 30)
    with pytest.raises(DataError, match="no rows"):
        classifier.score(frame(0), [])


def test_scripts_of_before_run(tmp_path: Path) -> None:
    """Parts of the model have their names, `labels` gives names of classes, and what is not there is said."""
    model = make_model(LearningTask.BINARY, classes=("0", "1"))
    found = saved(tmp_path, LearningTask.BINARY, classes=("0", "1"))
    assert isinstance(found.model, GlobalModel)
    assert np.array_equal(found.weights, model.weights)
    assert found.job == model.job
    assert np.array_equal(found.predict_scores(frame()), model.predict_scores(frame(), device="cpu"))
    text = kernfed.load_model(tmp_path, labels="text")
    assert text.predict(frame()).tolist() == model.predict(frame()).tolist()
    found.save(tmp_path / "again")
    assert (tmp_path / "again" / "model.json").read_bytes() == (tmp_path / "model.json").read_bytes()
    with pytest.raises(AttributeError, match="'Classifier' object has no attribute 'wieghts'"):
        found.wieghts  # noqa: B018
    same = pickle.loads(pickle.dumps(found))  # as joblib moves estimators between its own processes
    assert np.array_equal(same.predict(frame()), found.predict(frame()))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda found: found.fit(frame(), np.zeros(7)), "FrozenEstimator"),
        (lambda found: found.set_params(depth=3), "'depth' is no parameter of the estimator; it has model, labels"),
        (lambda found: estimator(found.model, labels=[1, 2]), "give one for each of the model's classes no, yes"),
        (lambda found: found.predict(frame().drop(columns="age")), "'age' is missing"),
    ],
)
def test_wrong_uses_are_refused_in_a_sentence(wrong: Any, says: str) -> None:
    """Each says what is wrong, and the remedy."""
    with pytest.raises((ConfigError, DataError), match=says):
        wrong(estimator(make_model(LearningTask.BINARY)))


def test_networks_are_estimators_too(tmp_path: Path) -> None:
    """A network's outputs are probabilities, and stay as they are."""
    spec = make_network_spec(NetworkKind.MLP, LearningTask.CLASSIFICATION, 2, 3, (4,), (), False)
    parameters = np.random.default_rng(5).normal(size=spec.num_parameters)
    NetworkModel(
        task=LearningTask.CLASSIFICATION,
        feature_names=("a", "b"),
        target="y",
        classes=("1", "2", "3"),
        mean=np.zeros(2),
        deviation=np.ones(2),
        network=spec,
        parameters=parameters,
        target_mean=np.zeros(3),
        target_deviation=np.ones(3),
    ).save(tmp_path)
    found = kernfed.load_model(tmp_path)
    rows = np.random.default_rng(6).normal(size=(20, 2))
    assert isinstance(found, Classifier)
    np.testing.assert_allclose(found.predict_proba(rows), found.predict_scores(rows), rtol=1e-12)
    assert found.predict(rows).dtype.kind == "i"


def test_it_shows_itself(tmp_path: Path) -> None:
    """One line says kind, target, classes, columns and job; the table of notebooks escapes what a job's names hold."""
    names = ("<b>age</b>", "höhe", "chol")
    found = saved(tmp_path, LearningTask.BINARY, feature_names=names, job={"name": "demo", "method": "newton"})
    assert repr(found) == "<kernfed.Classifier: num (no, yes) from 3 columns, job newton demo>"
    page = found._repr_html_()
    assert "&lt;b&gt;age&lt;/b&gt;" in page
    assert "<b>" not in page
    assert isinstance(estimator(make_model(LearningTask.REGRESSION)), Regressor)


def test_it_shows_what_to_know_before_it_is_used(tmp_path: Path) -> None:
    """A note of its job, as that it is nobody's personal model, is in the line and in the table."""
    found = saved(tmp_path, LearningTask.BINARY, job={"name": "demo", "note": "of all rows alike"})
    assert repr(found).endswith("; note: of all rows alike>")
    assert "of all rows alike" in found._repr_html_()
