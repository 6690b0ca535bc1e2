"""Figure 1 of the personalisation paper: linear clients of two opposite groups that disperse as sigma_c² grows.

Section 6.1 with Table 1: 100 clients of 10 rows in 20 dimensions, noise variance 2, every client a target. The paper's
figure has no printed values. Beside `local`, FedAvg and Q-aggregation as printed (its embedding, its constants, its
solver) stand the same with the best ridge that their test rows show in hindsight, so does the oracle (the client's own
group), and the default, which sees no test row. All run on the same draws.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
from personalise.common import Floats, in_hindsight, line, make_job, parser, run_job
from records import announce, of_size, write
from tables import show, subplots

from kernfed_simulation.federation import Rows

VARIANCES: tuple[float, ...] = tuple(i / 10 for i in range(11))
SEVEN: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
SECONDS = 0.1
"""Processor time of a client, a level and a draw, about."""
NUM_CLIENTS, NUM_ROWS, NUM_COLUMNS, NUM_TEST = 100, 10, 20, 1000
DEFAULT, PAPER = "default (crossfit)", "Q-aggregation, as printed"
Integers = npt.NDArray[np.int64]
BEST = ", best ridge"
METHODS = ("local", "local" + BEST, "fedavg", "fedavg" + BEST, "oracle" + BEST, PAPER, PAPER + BEST, DEFAULT)
SHOWN = ("local" + BEST, "fedavg" + BEST, "oracle" + BEST, PAPER + BEST, DEFAULT)


def draw(variance: float, num_clients: int, seed: int) -> tuple[dict[str, Rows], Integers]:
    """Rows by client (equations 20 and 21), and each client's group."""
    random = np.random.default_rng([seed, round(1000 * variance)])
    group = random.choice([-1, 1], num_clients)
    common = random.normal(size=NUM_COLUMNS)
    own = np.sqrt(variance) * random.normal(size=(num_clients, NUM_COLUMNS))
    beta = group[:, None] * np.sqrt(1 - variance) * common + own
    rows = {}
    for k in range(num_clients):
        x = 1.0 + random.normal(size=(NUM_ROWS + NUM_TEST, NUM_COLUMNS))
        y = x @ beta[k] + np.sqrt(2.0) * random.normal(size=len(x))
        rows[f"c{k:03d}"] = Rows(x[:NUM_ROWS], y[:NUM_ROWS], x[NUM_ROWS:], y[NUM_ROWS:])
    return rows, group


def repeat(variance: float, num_clients: int, seed: int) -> tuple[dict[str, float], Floats]:
    """Mean test error over all clients of each method on one draw, and the default's weights."""
    rows, group = draw(variance, num_clients, seed)
    inputs = {c: (r.x_train, r.y_train, r.x_test, r.y_test) for c, r in rows.items()}
    ones = np.ones(NUM_COLUMNS)
    same = (group[:, None] == group[None, :]).astype(float)
    mixes = {
        "local": np.eye(num_clients),
        "fedavg": np.full((num_clients, num_clients), 1.0 / num_clients),
        "oracle": same / same.sum(axis=1, keepdims=True),
    }
    features = {"kernel": "linear", "intercept": False}
    plain: dict[str, dict[str, Any]] = {"features": features, "data": {"standardise": False}}
    printed = {
        "weights": "paper",
        "scale_columns": False,
        "lengthscales": [float(np.sqrt(NUM_COLUMNS + 1)), 1.0],
        "ridge": 1e-3,
    }
    paper = run_job(make_job("concept-shift", NUM_COLUMNS, seed, printed, **plain), rows)
    default = run_job(make_job("concept-shift", NUM_COLUMNS, seed, {}, **plain), rows)
    mixes[PAPER] = paper.weights
    found = {method + BEST: float(in_hindsight(mix, inputs, ones).mean()) for method, mix in mixes.items()}
    for method, ran, model in (
        ("local", paper, "local"),
        ("fedavg", paper, "global"),
        (PAPER, paper, "personal"),
        (DEFAULT, default, "personal"),
    ):
        found[method] = float(ran.scores(model).mean())
    order = np.argsort(group, kind="stable")
    return found, default.weights[np.ix_(order, order)]


def main() -> None:
    """Run, print, and write JSON and a plot."""
    made = parser(__doc__, repetitions=100)
    made.add_argument("--levels", nargs="+", type=float, help="values of sigma_c^2 (default: 0, 0.1, ... 1)")
    options = made.parse_args()
    num_clients, draws, levels = of_size(
        options, quick=(16, 2, SEVEN), middle=(NUM_CLIENTS, 4, SEVEN), paper=(NUM_CLIENTS, 100, VARIANCES)
    )
    repetitions, variances = options.repetitions or draws, tuple(options.levels or levels)
    runs = len(variances) * repetitions
    announce(runs * num_clients * NUM_ROWS, runs * num_clients * 4, runs * num_clients * SECONDS)
    lines = []
    measured: dict[str, list[list[float]]] = {method: [] for method in METHODS}
    shown: dict[float, Floats] = {}
    for variance in variances:
        began = time.monotonic()
        drawn = [repeat(variance, num_clients, seed) for seed in range(repetitions)]
        shown[variance] = drawn[0][1]
        default = [found[DEFAULT] for found, _ in drawn]
        rows = []
        for method in METHODS:
            values = [found[method] for found, _ in drawn]
            measured[method].append(values)
            rows.append(line(f"sigma_c^2 = {variance:g}", method, values, against=() if method == DEFAULT else default))
        show(rows)
        print(f"  ({time.monotonic() - began:.0f} s)", flush=True)
        lines += rows
    fig, axes = subplots(3)
    for method in SHOWN:
        curve = np.array(measured[method])
        error = curve.std(axis=1, ddof=1) / np.sqrt(repetitions) if repetitions > 1 else np.zeros(len(curve))
        axes[0, 0].errorbar(variances, curve.mean(axis=1), error, marker="o", capsize=3, label=method)
    axes[0, 0].set_yscale("log")
    axes[0, 0].set_xlabel("intra-group variance")
    axes[0, 0].set_ylabel("mean squared error, all clients")
    axes[0, 0].legend(fontsize=8)
    for ax, variance in zip(axes[0, 1:], (min(variances), max(variances)), strict=True):
        ax.imshow(shown[variance], cmap="Greys", norm="log", vmin=1e-4, vmax=1.0)
        ax.set_title(f"default's weights, variance {variance:g}, clients by group", fontsize=9)
    write(lines, options, "personalise-concept-shift", fig)


if __name__ == "__main__":
    main()
