"""Figure 2 of the distillation paper: local, one-shot, plain, de-regularised, and all rows in one place.

10 rows per client; 10 or 50 clients; (m - 1) N public points; 200 rounds. The figure prints no numbers; in D2 all
distillations reach the central model, in D1 and D3 only the de-regularised one does. All methods see the same draws.
"""

from __future__ import annotations

import numpy as np
from distill_common import METHODS, SYNTHETIC, choose_ridges, draw, grid, measured, mnist, parser
from records import entry, write
from tables import show, subplots

NUM_ROWS = 10
RIDGES = {"D1": grid(-4, 0, 9), "D2": grid(-4, 0, 9), "D3": grid(-4, 0, 9), "MNIST": grid(-6, -1, 6)}


def main() -> None:
    """Run, print, and write JSON and a plot."""
    made = parser(__doc__, repetitions=10)
    made.add_argument("--set", nargs="+", choices=[*SYNTHETIC, "MNIST"], default=[*SYNTHETIC, "MNIST"])
    made.add_argument("--clients", nargs="+", type=int, default=[10, 50], help="numbers of clients m")
    options = made.parse_args()
    repetitions, counts, sets = options.repetitions, options.clients, dict(SYNTHETIC)
    if options.quick:
        repetitions, counts = 2, [5]
    if "MNIST" in options.set and (images := mnist(options.mnist)):
        sets["MNIST"] = images
    sets = {name: data for name, data in sets.items() if name in options.set}
    lines = []
    fig, (axes,) = subplots(len(sets), height=3.6)
    for (name, data), ax in zip(sets.items(), axes, strict=True):
        rows: dict[str, list[dict[str, object]]] = {method: [] for method in METHODS}
        for m in counts:
            draws = [draw(data, m, NUM_ROWS, (m - 1) * NUM_ROWS, seed) for seed in range(repetitions)]
            ridges = RIDGES[name][::3] if options.quick else RIDGES[name]
            chosen = choose_ridges(data, draws[:3], ridges, METHODS)
            for method in METHODS:
                found = [measured(data, drawn, method, chosen[method]) for drawn in draws]
                rows[method].append(entry(f"{name}, m = {m}", method, None, found, ridge=chosen[method]))
            show(r[-1] for r in rows.values())
        lines += [row for m in range(len(counts)) for row in (rows[method][m] for method in METHODS)]
        for method in METHODS:
            values, errors = ([row[key] for row in rows[method]] for key in ("measured", "standard_error"))
            ax.errorbar(counts, np.array(values), np.array(errors), fmt="o-", capsize=3, label=method)
        ax.set_yscale("log")
        ax.set_title(name)
        ax.set_xlabel("clients")
        ax.set_ylabel("mean squared error")
        ax.legend(fontsize=8)
    write(lines, options, "distill-figure2", fig)


if __name__ == "__main__":
    main()
