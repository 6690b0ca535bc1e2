"""What Gaussian noise on the embeddings does to the weights: privacy, rows and frequencies against each other.

Two groups of six clients with opposite linear concepts in five columns. Each client adds noise to its mean embedding
that makes it (epsilon, delta)-differentially private, delta 1e-5, for the exchange of one row. Of n rows and D
frequencies the noise has the squared length D (2 sqrt(2) s/n)² in all, s falling with epsilon: with few rows and many
frequencies all others look far away, and a client stays alone. Told are the weight that a client keeps for itself, that
of others of its group, and that of the other group, which should be 0; and the test error. Columns are not scaled by
the clients, since their moments have no noise; x and y are drawn in units near 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from personalise.common import make_job, parser, run_job
from records import announce, entry, of_size, write
from tables import show, subplots

from kernfed.methods.personalise.noise import noise_factor
from kernfed_simulation.federation import Rows

NUM_CLIENTS, NUM_COLUMNS, NUM_TEST, DELTA = 12, 5, 200, 1e-5
EPSILONS = (None, 10.0, 3.0, 1.0, 0.3)
SIZES, FREQUENCIES = (100, 1000, 5000), (20, 500)
WEIGHTS: Mapping[str, dict[str, Any]] = {
    "Q-aggregation, as printed": {"weights": "paper"},
    "Q-aggregation, optimum": {"weights": "exact"},
}
UNSCALED = {"scale_columns": False, "trainer": "newton"}
Integers = npt.NDArray[np.int64]


def draw(num_rows: int, seed: int) -> tuple[dict[str, Rows], Integers]:
    """Rows by client, and each client's group."""
    random = np.random.default_rng([seed, num_rows])
    beta = random.normal(size=NUM_COLUMNS)
    group = np.arange(NUM_CLIENTS) % 2
    rows = {}
    for k in range(NUM_CLIENTS):
        x = random.normal(size=(num_rows + NUM_TEST, NUM_COLUMNS))
        y = (1 - 2 * group[k]) * (x @ beta) + random.normal(size=len(x))
        rows[f"c{k:02d}"] = Rows(x[:num_rows], y[:num_rows], x[num_rows:], y[num_rows:])
    return rows, group


def measure(weights: str, num_rows: int, frequencies: int, epsilon: float | None, seed: int) -> npt.NDArray[np.float64]:
    """Weight for itself, of others of the group, of the other group; test error. Means over clients."""
    rows, group = draw(num_rows, seed)
    noise = {} if epsilon is None else {"noise": {"epsilon": epsilon, "delta": DELTA}}
    method = {"num_frequencies": frequencies, **UNSCALED, **WEIGHTS[weights], **noise}
    sections: dict[str, dict[str, Any]] = {"features": {"kernel": "linear"}, "data": {"standardise": False}}
    ran = run_job(make_job("noise", NUM_COLUMNS, seed, method, **sections), rows)
    own = np.trace(ran.weights) / NUM_CLIENTS
    same = (ran.weights * (group[:, None] == group[None, :])).sum() / NUM_CLIENTS
    return np.array([own, same - own, 1.0 - same, ran.scores("personal").mean()])


def label(epsilon: float | None) -> str:
    """As printed."""
    return "no noise" if epsilon is None else f"epsilon {epsilon:g}"


def main() -> None:
    """Run, print, and write JSON and a plot."""
    options = parser(__doc__, repetitions=2).parse_args()
    sizes, repetitions = of_size(options, quick=(SIZES[:1], 1), middle=(SIZES, 1), paper=(SIZES, 2))
    repetitions = options.repetitions or repetitions
    models = len(sizes) * len(FREQUENCIES) * len(WEIGHTS) * len(EPSILONS) * repetitions * NUM_CLIENTS
    announce(sum(sizes) * NUM_CLIENTS, models)
    print("noise factor s by epsilon, delta 1e-5: ", end="")
    print(", ".join(f"{e:g}: {noise_factor(e, DELTA):.2f}" for e in EPSILONS if e is not None))
    lines: list[dict[str, Any]] = []
    means: dict[tuple[str, int, int, float | None], npt.NDArray[np.float64]] = {}
    for num_rows in sizes:
        for frequencies in FREQUENCIES:
            setting = f"{num_rows} rows, {frequencies} frequencies"
            rows = []
            for weights in WEIGHTS:
                for epsilon in EPSILONS:
                    found = [measure(weights, num_rows, frequencies, epsilon, seed) for seed in range(repetitions)]
                    mean = np.mean(found, axis=0)
                    means[weights, num_rows, frequencies, epsilon] = mean
                    errors = [f[3] for f in found]
                    rows.append(
                        {
                            **entry(setting, f"{weights}, {label(epsilon)}", None, errors),
                            "weight, itself": round(float(mean[0]), 3),
                            "weight, own group": round(float(mean[1]), 3),
                            "weight, other group": round(float(mean[2]), 3),
                        }
                    )
            show(rows)
            lines += rows
    fig, axes = subplots(len(sizes), height=3.6)
    places = np.arange(len(EPSILONS))
    for ax, num_rows in zip(axes[0], sizes, strict=True):
        for weights, colour in zip(WEIGHTS, ("#0072B2", "#E69F00"), strict=True):
            for frequencies, style in zip(FREQUENCIES, ("-", "--"), strict=True):
                others = [means[weights, num_rows, frequencies, epsilon][1] for epsilon in EPSILONS]
                ax.plot(places, others, style, color=colour, marker="o", label=f"{weights}, D = {frequencies}")
        ax.set_xticks(places, ["none" if e is None else f"{e:g}" for e in EPSILONS])
        ax.set_ylim(-0.03, 1.0)
        ax.set_xlabel("epsilon of the embeddings")
        ax.set_ylabel("weight of others of the own group")
        ax.set_title(f"{num_rows} rows per client", fontsize=9)
    axes[0, 0].legend(fontsize=6.5)
    write(lines, options, "personalise-noise", fig)


if __name__ == "__main__":
    main()
