"""Curves of survival as the file that a job leaves."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kernfed import files
from kernfed.methods.survival.finding import KaplanMeierFinding

CSV: Final = "kaplan-meier.csv"
_COLUMNS: Final = ("times", "at_risk", "died", "censored", "survival", "error", "low", "high")


@dataclass(frozen=True, slots=True)
class CurveTable:
    """What a job of the method leaves in the place of a model: a line for each group and time."""

    finding: KaplanMeierFinding

    def save(self, folder: Path | str, *, durable: bool = True) -> None:
        """Write `kaplan-meier.csv` to a folder."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        files.replace(place / CSV, self.csv().encode(), durable=durable)

    def csv(self) -> str:
        """The table; the first column has the group, `all` for all rows."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["group", "time", *_COLUMNS[1:]])
        for curve in self.finding.curves:
            columns = (getattr(curve, name) for name in _COLUMNS)
            writer.writerows([curve.group, *line] for line in zip(*columns, strict=True))
        return out.getvalue()
