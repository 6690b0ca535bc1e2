"""A model that a client keeps to itself, of any kind, and the file that it is kept in. Nothing is ever unpickled.

`model.safetensors` holds arrays, `model.json` all else. A scikit-learn model is kept as what it was fitted to, and is
fitted again when it is loaded: the rows lie beside it anyway, and running what a file says is no safe way to read one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from kernfed import files
from kernfed.arrays import Array, Floats
from kernfed.artifact_names import MODEL_ARRAYS, MODEL_FACTS
from kernfed.errors import ConfigError, DataError
from kernfed.federation.messages.data import LearningTask

if TYPE_CHECKING:
    import pandas as pd

Scorer = Callable[[Floats, str], Floats]
"""(standardised rows (n, d), device) -> scores (n, C)."""

FORMAT = "kernfed.private-model/1"


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

    def predict_scores(self, rows: pd.DataFrame, *, device: str = "cpu") -> Floats:
        """Scores of rows in the units of the data, (n, C); columns are found by name.

        Raises:
            DataError: A column is missing, or a value is not a finite number.
        """
        missing = [name for name in self.feature_names if name not in rows.columns]
        if missing:
            raise DataError(f"column {missing[0]!r} is missing; the model needs {', '.join(self.feature_names)}")
        x = np.asarray(rows[list(self.feature_names)], dtype=np.float64, order="C")
        if not np.isfinite(x).all():
            raise DataError("a value is missing or infinite; fill it in or leave the row out")
        return self.scorer((x - self.mean) / self.deviation, device)

    def save(self, folder: Path) -> None:
        """Write both files, readable by this user alone; the facts, which name the digest of the arrays, last."""
        scales = {"mean": self.mean, "deviation": self.deviation}
        arrays = {name: np.ascontiguousarray(array) for name, array in {**scales, **self.arrays}.items()}
        data: bytes = save(arrays)
        facts = {
            "format": FORMAT,
            "kind": self.kind,
            "task": self.task.value,
            "feature_names": list(self.feature_names),
            "target": self.target,
            "classes": list(self.classes),
            "details": dict(self.details),
            "arrays_sha256": hashlib.sha256(data).hexdigest(),
            "job": dict(self.job),
        }
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        text = json.dumps(facts, indent=2, sort_keys=True, ensure_ascii=False)
        files.replace(folder / MODEL_ARRAYS, data, durable=True, mode=0o600)
        files.replace(folder / MODEL_FACTS, text.encode() + b"\n", durable=True, mode=0o600)


def read_private_model(folder: Path, make_scorer: Callable[[str, Mapping[str, Any]], Scorer]) -> PrivateModel:
    """Read a model that `PrivateModel.save` wrote.

    Args:
        folder: With both files.
        make_scorer: (kind, facts with `arrays`) -> scorer.

    Raises:
        ConfigError: A file is missing or damaged.
    """
    try:
        facts = json.loads((folder / MODEL_FACTS).read_bytes())
        data = (folder / MODEL_ARRAYS).read_bytes()
        if facts["format"] != FORMAT or hashlib.sha256(data).hexdigest() != facts["arrays_sha256"]:
            raise ConfigError(f"{folder}: damaged, or two files of different models; run the job again")
        arrays = dict(load(data))
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
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as err:
        raise ConfigError(f"{folder} does not hold a model of this client: {err}; run the job again") from err
