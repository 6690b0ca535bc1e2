"""A small global model of each task, and rows for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from kernfed.columns.plan import ColumnPlan, feature_names
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, fingerprint, make_spec
from kernfed.federation.messages.data import LearningTask
from kernfed.models.global_model import GlobalModel

CLASSES = {
    LearningTask.REGRESSION: (),
    LearningTask.BINARY: ("no", "yes"),
    LearningTask.CLASSIFICATION: ("a", "b", "c"),
}


def make_model(task: LearningTask = LearningTask.CLASSIFICATION, **changes: Any) -> GlobalModel:
    """A model of three columns, the same each time, with other parts where `changes` names them."""
    rng = np.random.default_rng(1)
    spec = make_spec(Kernel.MATERN32, FeatureForm.COSINE, 3, (1.0, 0.3, 2.0), 20, 4)
    outputs = 3 if task is LearningTask.CLASSIFICATION else 1
    facts: dict[str, Any] = {
        "task": task,
        "feature_names": ("age", "höhe", "chol"),
        "target": "num",
        "classes": CLASSES[task],
        "mean": np.array([50.0, 1.7, 200.0]),
        "deviation": np.array([10.0, 0.1, 50.0]),
        "spec": spec,
        "fingerprint": fingerprint(spec),
        "weights": rng.normal(size=(20, outputs)),
        "feature_mean": rng.normal(size=20),
        "target_mean": rng.normal(size=outputs),
        "job": {"name": "demo", "ridge": 1e-6},
    }
    return GlobalModel(**(facts | changes))


def linear_model(
    columns: tuple[ColumnPlan, ...], task: LearningTask = LearningTask.REGRESSION, **changes: Any
) -> GlobalModel:
    """A model on the feature columns of a table's columns as they are, each with a weight of its own."""
    rng = np.random.default_rng(3)
    names = feature_names(columns)
    spec = make_spec(Kernel.LINEAR, FeatureForm.COSINE, len(names), 1.0, 0, 0)
    facts: dict[str, Any] = {
        "feature_names": names,
        "mean": rng.uniform(0.1, 0.9, len(names)),
        "deviation": rng.uniform(0.5, 2.0, len(names)),
        "spec": spec,
        "fingerprint": fingerprint(spec),
        "weights": rng.normal(size=(len(names), 1)),
        "feature_mean": rng.normal(size=len(names)),
        "columns": columns,
    }
    return make_model(task, **(facts | changes))


def frame(n: int = 7) -> pd.DataFrame:
    """Rows that it can predict."""
    rng = np.random.default_rng(2)
    return pd.DataFrame(
        {"age": rng.integers(20, 80, n), "höhe": rng.normal(1.7, 0.1, n), "chol": rng.normal(200, 50, n)}
    )
