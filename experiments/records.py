"""Records of experiments: one JSON a table, with what was measured beside what was published, and on what it ran.

Those in `experiments/records/` are in the repository; `make docs` writes their tables into `docs/results/records.md`.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from kernfed.numeric_platform import numeric_platform

Size = TypeVar("Size")
HERE = Path(__file__).resolve().parent
RECORDS, OUT = HERE / "records", HERE / "out"
_STARTED = time.monotonic()
_NOT_OF_THE_RESULT = ("out", "quick")
_WIDE = 3.0
"""Standard errors by which a measurement may differ from its record."""
_ONE_DRAW = 0.1
"""Relative difference that stands for an error where there is one draw."""


def entry(
    setting: str, method: str, published: float | None, values: Sequence[float] | Any, **more: Any
) -> dict[str, Any]:
    """A row of a table: the mean over draws, with its standard error where there are several.

    Args:
        setting: What was measured, e.g. data set, sizes and metric.
        method: Of which method.
        published: The figure in the paper.
        values: Of each draw; NaN: it could not be measured.
        more: Further columns.
    """
    given = np.asarray(values, dtype=np.float64)
    found = given[~np.isnan(given)]
    mean = float(found.mean()) if len(found) else math.nan
    error = float(found.std(ddof=1) / math.sqrt(len(found))) if len(found) > 1 else math.nan
    return {
        "setting": setting,
        "method": method,
        "published": published,
        "measured": None if math.isnan(mean) else float(f"{mean:.5g}"),
        "standard_error": None if math.isnan(error) else float(f"{error:.2g}"),
        "draws": len(found),
        **more,
    }


def write(lines: Sequence[Mapping[str, Any]], options: argparse.Namespace, name: str, figure: Any = None) -> None:
    """Write the record of a table, and its picture, into the folder `--out`."""
    options.out.mkdir(parents=True, exist_ok=True)
    given = {k: v for k, v in vars(options).items() if k not in _NOT_OF_THE_RESULT and v not in (None, False)}
    record = {
        "name": name,
        "reduced": bool(options.quick),
        "arguments": {k: v if isinstance(v, int | float | list) else str(v) for k, v in sorted(given.items())},
        "seconds": round(time.monotonic() - _STARTED, 1),
        "processor_seconds": round(time.process_time(), 1),
        "versions": {package: version(package) for package in ("kernfed", "numpy", "scipy", "torch")},
        "platform": str(numeric_platform()),
        "rows": list(lines),
    }
    path = options.out / f"{name}.json"
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    print(f"\nwritten: {path}")
    if figure is not None:
        figure.savefig(options.out / f"{name}.png", dpi=130)
        print(f"written: {options.out / name}.png")


def announce(rows: int, models: int, seconds: float | None = None) -> None:
    """Say before an experiment starts what it takes.

    Args:
        rows: Of all data sets, over all clients.
        models: That are trained, over all draws.
        seconds: Of one processor core, about; None where it was not measured.
    """
    told = "how long they take was not measured"
    if seconds is not None:
        length, unit = next(((s, u) for s, u in ((3600, "h"), (60, "min")) if seconds > 2 * s), (1, "s"))
        told = f"about {float(f'{seconds / length:.2g}'):g} {unit} on one core"
    print(f"{rows:,} rows, {models:,} models; {told}", flush=True)


def add_sizes(parser: argparse.ArgumentParser, quick: str = "few draws of small problems: shows that it runs") -> None:
    """Options for the size of an experiment; without one it is that of the paper.

    Args:
        parser: Of the experiment.
        quick: What is small with --quick.
    """
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--quick", action="store_true", help=quick)
    sizes.add_argument("--middle", action="store_true", help="a size between --quick and the paper's")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for JSON and plot")


def of_size(options: argparse.Namespace, *, quick: Size, middle: Size, paper: Size) -> Size:
    """What suits the size that was asked for."""
    return quick if options.quick else middle if options.middle else paper


@dataclass(frozen=True)
class Difference:
    """A number that is not that of the record."""

    setting: str
    method: str
    measured: float | None
    recorded: float | None

    def __str__(self) -> str:
        return f"{self.setting}, {self.method}: {self.measured}, and {self.recorded} is recorded"


def differences(found: Mapping[str, Any], record: Mapping[str, Any]) -> list[Difference]:
    """Numbers of a table that differ from its record by more than their errors; seconds and memory are not compared.

    Two numbers of several draws may differ by three standard errors, and by a tenth where one has a single draw.
    """
    known = {(line["setting"], line["method"]): line for line in record["rows"]}
    apart = []
    for line in found["rows"]:
        other = known.get((line["setting"], line["method"]))
        if other is None or "second" in line["setting"] or "MiB" in line["setting"]:
            continue
        one, two = line["measured"], other["measured"]
        if one is None or two is None:
            if one is not two:
                apart.append(Difference(line["setting"], line["method"], one, two))
            continue
        errors = [line["standard_error"], other["standard_error"]]
        allowed = _ONE_DRAW * max(abs(one), abs(two)) if None in errors else _WIDE * math.hypot(*errors)
        if abs(one - two) > allowed + 1e-4 * abs(two):
            apart.append(Difference(line["setting"], line["method"], one, two))
    return apart
