"""Figure 2 of the personalisation paper: three groups of clients whose x lie elsewhere, and whose y follow one rule.

Section 6.2 with Table 2: clients of 20 rows in 4 dimensions, y = sin(3 x1) + x2²/2 + (x3 + x4)/10 + noise of
variance 0.04; x normal around the client's own centre near 0, or near 2, or uniform on [-6, 6]. Table 2 leaves sigma²
out: it is 1 here. Every client is a target. The paper's figure has no printed values.

First the weights of 100 clients, as the paper's Figure 2 shows them, and how much of a client's weight stays in its own
group, with ridge models on random features. Then, with 50 clients to save time, ReLU networks, all rows per step,
through Adam at the coordinator: the paper's 2000 epochs at 0.001 are 400 at 0.01 here, and it reports the best epoch on
test rows, this the last. The oracle is the federated model of the client's own group, found by a job that only the
group joins.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from personalise.common import Floats, Ran, line, make_job, parser, run_job
from records import announce, of_size, write
from tables import show, subplots

from kernfed_simulation.federation import Rows

NUM_CLIENTS, NETWORK_CLIENTS, NUM_ROWS, NUM_COLUMNS, NUM_TEST = 100, 50, 20, 4, 1000
ARCHITECTURES: tuple[tuple[int, ...], ...] = ((16,), (32,), (16, 16), (32, 32), (16, 16, 16), (32, 32, 32))
GROUPS = ("near 0", "near 2", "uniform")
DEFAULT, PAPER, EXACT = "default (crossfit)", "Q-aggregation, as printed", "Q-aggregation, optimum"
PRINTED = {"scale_columns": False, "c_q": 1.0, "c_p": 1.0}
"""Table 2: C_Q = C_P = 1, and frequencies N(0, I) on the columns as they are: see `lengthscales`."""
WEIGHTS: Mapping[str, dict[str, Any]] = {
    PAPER: {"weights": "paper", **PRINTED},
    EXACT: {"weights": "exact", **PRINTED},
    DEFAULT: {},
}
Integers = npt.NDArray[np.int64]


def draw(num_clients: int, seed: int) -> tuple[dict[str, Rows], Integers]:
    """Rows by client (equation 26), and each client's group."""
    random = np.random.default_rng([seed, 62])
    first = 3 * num_clients // 10
    group = np.repeat([0, 1, 2], [first, first, num_clients - 2 * first])
    rows = {}
    for k in range(num_clients):
        total = NUM_ROWS + NUM_TEST
        if group[k] == 2:
            x = random.uniform(-6, 6, size=(total, NUM_COLUMNS))
        else:
            spread, centre = ((0.1, 0.0), (np.sqrt(0.3), 2.0))[group[k]]
            x = centre + spread * random.normal(size=NUM_COLUMNS) + random.normal(size=(total, NUM_COLUMNS))
        y = np.sin(3 * x[:, 0]) + 0.5 * x[:, 1] ** 2 + 0.1 * x[:, 2:].sum(axis=1) + 0.2 * random.normal(size=total)
        rows[f"c{k:03d}"] = Rows(x[:NUM_ROWS], y[:NUM_ROWS], x[NUM_ROWS:], y[NUM_ROWS:])
    return rows, group


def lengthscales(rows: Mapping[str, Rows]) -> list[float]:
    """Lengthscale 1 on the columns as they are, in the units of the standardised columns that a job embeds."""
    return [float(1.0 / d) for d in np.concatenate([r.x_train for r in rows.values()]).std(axis=0)]


def trained(method: Mapping[str, Any], rows: Mapping[str, Rows], seed: int, frequencies: int) -> Ran:
    """A job with the view x, whose ridge models and proxies are on random features."""
    printed = {"lengthscales": lengthscales(rows)} if "c_q" in method else {}
    settings = {"view": "x", **method, **printed}
    return run_job(
        make_job("covariate-shift", NUM_COLUMNS, seed, settings, features={"num_frequencies": frequencies}), rows
    )


def of_groups(method: Mapping[str, Any], rows: Mapping[str, Rows], group: Integers, seed: int, size: int) -> Floats:
    """Error of the federated model of each client's own group."""
    names = np.array(sorted(rows))
    found = np.zeros(len(names))
    for g in np.unique(group):
        inside = {c: rows[c] for c in names[group == g]}
        # Of what such a job does only the model of all its rows is used, so its weights are the cheapest there are.
        found[group == g] = trained({**method, "weights": "paper"}, inside, seed, size).scores("global")
    return found


