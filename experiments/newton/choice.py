"""Ridge and lengthscale chosen by folds of the training rows, beside the rules and beside the best in hindsight.

The global model of `newton` on random features: with the ridge by rows and the median lengthscale; with its default,
which chooses the ridge from 1,000 rows on; with both chosen; and, of a grid, the one of the least error on the test
rows, which no job may see. Hospitals and stations are the clients of heart and air; rows of the other sets are dealt
out to six by chance, up to 3,000 for training. Errors are mean squares over the targets' variance, of classes of their
indicators; of classes the rate of wrong rows follows.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from data_sets import arrays
from records import HERE, OUT, entry, write

from kernfed.features.ridge_rule import ridge_by_rows
from kernfed.features.spec import FeatureSpec
from kernfed.jobs.job_file import JobFile
from kernfed.maths.choosing.by_folds import held_out, ridges_around
from kernfed.tensors.feature_maps import FeatureMap
from kernfed_client.data.fold_sums import sums_by_fold
from kernfed_simulation.federation import Rows, from_rows
from kernfed_simulation.run import simulate

Floats = npt.NDArray[np.float64]

HEART = HERE.parent / "examples" / "heart" / "data"
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
SETS = ("letter", "pendigits", "satimage", "usps", "heart", "air")
NUM_CLIENTS, MOST_TRAINING, MOST_TEST = 6, 3000, 2000
BY_RULE, DEFAULT, CHOSEN, HINDSIGHT = "by rows, median", "default", "both chosen", "in hindsight"
JOBS: Mapping[str, tuple[str, str]] = {
    BY_RULE: ("by-rows", "median"),
    DEFAULT: ("auto-if-many", "median"),
    CHOSEN: ("auto", "auto"),
}
"""Of each, `method.ridge` and `features.lengthscale`."""
HINDSIGHT_TIMES = (0.25, 0.5, 1.0, 2.0)
"""Medians, of which the best in hindsight is one."""


def clients_of(name: str, seed: int) -> tuple[dict[str, Rows], int]:
    """Rows by client, and the number of classes; 0: targets are numbers."""
    random = np.random.default_rng([seed, 4])
    if name == "heart":
        return {hospital: _hospital(hospital, random) for hospital in HOSPITALS}, 2
    if name == "air":
        return _stations(random), 0
    file = arrays(name)
    x, y = (np.concatenate([file[f"{what}_train"], file[f"{what}_test"]]) for what in ("X", "y"))
    order = random.permutation(len(x))
    cut = min(MOST_TRAINING, 3 * len(x) // 4)
    parts = [np.array_split(rows, NUM_CLIENTS) for rows in (order[:cut], order[cut : cut + MOST_TEST])]
    x, y = x.astype(np.float64), y.astype(np.int64)
    found = {
        f"site-{i}": Rows(x[train], y[train], x[test], y[test])
        for i, (train, test) in enumerate(zip(*parts, strict=True))
    }
    return found, int(y.max()) + 1


def _hospital(name: str, random: np.random.Generator) -> Rows:
    """Complete rows; a quarter is for testing."""
    with (HEART / f"{name}.csv").open() as file:
        whole = np.array([[float(v) for v in row.values()] for row in csv.DictReader(file) if all(row.values())])
    whole = whole[random.permutation(len(whole))]
    x, y, cut = whole[:, :-1], whole[:, -1].astype(np.int64), len(whole) // 4
    return Rows(x[cut:], y[cut:], x[:cut], y[:cut])


def _stations(random: np.random.Generator) -> dict[str, Rows]:
    """PM2.5 at 12 stations from what else is measured: 160 hours of each for training, 160 for testing."""
    file = arrays("beijing_air")
    x = np.moveaxis(file["x"], 0, 2) / file["scale"]
    found = {}
    for name, part in zip(file["stations"], x, strict=True):
        rows = part[random.permutation(len(part))[:320]]
        columns, target = rows[:, 1:], rows[:, 0]
        found[str(name).lower()] = Rows(columns[:160], target[:160], columns[160:], target[160:])
    return found


def make_job(method: str, num_columns: int, num_classes: int, num_features: int, seed: int) -> JobFile:
    """A `newton` job, by one of `JOBS`."""
    ridge, lengthscale = JOBS[method]
    task = {0: "regression", 2: "binary"}.get(num_classes, "classification")
    data = {"task": task, "target": "y", "features": [f"x{i}" for i in range(num_columns)]}
    return JobFile.model_validate(
        {
            "name": "choice",
            "seed": seed,
            "method": {"name": "newton", "ridge": ridge, "rounds": 10, "tolerance": 1e-4},
            "data": data | ({"classes": [str(c) for c in range(num_classes)]} if num_classes else {}),
            "features": {"num_frequencies": num_features, "lengthscale": lengthscale},
        }
    )


def measure(name: str, num_features: int, seed: int) -> dict[str, tuple[float, float]]:
    """Of each method the error over the targets' variance, and the rate of wrong rows, NaN of numbers."""
    rows, num_classes = clients_of(name, seed)
    found, spec = {}, None
    test = _pooled(rows, num_classes, test=True)[1]
    variance = float(np.square(test - test.mean(axis=0)).sum(axis=1).mean())
    for method in JOBS:
        job = make_job(method, next(iter(rows.values())).x_train.shape[1], num_classes, num_features, seed)
        with tempfile.TemporaryDirectory() as state:
            done = simulate(job, from_rows(rows, tuple(str(c) for c in range(num_classes)), Path(state)))
        assert done.model is not None, done.error
        scores = done.final.pooled["global"]
        print(f"  {method}: lengthscale {done.model.spec.lengthscales[0]:.3g}, ", end="")
        print(f"ridge {done.model.job['method']['ridge']:.3g}", flush=True)
        found[method] = scores["mse"] / variance, 1.0 - scores.get("accuracy", float("nan"))
        spec = spec or done.model.spec
    assert spec is not None
    found[HINDSIGHT] = in_hindsight(rows, num_classes, spec) / variance, float("nan")
    return found


