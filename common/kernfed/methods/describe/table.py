"""Statistics of columns as the files that a job leaves: JSON, and a table with one line a column and client."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kernfed import files
from kernfed.methods.describe.finding import ColumnFacts, DescribeFinding

JSON: Final = "describe.json"
CSV: Final = "describe.csv"
ALL = "all"
"""In the column `client` of the table: the rows of all clients."""


@dataclass(frozen=True, slots=True)
class DescribedTable:
    """What a job of the method leaves in the place of a model."""

    finding: DescribeFinding

    def save(self, folder: Path | str, *, durable: bool = True) -> None:
        """Write `describe.json` and `describe.csv` to a folder."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        told = json.dumps(self.finding.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
        files.replace(place / JSON, told.encode() + b"\n", durable=durable)
        files.replace(place / CSV, self.csv().encode(), durable=durable)

    def csv(self) -> str:
        """The table: a line for each column, of all rows and of each client's."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        quantiles = [f"quantile_{level:g}" for level in self.finding.levels]
        writer.writerow(
            ["column", "client", "rows", "gaps", "mean", "deviation", "smallest", *quantiles, "greatest", "values"]
        )
        for client, facts in ((ALL, self.finding.pooled), *self.finding.clients.items()):
            writer.writerows(_line(client, found, len(quantiles)) for found in facts)
        return out.getvalue()


def _line(client: str, found: ColumnFacts, num_quantiles: int) -> list[object]:
    quantiles: list[object] = [*found.quantiles] or [None] * num_quantiles
    values = "; ".join(f"{count} x {value}" for value, count in found.values.items())  # a number first: no formula
    return [
        found.column,
        client,
        found.rows,
        found.gaps,
        found.mean,
        found.deviation,
        found.smallest,
        *quantiles,
        found.greatest,
        values,
    ]
