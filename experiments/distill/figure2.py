"""Figures 2 and 3 of the distillation paper: local, one-shot, plain, de-regularised, and all rows in one place.

10 rows per client in Figure 2 and 20 in Figure 3; (m - 1) N public points; 200 rounds. The figures print no numbers. In
D2 all distillations reach the central model, in D1 and D3 only the de-regularised one does; with 20 rows the text calls
the gap of the plain one "not significant". All methods see the same draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from distill.common import METHODS, ROUNDS, SYNTHETIC, DataSet, choose_ridges, draw, grid, measured, mnist, parser
from records import announce, entry, of_size, write
from tables import show, subplots

RIDGES = {"D1": grid(-4, 0, 9), "D2": grid(-4, 0, 9), "D3": grid(-4, 0, 9), "MNIST": grid(-6, -1, 6)}


def _compare(
    data: DataSet, num_rows: int, m: int, repetitions: int, ridges: Sequence[float], rounds: int
) -> list[dict[str, Any]]:
    """All methods on the same draws, each at its best ridge: a row for each."""
    draws = [draw(data, m, num_rows, (m - 1) * num_rows, seed) for seed in range(repetitions)]
    chosen = choose_ridges(data, draws[:3], ridges, METHODS, rounds)
    lines = []
    for method in METHODS:
        found = [measured(data, drawn, method, chosen[method], rounds) for drawn in draws]
        setting = f"{data.name}, m = {m}" if num_rows == 10 else f"{data.name}, N = {num_rows}, m = {m}"
        lines.append(entry(setting, method, None, found, ridge=chosen[method]))
    show(lines)
    return lines


def main() -> None:
    """Run, print, and write JSON and a plot."""
    made = parser(__doc__, repetitions=100)
    made.add_argument("--set", nargs="+", choices=[*SYNTHETIC, "MNIST"], default=[*SYNTHETIC, "MNIST"])
    made.add_argument("--clients", nargs="+", type=int, help="numbers of clients m")
    made.add_argument("--rows", nargs="+", type=int, default=[10, 20], help="rows of each client N")
    made.add_argument("--rounds", type=int, default=ROUNDS, help="of distillation")
    options = made.parse_args()
    repetitions, counts = of_size(
        options, quick=(2, [5]), middle=(10, [10, 50]), paper=(100, [10, 20, 30, 40, 50, 100])
    )
    repetitions, counts, sets = options.repetitions or repetitions, options.clients or counts, dict(SYNTHETIC)
    if "MNIST" in options.set and (images := mnist(options.mnist)):
        sets["MNIST"] = images
    sets = {name: data for name, data in sets.items() if name in options.set}
    clients = repetitions * sum(counts) * len(sets)
    announce(clients * sum(options.rows), clients * len(options.rows) * len(METHODS))
    lines = []
    fig, axes = subplots(len(sets), len(options.rows), height=3.6)
    for num_rows, panels in zip(options.rows, axes, strict=True):
        for (name, data), ax in zip(sets.items(), panels, strict=True):
            ridges = RIDGES[name][::3] if options.quick else RIDGES[name]
            rows = [_compare(data, num_rows, m, repetitions, ridges, options.rounds) for m in counts]
            lines += [row for of_count in rows for row in of_count]
            for i, method in enumerate(METHODS):
                values, errors = ([of_count[i][key] for of_count in rows] for key in ("measured", "standard_error"))
                ax.errorbar(counts, np.array(values), np.array(errors), fmt="o-", capsize=3, label=method)
            ax.set_yscale("log")
            ax.set_title(f"{name}, {num_rows} rows")
            ax.set_xlabel("clients")
            ax.set_ylabel("mean squared error")
            ax.legend(fontsize=8)
    write(lines, options, "distill-figure2", fig)


if __name__ == "__main__":
    main()
