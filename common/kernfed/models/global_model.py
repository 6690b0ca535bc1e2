"""The model that a job leaves: scaler, feature map, weights and schema; save it, load it, predict with it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kernfed.arrays import Floats
from kernfed.columns.plan import ColumnPlan, feature_names
from kernfed.errors import ConfigError
from kernfed.features import spec as features
from kernfed.features.spec import FeatureSpec, Frequencies
from kernfed.federation.messages.data import LearningTask
from kernfed.maths.losses import Link
from kernfed.maths.tasks import TASKS
from kernfed.models import global_model_file as model_file
from kernfed.models.global_model_file import ARRAYS
from kernfed.models.rows import finite, ordered, standardised

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class GlobalModel:
    """A linear model on features: scores = link((φ((x - mean)/deviation) - feature_mean) weights + target_mean).

    M features, C outputs, d columns. Checked when made.

    Raises:
        ConfigError: A part does not fit the others, holds NaN or infinity, or the features drawn here are not those
            that the model was trained on.
    """

    task: LearningTask
    feature_names: tuple[str, ...]
    """Input columns, in the order of `mean`."""
    target: str
    """Name of the column that is predicted."""
    classes: tuple[str, ...]
    """Class names; binary: negative, positive; empty for regression."""
    mean: Floats
    """Shape (d,)."""
    deviation: Floats
    """Shape (d,), above 0."""
    spec: FeatureSpec
    fingerprint: str
    """Of the features that the model was trained on; see `kernfed.features.spec.fingerprint`."""
    weights: Floats
    """Shape (M, C); C is 1 for regression and binary, else one per class."""
    feature_mean: Floats
    """Shape (M,); zeros where the model has no intercept."""
    target_mean: Floats
    """Shape (C,); zeros where the model has no intercept. Of a head, its bias."""
    job: Mapping[str, Any] = field(default_factory=dict)
    """Origin of the model, as JSON values. Not part of the model's identity (`sha256`)."""
    link: Link = Link.IDENTITY
    """Softmax or logistic of a model of log-odds; exponential of a regression whose linear scores are logarithms."""
    columns: tuple[ColumnPlan, ...] = ()
    """Of the table, from which the columns are made; empty: these are its columns."""

    def __post_init__(self) -> None:
        features.check_spec(self.spec)
        d, m, c = len(self.feature_names), self.spec.num_features, self._num_outputs()
        shapes = {"mean": (d,), "deviation": (d,), "weights": (m, c), "feature_mean": (m,), "target_mean": (c,)}
        for name in ARRAYS:
            array = np.ascontiguousarray(getattr(self, name), dtype=np.float64)
            if array.shape != shapes[name]:
                raise ConfigError(f"model: {name} has shape {array.shape}, want {shapes[name]}")
            if not np.isfinite(array).all():
                raise ConfigError(f"model: {name} holds NaN or infinity; it cannot predict")
            object.__setattr__(self, name, array)
        if d != self.spec.num_columns or len(set(self.feature_names)) != d:
            raise ConfigError(
                f"model: {self.spec.num_columns} different feature names wanted, got {self.feature_names}"
            )
        if self.columns and feature_names(self.columns) != self.feature_names:
            raise ConfigError("model: its columns do not make its features; fetch the model again")
        if not (self.deviation > 0).all():
            raise ConfigError("model: deviation holds a number that is not above 0")
        other = TASKS[self.task].link if TASKS[self.task].has_classes else Link.EXPONENTIAL
        if self.link not in (Link.IDENTITY, other):
            raise ConfigError(f"model: the link {self.link} does not fit a {self.task} task")
        if features.fingerprint(self.spec, self._frequencies) != self.fingerprint:
            raise ConfigError(
                "model: the features drawn here are not those it was trained on (fingerprints differ); its "
                "specification was changed, or it comes from an incompatible release of kernfed"
            )

    def predict(self, rows: pd.DataFrame | npt.ArrayLike, *, device: str = "cpu") -> npt.NDArray[Any]:
        """Predict the target of each row.

        Args:
            rows: A data frame (columns by name, in any order, more than needed is fine), or numbers of shape (n, d) in
                the order of `feature_names`. In the units of the data: scaling is the model's. Where columns have
                types, a data frame holds them as the job's tables do, and the model fills gaps by the job's rules.
            device: Where to compute, e.g. `cuda`.

        Returns:
            Regression: numbers, float64, shape (n,). Else class names, shape (n,).

        Raises:
            DataError: A column is missing, doubled or not numeric, a value is missing or infinite, or the numbers of a
                row are so large that it has no score; names them.
        """
        return TASKS[self.task].predictions(self.predict_scores(rows, device=device), self.classes)

    def predict_scores(self, rows: pd.DataFrame | npt.ArrayLike, *, device: str = "cpu") -> Floats:
        """Compute the scores behind `predict`, shape (n, C); its arguments and errors.

        Binary: one column, positive class from 1/2 on. Classification: one column per class, the largest wins.
        Without a link scores are least-squares fits of 0/1 targets, which may leave [0, 1]; else probabilities.
        """
        from kernfed.models.tensors.predict import linear_scores  # noqa: PLC0415  # the coordinator has no torch

        x = standardised(ordered(rows, self.feature_names, self.columns), self.mean, self.deviation)
        offset = self.target_mean - self.feature_mean @ self.weights
        return finite(linear_scores(x, self.spec, self._frequencies, self.weights, offset, self.link, device))

    def save(self, folder: Path | str, *, durable: bool = True) -> None:
        """Write `model.safetensors` and `model.json` to a folder.

        The same model gives the same bytes. Each file appears whole or not at all; the second names the digest of the
        first, so a pair from two different models is found out when it is loaded.

        Args:
            folder: Made where it does not exist.
            durable: Whether to wait for the disk; False where the caller syncs the folder.
        """
        parts = {part.name: getattr(self, part.name) for part in dataclasses.fields(self)}
        model_file.write(parts, Path(folder), durable=durable)

    @functools.cached_property
    def _frequencies(self) -> Frequencies:
        return features.draw_frequencies(self.spec)

    def _num_outputs(self) -> int:
        wanted = {LearningTask.REGRESSION: len(self.classes) == 0, LearningTask.BINARY: len(self.classes) == 2}
        if not wanted.get(self.task, len(self.classes) >= 2) or len(set(self.classes)) != len(self.classes):
            raise ConfigError(f"model: classes {self.classes} do not fit a {self.task} task")
        return TASKS[self.task].num_outputs(self.classes)


def load_model(folder: Path | str) -> GlobalModel:
    """Load a model that `GlobalModel.save` wrote, and check everything about it.

    Raises:
        ConfigError: A file is missing, damaged or from another model; names the file and what is wrong.
    """
    parts = model_file.read(Path(folder))
    try:
        return GlobalModel(**parts)
    except ConfigError as err:
        raise ConfigError(f"{folder}: {err}") from err


def sha256(folder: Path | str) -> str:
    """Compute the identity of a saved model, 64 hexadecimal digits: of all that predictions depend on, not of `job`.

    Raises:
        ConfigError: As `load_model`.
    """
    return model_file.sha256(Path(folder))
