"""Writes `data/`: three made exports of examples/heart, each in the way of another information system.

The patients are those of examples/heart. Made here are the ways of writing, the days of the visits (drawn evenly from
four years, so they tell nothing), the gaps of `smoker`, and who smokes.
"""

from __future__ import annotations

import csv
import datetime
import random
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEART = HERE.parent / "heart" / "data"
PAIN = {"1": "typical", "2": "atypical", "3": "non-anginal", "4": "none"}
EKG = {"0": "normal", "1": "st-t", "2": "hypertrophy"}
FIRST_DAY = datetime.date(2019, 1, 1)

Row = dict[str, str]


def patients(hospital: str) -> list[Row]:
    """The rows of a hospital, with a day and a smoker's yes or no, or neither."""
    drawn = random.Random(hospital)  # made data
    with (HEART / f"{hospital}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["seen"] = (FIRST_DAY + datetime.timedelta(days=drawn.randrange(1461))).isoformat()
        row["smoker"] = drawn.choice(["yes", "yes", "no", "no", "no", ""])
    return rows


def cleveland(row: Row) -> Row:
    """Letters and points, as the job has its names."""
    sex = {"0": "F", "1": "M"}[row["sex"]]
    kept = {name: row[name] for name in ("age", "trestbps", "chol", "thalach", "oldpeak", "seen", "smoker")}
    words = {"cp": PAIN[row["cp"]], "restecg": EKG.get(row["restecg"], "")}
    return {
        "sex": sex,
        **kept,
        **words,
        "exang": {"0": "no", "1": "yes"}.get(row["exang"], ""),
        "disease": row["disease"],
    }


def hungarian(row: Row) -> Row:
    """Words in another language, commas, mmol/l, and -9 for what was not recorded."""
    chol = f"{float(row['chol']) * 0.02586:.2f}".replace(".", ",") if row["chol"] else "-9"
    day = datetime.date.fromisoformat(row["seen"])
    return {
        "Nem": {"0": "nő", "1": "férfi"}[row["sex"]],
        "Kor": row["age"],
        "Mellkasi fájdalom": {"1": "I", "2": "II", "3": "III", "4": "IV"}[row["cp"]],
        "RR": row["trestbps"] or "-9",
        "Koleszterin": chol,
        "EKG": row["restecg"] or "-9",
        "Pulzus": row["thalach"] or "-9",
        "Angina": {"0": "nem", "1": "igen"}.get(row["exang"], "-9"),
        "ST": row["oldpeak"].replace(".", ","),
        "Dátum": day.strftime("%Y.%m.%d."),
        "Dohányzik": {"no": "nem", "yes": "igen"}.get(row["smoker"], "-9"),
        "Betegség": {"0": "nem", "1": "igen"}[row["disease"]],
    }


def va(row: Row) -> Row:
    """Codes, days with the month first, and a unit in the cells."""
    day = datetime.date.fromisoformat(row["seen"])
    return {
        "PATIENT_SEX": row["sex"],
        "AGE": row["age"],
        "CP": row["cp"],
        "SBP": row["trestbps"],
        "CHOL": row["chol"],
        "ECG": row["restecg"],
        "HR": row["thalach"],
        "EXANG": {"0": "false", "1": "true"}.get(row["exang"], "unknown"),
        "OLDPEAK": row["oldpeak"],
        "VISIT": day.strftime("%m/%d/%Y"),
        "SMOKES": row["smoker"] or "unknown",
        "DISEASE": row["disease"],
    }


EXPORTS: dict[str, tuple[Callable[[Row], Row], str]] = {
    "cleveland": (cleveland, ","),
    "hungarian": (hungarian, ";"),
    "va": (va, "\t"),
}
"""Hospital to how it writes a row, and what separates columns."""


def write(folder: Path) -> None:
    """Write all exports."""
    folder.mkdir(exist_ok=True)
    for hospital, (written, delimiter) in EXPORTS.items():
        rows = [written(row) for row in patients(hospital)]
        with (folder / f"{hospital}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    write(HERE / "data")
