"""Table 4 of the FedNewton paper on six of its eight data sets: published against measured.

The paper's setting: 2000 features M^-1/2 cos(Omega'x + b), where Table 3's sigma^2 is the standard deviation of
Omega; one-hot least squares with Table 3's ridge; 10 clients; all test rows. Table 4's figures are those of near-iid
splits: sizes drawn from Dir(1), labels shuffled (usps: iid). Under true label skew, each class dealt out by Dir(0.5),
the paper's step collapses at the same ridge, and the default does not: the last settings show it. FedAvg (two local
steps at Table 3's rate) and FedProx (in closed form) begin at DKRR and take eight rounds; the paper leaves out how many
it takes.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from data_sets import arrays
from newton.common import Compared, FirstOrder, compare, told_stops
from records import add_sizes, announce, entry, of_size, write
from tables import subplots

from kernfed.jobs.job_file import JobFile
from kernfed_simulation.federation import Rows, from_rows
from kernfed_simulation.partition import Partitioning, Scheme, client_names, deal

NUM_CLIENTS = 10
STEPS = (1, 2, 4, 8)
"""Steps t of "FedNewton #t" that are reported."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """A data set with Table 3's parameters and Table 4's figures."""

    data: str
    frequency_scale: float
    ridge: float
    first_order: FirstOrder
    published: dict[str, float]


_STEPS = ("DKRR", "FedAvg", "FedProx", "#1", "#2", "#4", "#8")
PROBLEMS = {
    name: Problem(name, scale, ridge, FirstOrder(rate, proximal), dict(zip(_STEPS, published, strict=True)))
    for name, scale, ridge, rate, proximal, published in (
        ("dna", 0.001, 1e-7, 1e-3, 1e-8, (90.91, 91.09, 89.42, 92.23, 91.96, 92.02, 88.19)),
        ("letter", 1.0, 1e-3, 1e-3, 1e-3, (77.18, 77.11, 77.17, 77.30, 77.30, 77.30, 77.30)),
        ("pendigits", 0.01, 1e-4, 1e-4, 1e-4, (97.12, 97.12, 97.12, 97.29, 97.31, 97.31, 97.23)),
        ("satimage", 1.0, 1e-3, 1e-3, 1e-3, (87.70, 87.84, 87.74, 88.49, 88.26, 88.31, 88.31)),
        ("shuttle", 10.0, 1e-3, 1e-3, 1e-3, (98.46, 98.53, 98.51, 98.54, 98.51, 98.50, 98.44)),
        ("usps", 0.1, 1e-4, 1e-3, 1e-4, (92.95, 92.95, 92.95, 93.49, 93.24, 93.28, 93.30)),
    )
}


@dataclass(frozen=True)
class Setting:
    """A data set, dealt out in one way."""

    problem: Problem
    partitioning: Partitioning
    label: str
    has_published: bool = True

    @property
    def name(self) -> str:
        """As printed and stored."""
        return f"{self.problem.data}, {self.label}"


def settings(sets: list[str]) -> list[Setting]:
    """Table 4's rows, then label skew."""
    quantity = Partitioning(Scheme.QUANTITY, alpha=1.0)
    skew = Partitioning(Scheme.DIRICHLET, alpha=0.5)
    found = [
        Setting(PROBLEMS[s], Partitioning(Scheme.IID), "iid")
        if s == "usps"
        else Setting(PROBLEMS[s], quantity, "quantity skew Dir(1)")
        for s in sets
    ]
    return found + [
        Setting(PROBLEMS[s], skew, "label skew Dir(0.5)", has_published=False) for s in sets if s in ("dna", "satimage")
    ]


def load(name: str) -> tuple[Floats, npt.NDArray[np.int64], Floats, npt.NDArray[np.int64]]:
    """Rows in LIBSVM's form: training x and y, test x and y."""
    file = arrays(name)
    x, xt = file["X_train"].astype(np.float64), file["X_test"].astype(np.float64)
    y, yt = file["y_train"].astype(np.int64), file["y_test"].astype(np.int64)
    if name == "usps":
        return _smooth(x), y, _smooth(xt), yt
    if name not in ("dna", "pendigits"):
        low, span = x.min(axis=0), np.ptp(x, axis=0)
        x, xt = (2 * (a - low) / span - 1 for a in (x, xt))
    return x, y, xt, yt


def _smooth(x: Floats) -> Floats:
    """LIBSVM's usps: the digits smoothed by a Gaussian of 0.75 pixels."""
    from scipy.ndimage import gaussian_filter

    pixels = x.reshape(-1, 16, 16)
    smooth: Floats = gaussian_filter(pixels, (0, 0.75, 0.75), mode="constant", cval=-1, truncate=8)
    return smooth.reshape(-1, 256)


