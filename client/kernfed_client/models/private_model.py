"""A model that a client keeps to itself, of any kind, and the file that it is kept in. Nothing is ever unpickled.

`model.safetensors` holds arrays, `model.json` all else. A scikit-learn model is kept as what it was fitted to, and is
fitted again when it is loaded: the rows lie beside it anyway, and running what a file says is no safe way to read one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from kernfed.arrays import Array, Floats
from kernfed.columns.plan import ColumnPlan
from kernfed.errors import ConfigError
from kernfed.federation.messages.data import LearningTask
from kernfed.maths.tasks import Reach
from kernfed.models.columns_fact import columns_fact, columns_of_facts
from kernfed.models.coverage import check_coverage, reach
from kernfed.models.folder import Pair
from kernfed.models.rows import ordered

if TYPE_CHECKING:
    import pandas as pd

Scorer = Callable[[Floats, str], Floats]
"""(standardised rows (n, d), device) -> scores (n, C)."""


@runtime_checkable
class SpreadScorer(Protocol):
    """A scorer that knows where its errors are larger; others expect the same everywhere."""

    def __call__(self, x: Floats, device: str) -> Floats:
        """See `Scorer`."""
        ...

    def spread(self, x: Floats, device: str) -> Floats:
        """Deviation that is expected at standardised rows (m, d), in a unit that is the same for all rows, (m,)."""
        ...


def spread(scorer: Scorer, x: Floats, device: str) -> Floats:
    """What a scorer expects of its errors, (m,); 1 where it expects the same everywhere."""
    return scorer.spread(x, device) if isinstance(scorer, SpreadScorer) else np.ones(len(x))


_MISFITS = "misfits"
"""Name of this array in a model's file."""

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
    misfits: Floats | None = None
    """Of own rows that were kept apart, in units of their spread, (n,); None: none were kept apart."""
    columns: tuple[ColumnPlan, ...] = ()
    """Of the table, from which the columns are made; empty: these are its columns."""

    def predict_scores(self, rows: pd.DataFrame | npt.ArrayLike, *, device: str = "cpu") -> Floats:
        """Scores of rows in the units of the data, (n, C); columns are found by name.

        Raises:
            DataError: A column is missing, or a value is not a finite number.
        """
        x = ordered(rows, self.feature_names, self.columns)
        return self.scorer((x - self.mean) / self.deviation, device)

    def reach(self, rows: pd.DataFrame | npt.ArrayLike, coverage: float, *, device: str = "cpu") -> Reach:
        """See `kernfed.models.coverage.Covering`."""
        check_coverage(coverage)
        if self.misfits is None:
            raise ConfigError(
                "--coverage: no rows were kept apart from this model; it needs a job of method distill with keep = "
                '"blend" or "better", a client with 5 different rows at least, and a release that knows --coverage'
            )
        x = (ordered(rows, self.feature_names, self.columns) - self.mean) / self.deviation
        return reach(self.misfits, spread(self.scorer, x, device), coverage)

    def save(self, folder: Path, *, durable: bool = True) -> None:
        """Write both files, readable by this user alone; the facts, which name the digest of the arrays, last.

        Args:
            folder: Made where it is missing.
            durable: Whether to wait for the disk.
        """
        facts = {
            "format": FORMAT,
            "kind": self.kind,
            "task": self.task,
            "feature_names": self.feature_names,
            "target": self.target,
            "classes": self.classes,
            "details": dict(self.details),
            "job": dict(self.job),
            **columns_fact(self.columns),
        }
        own = {"mean": self.mean, "deviation": self.deviation}
        if self.misfits is not None:
            own[_MISFITS] = self.misfits
        PAIR.write(folder, facts, {**own, **self.arrays}, durable=durable)


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
        misfits = arrays.pop(_MISFITS, None)
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
            misfits=misfits,
            columns=columns_of_facts(facts),
        )
    except (ValueError, KeyError, TypeError) as err:
        raise PAIR.refuse(folder, err) from err
