"""Figures 3 and 4 of the FedNewton paper on its synthetic data: few rows a client, other inputs, other functions.

y = min(-w'x, w'x) + noise of variance 0.2, x of 10 columns; client j's inputs have the mean u_j ~ N(0, alpha I), its
weights are w_j ~ N(1, v_j) with v_j ~ N(0, beta), of which the absolute value is taken, as a variance. 10,000 training
rows, 2,500 test rows of the same laws, 200 features M^-1/2 cos(Omega'x + b), ridge 1e-6 (Table 3). The figures print no
numbers. The text says: below 200 rows a client more steps of the paper hurt, from 260 on they help; they help where
alpha and beta are small and hurt where alpha is large.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from newton.common import Compared, compare, told_stops
from records import add_sizes, announce, entry, of_size, write
from tables import show, subplots

from kernfed import rng
from kernfed.jobs.job_file import JobFile
from kernfed_simulation.federation import Rows, from_rows
from kernfed_simulation.partition import client_names

STEPS = (1, 2, 4, 8)
NUM_COLUMNS = 10
NUM_TRAIN, NUM_TEST = 10_000, 2_500
NOISE = 0.2

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """Sizes and how much clients differ."""

    panel: str
    num_clients: int
    alpha: float = 0.0
    beta: float = 0.0

    @property
    def at(self) -> float:
        """Where it stands on its panel's axis."""
        return {"inputs": self.alpha, "functions": self.beta}.get(self.panel, NUM_TRAIN // self.num_clients)

    @property
    def name(self) -> str:
        """As printed and stored."""
        axis = {"inputs": "alpha", "functions": "beta"}.get(self.panel, "rows a client")
        return f"{self.panel}, {axis} {self.at:g}"


SETTINGS = (
    *(Setting("rows", m) for m in (20, 40, 50, 63, 100)),
    *(Setting("inputs", 20, alpha=a) for a in (0.01, 0.05, 0.2)),
    *(Setting("functions", 20, beta=b) for b in (0.001, 0.01, 0.1)),
)


def rows_of(setting: Setting, num_rows: int, seed: int) -> dict[str, Rows]:
    """Client to its rows, training rows first."""
    found = {}
    for j, name in enumerate(client_names(setting.num_clients)):
        stream = rng.stream(seed, "experiment", "newton synthetic", str(j))
        mean = np.sqrt(setting.alpha) * stream.normal(NUM_COLUMNS)
        spread = np.sqrt(np.abs(np.sqrt(setting.beta) * stream.normal(NUM_COLUMNS)))
        weights = 1 + spread * stream.normal(NUM_COLUMNS)
        n = num_rows // setting.num_clients
        total = n + n // 4
        x = mean + stream.normal(total, NUM_COLUMNS)
        y = -np.abs(x @ weights) + np.sqrt(NOISE) * stream.normal(total)
        found[name] = Rows(x[:n], y[:n], x[n:], y[n:])
    return found


def make_job(num_features: int, seed: int) -> JobFile:
    """What Table 3 asks for, as a job."""
    return JobFile.model_validate(
        {
            "name": "newton-synthetic",
            "seed": seed,
            "method": {"name": "newton", "ridge": 1e-6},
            "data": {
                "task": "regression",
                "target": "y",
                "features": [f"x{i}" for i in range(NUM_COLUMNS)],
                "standardise": False,
            },
            "features": {
                "form": "half-cosine",
                "origin": "zero",
                "num_frequencies": num_features,
                "lengthscale": 10.0,
                "intercept": False,
            },
        }
    )


def run(setting: Setting, num_rows: int, num_features: int, seed: int) -> Compared:
    """One draw of rows and features."""
    with tempfile.TemporaryDirectory() as state:
        jobs = from_rows(rows_of(setting, num_rows, seed), (), Path(state))
        return asyncio.run(compare(make_job(num_features, seed), jobs, STEPS))


def main() -> None:
    """Run, print, and write JSON and a plot."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, help="draws of rows and features (default 10)")
    add_sizes(parser, "1,000 rows and 20 features: shows that it runs")
    options = parser.parse_args()
    num_rows, num_features, repetitions = of_size(
        options, quick=(1_000, 20, 1), middle=(NUM_TRAIN, 200, 3), paper=(NUM_TRAIN, 200, 10)
    )
    repetitions = options.repetitions or repetitions
    chosen = SETTINGS[::4] if options.quick else SETTINGS
    announce(num_rows * len(chosen) * repetitions, len(chosen) * repetitions * (len(STEPS) + 3))
    lines: list[dict[str, Any]] = []
    found: dict[Setting, list[Compared]] = {}
    for setting in chosen:
        found[setting] = [run(setting, num_rows, num_features, seed) for seed in range(repetitions)]
        methods = found[setting][0].scores
        of_setting = [
            entry(f"{setting.name}, MSE", method, None, [c.scores[method]["mse"] for c in found[setting]])
            for method in methods
        ]
        show(of_setting)
        if stops := told_stops(found[setting]):
            print(stops)
        lines += of_setting
    panels = list(dict.fromkeys(s.panel for s in chosen))
    fig, (axes,) = subplots(len(panels), height=3.6)
    for panel, ax in zip(panels, axes, strict=True):
        of_panel = sorted((s for s in chosen if s.panel == panel), key=lambda s: s.at)
        for method in ("KRR", "DKRR", *(f"#{t}" for t in STEPS), "default"):
            values = [float(np.mean([c.scores[method]["mse"] for c in found[s]])) for s in of_panel]
            ax.plot([s.at for s in of_panel], values, "--" if method == "KRR" else "o-", label=method)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel(of_panel[0].name.partition(", ")[2].rpartition(" ")[0])
        ax.set_ylabel("mean squared error")
        ax.legend(fontsize=8)
    write(lines, options, "newton-synthetic", fig)


if __name__ == "__main__":
    main()
