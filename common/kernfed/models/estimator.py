"""A job's model as scikit-learn knows estimators: fitted, with `predict`, `predict_proba`, `score` and a face.

Nothing of scikit-learn is loaded before scikit-learn itself asks: what it looks for are methods of these names. A model
of a federation cannot be fitted here. Where something fits what it holds, as a calibration does, scikit-learn's
`FrozenEstimator` around the model says that it stays as it is.
"""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self

import numpy as np
import numpy.typing as npt

from kernfed.arrays import Floats
from kernfed.columns.plan import columns_of
from kernfed.errors import ConfigError, DataError
from kernfed.maths.tasks import TASKS
from kernfed.models.base import Model
from kernfed.models.class_values import OWN, class_codes, class_values
from kernfed.models.network_model import load_predictor
from kernfed.wording import listed

if TYPE_CHECKING:
    import pandas as pd

    from kernfed.models.network_model import Module

Labels = Literal["own", "text"] | Sequence[Any]
_PARAMETERS = ("model", "labels", "device")


class Estimator(ABC):
    """A trained model, as scikit-learn takes estimators. What it has not itself it asks its `model`.

    `Classifier` and `Regressor` are the two kinds.
    """

    _estimator_type: str
    """Read by scikit-learn before 1.6; later releases read the tags."""

    def __init__(self, model: Model, *, labels: Labels = OWN, device: str = "cpu") -> None:
        """Wrap a model.

        Args:
            model: It predicts.
            labels: Of classes: `own`: in the type of the target, as 0 and 1 are integers in a table; `text`: as text;
                or the value of each class.
            device: Where to compute, e.g. `cuda`.
        """
        self.model = model
        self.labels = labels
        self.device = device

    @property
    def feature_names_in_(self) -> npt.NDArray[Any]:
        """Columns that rows must have, in their order, shape (d,)."""
        return np.array(columns_of(self.model.columns, self.model.feature_names), dtype=object)

    @property
    def n_features_in_(self) -> int:
        """Number of these columns, d."""
        return len(columns_of(self.model.columns, self.model.feature_names))

    @abstractmethod
    def predict(self, rows: pd.DataFrame | npt.ArrayLike, *, device: str | None = None) -> npt.NDArray[Any]:
        """Predict the target of each row.

        Args:
            rows: A data frame (columns by name, in any order, more than needed is fine), or numbers of shape (n, d), in
                the units of the data.
            device: Where to compute; unset: the estimator's.

        Returns:
            Shape (n,): numbers, or values of `classes_`.

        Raises:
            DataError: A column is missing, doubled or not numeric, or a value is missing or infinite; names them.
        """

    @abstractmethod
    def score(self, rows: pd.DataFrame | npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> float:
        """How well rows of known targets are predicted: share of right classes, or R² of numbers.

        Args:
            rows: As of `predict`.
            y: True targets, (n,).
            sample_weight: Of the rows, (n,); unset: all weigh the same.

        Raises:
            DataError: As of `predict`; or targets and rows do not fit.
        """

    def predict_scores(self, rows: pd.DataFrame | npt.ArrayLike, *, device: str | None = None) -> Floats:
        """Scores behind the predictions, shape (n, C); see `kernfed.GlobalModel.predict_scores`."""
        return self.model.predict_scores(rows, device=device or self.device)

    def fit(self, rows: Any, y: Any = None, **more: Any) -> NoReturn:
        """Refuse: a model of a federation is trained by a job.

        Raises:
            ConfigError: Always; names the remedy.
        """
        del rows, y, more
        raise ConfigError(
            "a model of a federation is trained by a job, and not fitted here; where something fits what it holds, "
            "give it sklearn.frozen.FrozenEstimator(model), which stays as it is"
        )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What the estimator was made with, by name."""
        del deep
        return {name: getattr(self, name) for name in _PARAMETERS}

    def set_params(self, **params: Any) -> Self:
        """Change `device` or `labels`, or the `model`.

        Raises:
            ConfigError: A name is none of these.
        """
        if unknown := sorted(set(params) - set(_PARAMETERS)):
            raise ConfigError(f"{unknown[0]!r} is no parameter of the estimator; it has {', '.join(_PARAMETERS)}")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __sklearn_clone__(self) -> Self:
        """A copy is as trained as its original: there is nothing to fit."""
        return type(self)(**self.get_params())

    def __sklearn_is_fitted__(self) -> bool:
        """Always: it comes from a job."""
        return True

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn, from 1.6 on, asks of an estimator."""
        from sklearn import utils  # noqa: PLC0415  # it is loaded by who asks

        kinds = {"classifier": "classifier_tags", "regressor": "regressor_tags"}
        own: dict[str, Any] = {kinds[self._estimator_type]: getattr(utils, f"{self._estimator_type.title()}Tags")()}
        return utils.Tags(
            estimator_type=self._estimator_type,
            target_tags=utils.TargetTags(required=True),
            input_tags=utils.InputTags(),
            requires_fit=False,
            **own,
        )

    def __getattr__(self, name: str) -> Any:
        """All else is the model's, e.g. `weights`, `classes` and `job`."""
        if name.startswith("__") or name == "model":
            raise AttributeError(name)
        try:
            return getattr(self.model, name)
        except AttributeError:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}") from None

    def __repr__(self) -> str:
        """Kind, target, columns and origin, in a line, and what to know before it is used."""
        facts = self._facts()
        origin = f", {facts['job']}" if "job" in facts else ""
        note = f"; note: {facts['note']}" if "note" in facts else ""
        return f"<kernfed.{type(self).__name__}: {facts['predicts']} from {facts['from']}{origin}{note}>"

    def _repr_html_(self) -> str:
        """The same as a table, for notebooks."""
        rows = "".join(
            f'<tr><th style="text-align:left">{html.escape(key)}</th>'
            f'<td style="text-align:left">{html.escape(value)}</td></tr>'
            for key, value in self._facts(listed(list(map(str, self.model.feature_names)), 24)).items()
        )
        return f"<table><caption>kernfed.{type(self).__name__}</caption><tbody>{rows}</tbody></table>"

    def _facts(self, columns: str = "") -> dict[str, str]:
        job: Mapping[str, Any] = self.model.job
        target = getattr(self.model, "target", "") or "the target"
        many = f"{self.n_features_in_} column{'' if self.n_features_in_ == 1 else 's'}"
        facts = {"predicts": f"{target}{self._kinds()}", "from": f"{many}: {columns}" if columns else many}
        method = job.get("method") or ""
        method = method.get("name", "") if isinstance(method, Mapping) else str(method)
        if told := f"{method} {job.get('name') or ''}".strip():
            facts["job"] = f"job {told}"
        return facts | ({"note": str(job["note"])} if job.get("note") else {})

    def _kinds(self) -> str:
        return ""