def make_job(problem: Problem, num_columns: int, num_classes: int, num_features: int, seed: int) -> JobFile:
    """What Table 3 asks for, as a job."""
    return JobFile.model_validate(
        {
            "name": f"table4-{problem.data}",
            "seed": seed,
            "method": {"name": "newton", "ridge": problem.ridge},
            "data": {
                "task": "classification",
                "target": "class",
                "features": [f"x{i}" for i in range(num_columns)],
                "classes": [str(c) for c in range(num_classes)],
                "standardise": False,
            },
            "features": {
                "form": "half-cosine",
                "origin": "zero",
                "num_frequencies": num_features,
                "lengthscale": 1.0 / problem.frequency_scale,
                "intercept": False,
            },
        }
    )


async def repeat(setting: Setting, num_features: int, seed: int) -> Compared:
    """One draw: KRR, DKRR, FedAvg, FedProx, the paper's step and the default on the same partition and features."""
    problem = setting.problem
    x, y, xt, yt = load(problem.data)
    num_classes = int(y.max()) + 1
    job = make_job(problem, x.shape[1], num_classes, num_features, seed)
    names = client_names(NUM_CLIENTS)
    train = deal(setting.partitioning, len(x), [str(c) for c in y], NUM_CLIENTS, seed)
    test = dict(zip(names, np.array_split(np.arange(len(xt)), NUM_CLIENTS), strict=True))
    rows = {n: Rows(x[train[n]], y[train[n]], xt[test[n]], yt[test[n]]) for n in names}
    with tempfile.TemporaryDirectory() as state:
        jobs = from_rows(rows, tuple(str(c) for c in range(num_classes)), Path(state))
        return await compare(job, jobs, STEPS, problem.first_order)


def table(setting: Setting, repetitions: list[Compared]) -> Iterator[dict[str, Any]]:
    """Rows of the table: mean accuracy in percent over the repetitions."""
    for method in repetitions[0].scores:
        name = f"FedNewton {method}" if method[0] in "#d" else method
        published = setting.problem.published.get(method) if setting.has_published else None
        yield entry(setting.name, name, published, [100 * r.scores[method]["accuracy"] for r in repetitions])


def plot(results: list[tuple[Setting, list[Compared]]]) -> Any:
    """Published against measured, and what label skew does to the paper's step and to the default."""
    columns = min(3, len(results))
    rows = math.ceil(len(results) / columns)
    fig, axes = subplots(columns, rows, width=3.8, height=3.6)
    for ax in axes.flat[len(results) :]:
        ax.set_visible(False)
    for ax, (setting, repetitions) in zip(axes.flat, results, strict=False):
        methods = list(repetitions[0].scores)
        values = np.array([[100 * r.scores[m]["accuracy"] for m in methods] for r in repetitions])
        deviation = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(len(methods))
        ax.errorbar(methods, values.mean(axis=0), deviation, fmt="o", color="tab:blue", capsize=3, label="measured")
        if setting.has_published:
            known = [m for m in methods if m in setting.problem.published]
            ax.plot(known, [setting.problem.published[m] for m in known], "x", color="black", ms=8, label="published")
        ax.set_title(setting.name, fontsize=9)
        ax.set_ylabel("accuracy (%)")
        ax.tick_params(axis="x", rotation=70, labelsize=8)
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
    return fig


def main() -> None:
    """Run, print, and write JSON and a plot to experiments/out/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", nargs="+", choices=sorted(PROBLEMS), default=list(PROBLEMS), help="data sets")
    parser.add_argument("--repetitions", type=int, help="draws of features and partition (default 10)")
    parser.add_argument("--features", type=int, default=2000, help="random features M (the paper: 2000)")
    add_sizes(parser, "200 features, one repetition: shows that it runs")
    options = parser.parse_args()
    if options.features < 1 or (options.repetitions is not None and options.repetitions < 1):
        parser.error("--repetitions and --features must be at least 1")
    num_features = 200 if options.quick else options.features
    num_repetitions = options.repetitions or of_size(options, quick=1, middle=2, paper=10)
    chosen = settings(options.set)
    rows = {name: len(load(name)[1]) for name in options.set}
    models = len(chosen) * num_repetitions * (len(_STEPS) + 2)
    announce(sum(rows[setting.problem.data] for setting in chosen), models)

    results: list[tuple[Setting, list[Compared]]] = []
    lines: list[dict[str, Any]] = []
    for setting in chosen:
        start = time.monotonic()
        repetitions = [asyncio.run(repeat(setting, num_features, seed)) for seed in range(num_repetitions)]
        results.append((setting, repetitions))
        print(
            f"\n{setting.name}  (M = {num_features}, {num_repetitions} repetitions, {time.monotonic() - start:.0f} s)"
        )
        print(f"  {'method':<28}{'published':>10}{'measured':>10}")
        for line in table(setting, repetitions):
            lines.append(line)
            published = "-" if line["published"] is None else f"{line['published']:.2f}"
            print(f"  {line['method']:<28}{published:>10}{line['measured']:>10.2f}")
        if stops := told_stops(repetitions):
            print(stops)
    write(lines, options, "newton-table4", plot(results))


if __name__ == "__main__":
    main()
