"""A model that a client keeps to itself, of any kind, and the file that it is kept in. Nothing is ever unpickled.

`model.safetensors` holds arrays, `model.json` all else. A scikit-learn model is kept as what it was fitted to, and is
fitted again when it is loaded: the rows lie beside it anyway, and running what a file says is no safe way to read one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from kernfed.arrays import Array, Floats
from kernfed.federation.messages.data import LearningTask
from kernfed.models.folder import Pair
from kernfed.models.rows import ordered

if TYPE_CHECKING:
    import pandas as pd

Scorer = Callable[[Floats, str], Floats]
"""(standardised rows (n, d), device) -> scores (n, C)."""

FORMAT = "kernfed.private-model/1"
PAIR = Pair(remedy="run the job again", private=True)


@dataclass(frozen=True, eq=False)
class PrivateModel:
    """A model with its columns, scales and classes; predicts like `kernfed.models.global_model.GlobalModel`."""

    kind: str
    """Which sort of scorer; see `kernfed_client.models.kept_models`."""
    task: LearningTask
    feature_names: tuple[str, ...]
    target: str
    classes: tuple[str, ...]
    mean: Floats
    deviation: Floats
    arrays: Mapping[str, Array]
    """Arrays from which the scorer is made."""
    details: Mapping[str, Any]
    """Facts from which the scorer is made, JSON values."""
    scorer: Scorer
    job: Mapping[str, Any] = field(default_factory=dict)

    def predict_scores(self, rows: pd.DataFrame | npt.ArrayLike, *, device: str = "cpu") -> Floats:
        """Scores of rows in the units of the data, (n, C); columns are found by name.

        Raises:
            DataError: A column is missing, or a value is not a finite number.
        """
        x = ordered(rows, self.feature_names)
        return self.scorer((x - self.mean) / self.deviation, device)

    def save(self, folder: Path) -> None:
        """Write both files, readable by this user alone; the facts, which name the digest of the arrays, last."""
        facts = {
            "format": FORMAT,
            "kind": self.kind,
            "task": self.task,
            "feature_names": self.feature_names,
            "target": self.target,
            "classes": self.classes,
            "details": dict(self.details),
            "job": dict(self.job),
        }
        PAIR.write(folder, facts, {"mean": self.mean, "deviation": self.deviation, **self.arrays}, durable=True)


def read_private_model(folder: Path, make_scorer: Callable[[str, Mapping[str, Any]], Scorer]) -> PrivateModel:
    """Read a model that `PrivateModel.save` wrote.

    Args:
        folder: With both files.
        make_scorer: (kind, facts with `arrays`) -> scorer.

    Raises:
        ConfigError: A file is missing or damaged.
    """
    facts, arrays = PAIR.read(folder, FORMAT)
    try:
        mean, deviation = arrays.pop("mean"), arrays.pop("deviation")
        task = LearningTask(facts["task"])
        facts = {**facts, "task": task, "arrays": arrays}
        return PrivateModel(
            kind=facts["kind"],
            task=task,
            feature_names=tuple(facts["feature_names"]),
            target=facts["target"],
            classes=tuple(facts["classes"]),
            mean=mean,
            deviation=deviation,
            arrays=arrays,
            details=facts["details"],
            scorer=make_scorer(facts["kind"], facts),
            job=facts["job"],
        )
    except (ValueError, KeyError, TypeError) as err:
        raise PAIR.refuse(folder, err) from err
