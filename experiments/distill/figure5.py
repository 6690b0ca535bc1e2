"""Figure 5 of the distillation paper: how many public points one-shot and iterative distillation need.

10 rows per client; N_p = p (m - 1) N with p of 0.2, 0.5, 1 and 1.5. The figure prints no numbers. The text says: on D2
p = 0.2 is enough; one-shot distillation gains nothing by more points; iterative distillation is worse at 0.2, and level
from 1 on. Each setting sees the same private rows, and the smaller public sets are the beginning of the larger.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from distill.common import SYNTHETIC, choose_ridges, draw, grid, measured, parser
from records import announce, entry, of_size, write
from tables import show, subplots

NUM_ROWS = 10
PARTS = (0.2, 0.5, 1.0, 1.5)
METHODS = ("one-shot", "de-regularised")


def main() -> None:
    """Run, print, and write JSON and a plot."""
    made = parser(__doc__, repetitions=100)
    made.add_argument("--clients", nargs="+", type=int, help="numbers of clients m")
    options = made.parse_args()
    repetitions, counts = of_size(
        options, quick=(2, [4]), middle=(10, [10, 50]), paper=(100, [10, 20, 30, 40, 50, 100])
    )
    repetitions, counts = options.repetitions or repetitions, options.clients or counts
    parts = PARTS[::2] if options.quick else PARTS
    ridges = grid(-4, 0, 9)[:: 4 if options.quick else 1]
    clients = repetitions * sum(counts) * len(SYNTHETIC)
    announce(clients * NUM_ROWS, clients * len(parts) * len(METHODS))
    lines = []
    fig, axes = subplots(len(SYNTHETIC), len(METHODS), height=3.2)
    for column, (name, data) in enumerate(SYNTHETIC.items()):
        for p in parts:
            found: dict[str, list[dict[str, Any]]] = {method: [] for method in METHODS}
            for m in counts:
                draws = [draw(data, m, NUM_ROWS, round(p * (m - 1) * NUM_ROWS), seed) for seed in range(repetitions)]
                chosen = choose_ridges(data, draws[:3], ridges, METHODS)
                for method in METHODS:
                    values = [measured(data, drawn, method, chosen[method]) for drawn in draws]
                    found[method].append(entry(f"{name}, m = {m}, p = {p}", method, None, values, ridge=chosen[method]))
                    lines.append(found[method][-1])
                show(lines[-len(METHODS) :])
            for row, method in enumerate(METHODS):
                ax = axes[row][column]
                values, errors = ([float(r[key]) for r in found[method]] for key in ("measured", "standard_error"))
                ax.errorbar(counts, np.array(values), np.array(errors), fmt="o-", capsize=3, label=f"p = {p}")
                ax.set_title(f"{method}, {name}")
                ax.set_yscale("log")
                ax.set_xlabel("clients")
                ax.set_ylabel("mean squared error")
                ax.legend(fontsize=8)
    write(lines, options, "distill-figure5", fig)


if __name__ == "__main__":
    main()
