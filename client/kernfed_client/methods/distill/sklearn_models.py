"""A scikit-learn model as a client's model in distillation; importing this loads scikit-learn, which takes a second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import structlog
from sklearn.base import clone, is_classifier
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from kernfed.arrays import Array, Floats
from kernfed.errors import ConfigError, DataError
from kernfed.federation.messages.data import LearningTask
from kernfed.jobs.client_models import SklearnModelSection
from kernfed.maths.tasks import TASKS
from kernfed_client.methods.distill.import_class import import_class
from kernfed_client.methods.distill.kept_apart import parts
from kernfed_client.methods.distill.learner import Compared, Lesson
from kernfed_client.models.private_model import Scorer

log = structlog.get_logger(__name__)


class SklearnLearner:
    """A model with `fit` and `predict`: fitted anew in each round, to own rows and public points together.

    Regressors fit values, 0/1 or one-hot columns. Classifiers fit classes: a public point counts for each class by the
    consensus' share of it.
    """

    def __init__(self, task: LearningTask, lesson: Lesson, section: SklearnModelSection) -> None:
        """Check that the class can be made.

        Raises:
            ConfigError: It cannot, takes no row weights, or is a classifier where numbers are learned.
        """
        self._task, self._lesson, self._section = task, lesson, section
        made = make_estimator(section.class_name, section.parameters, lesson.seed)
        _check_estimator(made, task, weighted=section.weights == "use")
        self._own: _FittedSklearn | None = None
        self._last: tuple[Floats, _FittedSklearn] | None = None

    def own(self) -> _FittedSklearn:
        """See `Learner.own`."""
        if self._own is None:
            lesson = self._lesson
            self._own = self._fit(lesson.x, lesson.y, np.ones(len(lesson.x)))
        return self._own

    def distilled(
        self, trained_round: int, targets: Floats, *, lasting: bool, deregularise: bool = False
    ) -> _FittedSklearn:
        """See `Learner.distilled`; there is no state from round to round."""
        del trained_round, lasting, deregularise
        if self._last is None or not np.array_equal(self._last[0], targets):
            self._last = targets.copy(), self._fit_all(self._lesson.x, self._lesson.y, targets)
        return self._last[1]

    def compared(self, trained_round: int, targets: Floats) -> Compared | None:
        """See `Learner.compared`: both models are fitted without each part of the rows in turn."""
        del trained_round
        x, y = self._lesson.x, self._lesson.y
        if not self._lesson.comparable:
            return None
        alone, distilled, unit = np.empty_like(y), np.empty_like(y), self._lesson.unit
        for apart in parts(unit, self._lesson.seed):
            rest = ~apart
            own = self._fit(x[rest], y[rest], np.ones(int(rest.sum())))
            alone[apart] = y[apart] - own.scores(x[apart])
            distilled[apart] = y[apart] - self._fit_all(x[rest], y[rest], targets).scores(x[apart])
        return Compared(alone, distilled, unit, self._lesson.near, y)

    def _fit_all(self, x: Floats, y: Floats, targets: Floats) -> _FittedSklearn:
        lesson = self._lesson
        num_own, num_public = len(x), len(lesson.public)
        shares = [np.full(num_own, lesson.alpha / num_own), np.full(num_public, (1 - lesson.alpha) / num_public)]
        weights = np.concatenate(shares)
        return self._fit(np.vstack([x, lesson.public]), np.vstack([y, targets]), weights / weights.mean())

    def _fit(self, x: Floats, t: Floats, weights: Floats) -> _FittedSklearn:
        details: dict[str, Any] = {
            "class_name": self._section.class_name,
            "parameters": dict(self._section.parameters),
            "weights": self._section.weights,
            "seed": self._lesson.seed,
        }
        if self._lesson.target_mean is not None:
            details["target_mean"] = self._lesson.target_mean.tolist()
        arrays = {"x": x, "t": t, "w": weights}
        return _FittedSklearn(arrays, details, sklearn_scorer(self._task, arrays, details), self._lesson.public)


class _FittedSklearn:
    def __init__(self, arrays: Mapping[str, Array], details: Mapping[str, Any], scorer: Scorer, public: Floats) -> None:
        self._arrays, self._details, self._scorer, self._public = arrays, details, scorer, public

    def public(self) -> Floats:
        return self._scorer(self._public, "cpu")

    def scores(self, x: Floats) -> Floats:
        return self._scorer(x, "cpu")

    def parts(self) -> tuple[str, Mapping[str, Array], Mapping[str, Any], Scorer]:
        return "scikit-learn", self._arrays, self._details, self._scorer


def make_estimator(class_name: str, parameters: Mapping[str, Any], seed: int) -> Any:
    """An estimator, its random state set where it has one and the file does not.

    Raises:
        ConfigError: The class is not here, takes other parameters, or is no estimator.
    """
    key = "[models] of the client file"
    try:
        made = import_class(class_name, key)(**parameters)
        if not (hasattr(made, "fit") and hasattr(made, "predict") and hasattr(made, "get_params")):
            raise ConfigError(f"{key}: {class_name} has no fit, predict and get_params; name a regressor or classifier")
        if "random_state" in made.get_params() and parameters.get("random_state") is None:
            made.set_params(random_state=seed)
    except TypeError as err:
        raise ConfigError(f"{key}: {class_name} cannot be made with these parameters: {err}") from err
    return made


def sklearn_scorer(task: LearningTask, arrays: Mapping[str, Array], details: Mapping[str, Any]) -> Scorer:
    """Fit, and return what predicts.

    Args:
        task: What is learned.
        arrays: `x` (n, d), `t` (n, C), `w` (n,): rows, targets, weights.
        details: `class_name`, `parameters`, `weights`, `seed`, and `target_mean`, around which a regressor fits.

    Raises:
        DataError: It cannot be fitted to these rows.
    """
    x, t, w = arrays["x"], arrays["t"], arrays["w"]
    made = make_estimator(details["class_name"], details["parameters"], int(details["seed"]))
    weighted = details["weights"] == "use"
    _check_estimator(made, task, weighted=weighted)
    if is_classifier(made):
        return _classifier_scorer(made, x, t, w, weighted)
    centre = np.asarray(details.get("target_mean", np.zeros(t.shape[1])))
    score = _regressor_scorer(made, x, t - centre, w, weighted)
    return lambda rows, device: score(rows, device) + centre


def _check_estimator(made: Any, task: LearningTask, *, weighted: bool) -> None:
    name = type(made).__name__
    if is_classifier(made) and not TASKS[task].has_classes:
        raise ConfigError(
            f"[models] of the client file: {name} is a classifier, but the job's task is regression; name a regressor"
        )
    if weighted and not has_fit_parameter(made, "sample_weight"):
        raise ConfigError(
            f'[models] of the client file: {name} takes no row weights; set weights = "ignore", or name another model'
        )


def _regressor_scorer(made: Any, x: Floats, t: Floats, w: Floats, weighted: bool) -> Scorer:
    if t.shape[1] > 1 and not get_tags(made).target_tags.multi_output:
        fitted = [_fit(clone(made), x, t[:, i], w, weighted) for i in range(t.shape[1])]
        return lambda rows, _device: np.column_stack([_predict(f, rows) for f in fitted])
    one = _fit(made, x, t if t.shape[1] > 1 else t[:, 0], w, weighted)
    return lambda rows, _device: _predict(one, rows).reshape(len(rows), t.shape[1])


def _classifier_scorer(made: Any, x: Floats, t: Floats, w: Floats, weighted: bool) -> Scorer:
    binary = t.shape[1] == 1
    shares = np.clip(np.hstack([1.0 - t, t]) if binary else t, 0.0, None)
    shares = np.clip(shares, 0.0, 1.0) if binary else shares
    total = shares.sum(axis=1, keepdims=True)
    shares = np.where(total > 0, shares / np.where(total > 0, total, 1.0), 1.0 / shares.shape[1])
    if weighted:
        rows, labels = np.nonzero(shares > 1e-3)
        fitted = _fit(made, x[rows], labels, w[rows] * shares[rows, labels], weighted)
    else:
        fitted = _fit(made, x, shares.argmax(axis=1), w, weighted)
    known = np.asarray(fitted.classes_, dtype=np.int64)

    def score(rows: Floats, _device: str) -> Floats:
        found = np.zeros((len(rows), shares.shape[1]))
        if hasattr(fitted, "predict_proba"):
            found[:, known] = fitted.predict_proba(rows) if len(rows) else 0.0
        elif len(rows):
            found[np.arange(len(rows)), np.asarray(fitted.predict(rows), dtype=np.int64)] = 1.0
        return found[:, 1:] if binary else found

    return score


def _fit(made: Any, x: Floats, t: Array, w: Floats, weighted: bool) -> Any:
    try:
        return made.fit(x, t, sample_weight=w) if weighted else made.fit(x, t)
    except (ValueError, TypeError, ArithmeticError) as err:
        log.warning(
            "own model cannot be fitted", model=type(made).__name__, error=str(err)
        )  # here, where rows may be told
        raise DataError(
            f"{type(made).__name__} cannot be fitted to this client's rows; its log has the reason"
        ) from err


def _predict(fitted: Any, x: Floats) -> Floats:
    found: Floats = np.asarray(fitted.predict(x), dtype=np.float64) if len(x) else np.zeros(0)
    return found
