"""A model of any kind: what predicts rows, and how its folder is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy.typing as npt

from kernfed import plugins
from kernfed.arrays import Floats
from kernfed.columns.plan import ColumnPlan
from kernfed.errors import ConfigError
from kernfed.federation.messages.data import LearningTask
from kernfed.models.folder import Pair

if TYPE_CHECKING:
    import pandas as pd


class Model(Protocol):
    """A model that can predict rows: a job's global model, or one that a client keeps to itself."""

    @property
    def task(self) -> LearningTask:
        """The task that was learned."""
        ...

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Columns that it needs."""
        ...

    @property
    def columns(self) -> tuple[ColumnPlan, ...]:
        """Of the table, from which these are made; empty: they are its columns."""
        ...

    @property
    def classes(self) -> tuple[str, ...]:
        """Binary: negative, positive; empty for regression."""
        ...

    @property
    def job(self) -> Mapping[str, Any]:
        """Where it comes from, JSON values; a `note` is told to who predicts with it."""
        ...

    def predict_scores(self, rows: pd.DataFrame | npt.ArrayLike, *, device: str = "cpu") -> Floats:
        """Scores, (n, C); see `kernfed.models.global_model.GlobalModel.predict_scores`."""
        ...


Loader = Callable[[Path], Model]


def load(folder: Path, loaders: Mapping[str, Loader], pair: Pair) -> Model:
    """Load a model of any of the formats given, or of one that a package from outside loads.

    Raises:
        ConfigError: A file is missing or damaged, or the format is not among them.
        PluginError: The package that loads it failed; names it.
    """
    found = pair.read_facts(folder)["format"]
    if found not in loaders:
        point = plugins.find(plugins.MODELS, found)
        if point is not None:
            loader: Loader = point.object()
            with plugins.blamed(point.plugin, f"loading a model of format {found}", tell=True):
                return loader(folder)
        known = " or ".join(sorted({*loaders, *(p.name for p in plugins.points(plugins.MODELS))}))
        raise ConfigError(
            f"{folder / pair.facts}: format: {found!r} is unknown here, want {known}; install the release of kernfed, "
            "or the package, that wrote it"
        )
    return loaders[found](folder)
