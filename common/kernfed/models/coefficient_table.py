"""Coefficients as a file that a job leaves beside its model."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

from kernfed import files
from kernfed.maths.likelihood.inference import Coefficient

BESIDE: Final = "coefficients"
"""What the name of the file begins with among a job's files: `coefficients-table.csv`."""
CSV: Final = "table.csv"


@dataclass(frozen=True, slots=True)
class CoefficientTable:
    """A line for each coefficient."""

    coefficients: tuple[Coefficient, ...]

    def save(self, folder: Path | str, *, durable: bool = True) -> None:
        """Write `table.csv` to a folder."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(field.name for field in fields(Coefficient))
        writer.writerows(asdict(found).values() for found in self.coefficients)
        files.replace(Path(folder) / CSV, out.getvalue().encode(), durable=durable)