def compare(
    setting: str, draws: list[tuple[dict[str, Rows], Integers]], method: Mapping[str, Any], frequencies: int
) -> tuple[list[dict[str, Any]], list[Ran]]:
    """Mean error of each method over all clients and, by group; and the default's runs."""
    errors: dict[str, list[Floats]] = {}
    masses: dict[str, list[Floats]] = {}
    defaults = []
    for seed, (rows, group) in enumerate(draws):
        for name, weights in WEIGHTS.items():
            if method and name == EXACT:  # its weights are shown with ridge models; they do not depend on the trainer
                continue
            ran = trained({**method, **weights}, rows, seed, frequencies)
            errors.setdefault(name, []).append(ran.scores("personal"))
            inside = (ran.weights * (group[:, None] == group[None, :])).sum(axis=1)
            masses.setdefault(name, []).append(np.array([inside[group == g].mean() for g in range(3)]))
            if name == DEFAULT:
                errors.setdefault("local", []).append(ran.scores("local"))
                errors.setdefault("fedavg", []).append(ran.scores("global"))
                defaults.append(ran)
        errors.setdefault("oracle", []).append(of_groups(method, rows, group, seed, frequencies))
    base = [float(e.mean()) for e in errors[DEFAULT]]
    lines = []
    for name in ("local", "fedavg", "oracle", *WEIGHTS):
        if name not in errors:
            continue
        values = [float(e.mean()) for e in errors[name]]
        row = line(setting, name, values, against=() if name == DEFAULT else base)
        for g, label in enumerate(GROUPS):
            row[f"error, {label}"] = round(
                float(np.mean([e[group == g].mean() for e, (_, group) in zip(errors[name], draws, strict=True)])), 4
            )
            if name in masses:
                row[f"weight inside, {label}"] = round(float(np.mean([m[g] for m in masses[name]])), 3)
        lines.append(row)
    show(lines)
    for row in lines:
        groups = " ".join(f"{row[f'error, {label}']:>8.3f}" for label in GROUPS)
        inside = " ".join(f"{row.get(f'weight inside, {label}', float('nan')):>6.2f}" for label in GROUPS)
        print(f"  {row['method']:<34} by group {groups}   weight inside {inside}")
    return lines, defaults


def main() -> None:
    """Run, print, and write JSON and a plot."""
    arguments = parser(__doc__, repetitions=20)
    arguments.add_argument("--rounds", type=int, help="rounds of a network (default 400)")
    arguments.add_argument("--clients", type=int, help=f"clients with networks (default {NUM_CLIENTS})")
    options = arguments.parse_args()
    some = (ARCHITECTURES[0], ARCHITECTURES[1], ARCHITECTURES[5])
    num_clients, networked, rounds, architectures, repetitions = of_size(
        options,
        quick=(20, 20, 10, ((8,),), 1),
        middle=(NUM_CLIENTS, NETWORK_CLIENTS, 400, some, 1),
        paper=(NUM_CLIENTS, NUM_CLIENTS, 400, ARCHITECTURES, 20),
    )
    networked, rounds = options.clients or networked, options.rounds or rounds
    repetitions = options.repetitions or repetitions
    models = repetitions * len(WEIGHTS) * (num_clients + len(architectures) * networked)
    announce(repetitions * (num_clients + networked) * NUM_ROWS, models)
    draws = [draw(num_clients, seed) for seed in range(repetitions)]
    began = time.monotonic()
    lines, defaults = compare(f"ridge on 60 random features, {num_clients} clients", draws, {}, 60)
    print(f"  ({time.monotonic() - began:.0f} s)", flush=True)
    small = [draw(networked, seed) for seed in range(repetitions)]
    by_network: dict[tuple[int, ...], list[dict[str, Any]]] = {}
    for widths in architectures:
        began = time.monotonic()
        network = {"trainer": "fedavg", "rounds": rounds + 1, "network": {"kind": "mlp", "widths": list(widths)}}
        setting = f"ReLU network, hidden layers {' x '.join(map(str, widths))}"
        by_network[widths], _ = compare(setting, small, network, 60)
        lines += by_network[widths]
        print(f"  ({time.monotonic() - began:.0f} s)", flush=True)
    fig, axes = subplots(3)
    places = np.arange(len(architectures))
    for name in ("local", "fedavg", "oracle", PAPER, DEFAULT):
        picked = [next(r for r in by_network[widths] if r["method"] == name) for widths in architectures]
        axes[0, 0].errorbar(
            places,
            [r["measured"] for r in picked],
            [r["standard_error"] or 0.0 for r in picked],
            marker="o",
            capsize=3,
            label=name,
        )
    axes[0, 0].set_xticks(places, [" x ".join(map(str, widths)) for widths in architectures])
    axes[0, 0].set_yscale("log")
    axes[0, 0].set_xlabel("hidden layers")
    axes[0, 0].set_ylabel("mean squared error, all clients")
    axes[0, 0].legend(fontsize=8)
    rows, _ = draws[0]
    exact = trained(WEIGHTS[EXACT], rows, 0, 60)
    for ax, title, weights in (
        (axes[0, 1], f"{EXACT}: weights", exact.weights),
        (axes[0, 2], f"{DEFAULT}: weights", defaults[0].weights),
    ):
        ax.imshow(np.maximum(weights, 1e-9), cmap="Greys", norm="log", vmin=1e-4, vmax=1.0)
        ax.set_title(title, fontsize=9)
    write(lines, options, "personalise-covariate-shift", fig)


if __name__ == "__main__":
    main()