class Classifier(Estimator):
    """A model of classes."""

    _estimator_type = "classifier"

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """Classes in the target's own type, sorted, shape (number of classes,); `classes` has the model's order."""
        return self._values[self._order]

    def predict(self, rows: pd.DataFrame | npt.ArrayLike, *, device: str | None = None) -> npt.NDArray[Any]:
        """See `Estimator`."""
        found: npt.NDArray[Any] = self._values[self._codes(rows, device)]
        return found

    def predict_proba(self, rows: pd.DataFrame | npt.ArrayLike, *, device: str | None = None) -> Floats:
        """Probabilities of `classes_`, shape (n, number of classes), each row of sum 1.

        A head trained by cross-entropy, and a network, tell probabilities. All other models are least-squares fits of
        0/1 targets: numbers below 0 and above 1 are cut off, and they are not calibrated. With rows of known class
        `sklearn.calibration.CalibratedClassifierCV(sklearn.frozen.FrozenEstimator(model))` makes them so.

        Raises:
            DataError: As of `predict`.
        """
        found = TASKS[self.model.task].probabilities(self.predict_scores(rows, device=device))
        return found[:, self._order]

    def decision_function(self, rows: pd.DataFrame | npt.ArrayLike, *, device: str | None = None) -> Floats:
        """Scores as they are: of two classes how far that of the second of `classes_` is above 1/2, (n,), else (n, C).

        Raises:
            DataError: As of `predict`.
        """
        scores = self.predict_scores(rows, device=device)
        if scores.shape[1] > 1:
            return scores[:, self._order]
        above = scores[:, 0] - 0.5
        return above if self._order[1] == 1 else -above

    def score(self, rows: pd.DataFrame | npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> float:
        """Share of rows whose class is predicted; 1 and "1" are the same class. See `Estimator`."""
        right = self._codes(rows, None) == _fitting(class_codes(y, self.model.classes), len(rows))  # type: ignore[arg-type]  # rows have a length
        return float(np.average(right, weights=sample_weight))

    @property
    def _values(self) -> npt.NDArray[Any]:
        """Of the classes, in the model's order."""
        return class_values(self.model.classes, self.labels)

    @property
    def _order(self) -> npt.NDArray[np.intp]:
        return np.argsort(self._values, kind="stable")

    def _codes(self, rows: pd.DataFrame | npt.ArrayLike, device: str | None) -> npt.NDArray[Any]:
        scores = self.predict_scores(rows, device=device)
        places: Any = range(len(self.model.classes))
        return TASKS[self.model.task].predictions(scores, places)

    def _kinds(self) -> str:
        return f" ({listed([str(value) for value in self.classes_], 6)})"


class Regressor(Estimator):
    """A model of a number."""

    _estimator_type = "regressor"

    def predict(self, rows: pd.DataFrame | npt.ArrayLike, *, device: str | None = None) -> npt.NDArray[Any]:
        """See `Estimator`."""
        return self.predict_scores(rows, device=device)[:, 0]

    def score(self, rows: pd.DataFrame | npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> float:
        """R² = 1 - Σ(y - ŷ)²/Σ(y - ȳ)²; of a constant y 1 where all is right, else 0. See `Estimator`."""
        try:
            truth = np.asarray(y, dtype=np.float64).reshape(-1)
        except (TypeError, ValueError) as err:
            raise DataError(f"the target holds what is no number: {err}") from err
        error = np.square(_fitting(truth, len(rows)) - self.predict(rows))  # type: ignore[arg-type]  # rows have a length
        spread = np.square(truth - np.average(truth, weights=sample_weight))
        missed, whole = (float(np.average(part, weights=sample_weight)) for part in (error, spread))
        return 1.0 - missed / whole if whole else float(missed == 0.0)


def estimator(model: Model, *, labels: Labels = OWN, device: str = "cpu") -> Estimator:
    """A model as an estimator, by its task; arguments as of `Estimator`.

    Raises:
        ConfigError: `labels` does not fit the model's classes.
    """
    if not TASKS[model.task].has_classes:
        return Regressor(model, labels=labels, device=device)
    class_values(model.classes, labels)
    return Classifier(model, labels=labels, device=device)


def load_model(
    folder: Path | str, *, labels: Labels = OWN, device: str = "cpu", network: Module | None = None
) -> Estimator:
    """Load a job's model as a scikit-learn estimator, and check everything about it.

    Args:
        folder: That holds `model.json` and `model.safetensors`.
        labels: Of classes: `own`: in the type of the target, as 0 and 1 are integers in a table; `text`: as text; or
            the value of each class.
        device: Where to compute, e.g. `cuda`.
        network: Of a model whose network is of the clients' own: its torch.nn.Module, or what makes it of the numbers
            of columns and outputs. A model's file never names code.

    Raises:
        ConfigError: A file is missing, damaged or from another model, which it names; or `labels` or `network` does not
            fit.
    """
    return estimator(load_predictor(folder, network), labels=labels, device=device)


def _fitting(values: npt.NDArray[Any], num_rows: int) -> npt.NDArray[Any]:
    if len(values) != num_rows:
        raise DataError(f"there are {len(values)} targets for {num_rows} rows; give one for each row")
    if not num_rows:
        raise DataError("there are no rows to score")
    return values
