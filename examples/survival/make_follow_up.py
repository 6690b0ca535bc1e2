"""Writes `data/`: a made follow-up of the patients of three hospitals of examples/heart.

The patients are those of examples/heart. Made here are the arm, the time and whether the patient died: nobody was
followed. The hazard rises with age and disease, falls with the arm `new`, and differs between hospitals.
"""

from __future__ import annotations

import csv
import math
import random
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEART = HERE.parent / "heart" / "data"
SCALE = {"cleveland": 2600.0, "hungarian": 3400.0, "va": 1500.0}
"""Days, by hospital: where most of the times would be without age and disease."""
COLUMNS = ("age", "sex", "disease", "arm", "days", "died")

Row = dict[str, str]


def followed(hospital: str) -> list[Row]:
    """The rows of a hospital, with an arm, days and an outcome."""
    drawn = random.Random(f"follow-up of {hospital}")  # made data
    with (HEART / f"{hospital}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = []
    for row in rows:
        arm = drawn.choice(["usual", "new"])
        risk = 0.04 * (float(row["age"]) - 55.0) + 0.7 * float(row["disease"]) - 0.5 * (arm == "new")
        true = SCALE[hospital] * (-math.log(1.0 - drawn.random()) * math.exp(-risk)) ** 0.8
        seen = drawn.uniform(200.0, 3000.0)
        days = max(1, round(min(true, seen)))
        died = "yes" if true <= seen else "no"
        found.append(
            {**{name: row[name] for name in ("age", "sex", "disease")}, "arm": arm, "days": str(days), "died": died}
        )
    return found


def write(folder: Path) -> None:
    """Write one file for each hospital."""
    folder.mkdir(parents=True, exist_ok=True)
    for hospital in SCALE:
        with (folder / f"{hospital}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(followed(hospital))


if __name__ == "__main__":
    write(HERE / "data")