def in_hindsight(rows: Mapping[str, Rows], num_classes: int, spec: FeatureSpec) -> float:
    """Least mean square error on the test rows, of pooled solutions on all training rows."""
    (x, y), (xt, yt) = (_pooled(rows, num_classes, test=test) for test in (False, True))
    mean, deviation = x.mean(axis=0), np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
    both, targets = (np.concatenate([x, xt]) - mean) / deviation, np.concatenate([y, yt])
    fold = np.repeat([0, 1], [len(x), len(xt)])
    ridges, least = ridges_around(ridge_by_rows(spec, len(x))), []
    for times in HINDSIGHT_TIMES:
        scaled = replace(spec, lengthscales=(times * spec.lengthscales[0],))
        told = held_out([sums_by_fold(FeatureMap(scaled), both, targets, fold, 2)], [1.0], ridges, intercept=True)
        least.append(float(told.errors[:, 1].min() / told.rows[1]))
    return min(least)


def _pooled(rows: Mapping[str, Rows], num_classes: int, *, test: bool) -> tuple[Floats, Floats]:
    """All clients' rows, and their targets as columns: of two classes one."""
    x = np.concatenate([r.x_test if test else r.x_train for r in rows.values()])
    y = np.concatenate([r.y_test if test else r.y_train for r in rows.values()])
    if num_classes <= 2:
        return x, y[:, None].astype(np.float64)
    return x, np.eye(num_classes)[y]


def main(arguments: list[str] | None = None) -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two draws of 100 features, of the small sets alone")
    parser.add_argument("--draws", type=int, default=3, help="draws of rows and features")
    parser.add_argument("--features", type=int, default=500)
    parser.add_argument("--set", nargs="+", choices=SETS, default=[*SETS])
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the record")
    options = parser.parse_args(arguments)
    if options.quick:
        options.draws, options.features, options.set = 2, 100, [s for s in options.set if s in ("heart", "air")]
    lines = []
    for name in options.set:
        drawn = []
        for seed in range(options.draws):
            print(f"{name}, draw {seed}", flush=True)
            drawn.append(measure(name, options.features, seed))
        for method in (*JOBS, HINDSIGHT):
            error, wrong = (np.array([of[method][i] for of in drawn]) for i in (0, 1))
            lines.append(entry(f"{name}, error", method, None, error))
            if not np.isnan(wrong).any() and name not in ("heart", "air"):
                lines.append(entry(f"{name}, wrong rows", method, None, wrong))
        for method in (DEFAULT, CHOSEN):
            change = np.array([of[method][0] / of[BY_RULE][0] - 1.0 for of in drawn])
            lines.append(entry(f"{name}, change of the error", method, None, change))
        write(lines, options, "newton-choice")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
