"""The artifact of a distillation job: the public points, and the clients' common predictions on them.

It is no model of `kernfed.models`, and must have no format there: it predicts no row but its own, so `kernfed predict`
has nothing to load. A person reads the table; the tensors are the same numbers to the last bit.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from kernfed import files
from kernfed.arrays import Floats
from kernfed.federation.messages.data import LearningTask
from kernfed.maths.tasks import TASKS

ARRAYS_FILE = "consensus.safetensors"
TABLE_FILE = "consensus.csv"


@dataclass(frozen=True, eq=False)
class PublicConsensus:
    """Predictions that the clients agree on. N_p public points, P columns, C outputs."""

    task: LearningTask
    feature_names: tuple[str, ...]
    classes: tuple[str, ...]
    """Binary: negative, positive; empty for regression."""
    points: Floats
    """In the units of the data, (N_p, P)."""
    values: Floats
    """Numbers, or scores of the classes as `kernfed.models.global_model` has them, (N_p, C)."""

    def save(self, folder: Path | str, *, durable: bool = True) -> None:
        """Write `consensus.safetensors` (tensors `points`, `consensus`) and `consensus.csv`, a table of predictions.

        The same consensus gives the same bytes.

        Args:
            folder: Made where it does not exist.
            durable: Whether to wait for the disk; False where the caller syncs the folder.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {"points": self.points, "consensus": self.values}
        data: bytes = save({name: np.ascontiguousarray(a, dtype=np.float64) for name, a in arrays.items()})
        task = TASKS[self.task]
        names, predictions = task.score_names(self.classes), task.predictions(self.values, self.classes).tolist()
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow([*self.feature_names, "prediction", *names])
        for point, told, scores in zip(self.points.tolist(), predictions, self.values.tolist(), strict=True):
            writer.writerow([*point, told, *scores[: len(names)]])
        files.replace(folder / ARRAYS_FILE, data, durable=durable)
        files.replace(folder / TABLE_FILE, table.getvalue().encode(), durable=durable)
