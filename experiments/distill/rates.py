"""Rates of the distillation paper's Theorems 5.1 and 5.5: how errors fall with the number m N of all rows.

The theorems bound the root of the squared error of one-shot and iterative distillation by (m N)^-(2 r + 1)/(4 r + 4),
where r in [0, 1/2] says how smooth the target is: squared errors fall with a slope of -1/2 to -2/3 on logarithmic axes,
at the ridge c (m N)^-1/(2 r + 2). For one-shot distillation Theorem 5.1 asks for at most N^(2 r + 1) clients: 10 to 100
of 10 rows; for iterative distillation Theorem 5.5 asks for no such bound, and for more public points. Here r = 1/2, the
constant c is chosen once from a grid with the fewest clients, and there are (m - 1) N public points.
"""

from __future__ import annotations

import numpy as np
from distill.common import METHODS, SYNTHETIC, draw, errors, grid, parser
from records import announce, entry, of_size, write
from tables import show, subplots

NUM_ROWS = 10
DISTILLED = tuple(method for method in METHODS if method != "local")
POWER = -1 / 3
"""Of m N in the ridge: -1/(2 r + 2) at r = 1/2."""


def main() -> None:
    """Run, print, and write JSON and a plot."""
    made = parser(__doc__, repetitions=100)
    made.add_argument("--clients", nargs="+", type=int, help="numbers of clients m (default 5 to 80)")
    options = made.parse_args()
    many = [5, 10, 20, 40, 80]
    repetitions, counts = of_size(options, quick=(2, [4, 8]), middle=(20, many), paper=(100, many))
    repetitions, counts = options.repetitions or repetitions, options.clients or counts
    clients = repetitions * sum(counts) * len(SYNTHETIC)
    announce(clients * NUM_ROWS, clients * len(DISTILLED))
    constants = grid(-3, 0.5, 8)[:: 3 if options.quick else 1]
    lines = []
    fig, (axes,) = subplots(len(SYNTHETIC), height=3.6)
    for (name, data), ax in zip(SYNTHETIC.items(), axes, strict=True):
        totals = np.array([m * NUM_ROWS for m in counts])
        draws = [[draw(data, m, NUM_ROWS, (m - 1) * NUM_ROWS, seed) for seed in range(repetitions)] for m in counts]
        few = [[errors(data, d, c * totals[0] ** POWER, DISTILLED) for d in draws[0]] for c in constants]
        best = {
            method: constants[int(np.argmin([np.mean([e[method] for e in found]) for found in few]))]
            for method in DISTILLED
        }
        for method in DISTILLED:
            by_draw = np.array(
                [
                    [errors(data, d, best[method] * total**POWER, [method])[method] for d in of_count]
                    for of_count, total in zip(draws, totals, strict=True)
                ]
            )
            lines += [
                entry(f"{name}, m = {m}", method, None, found, constant=best[method])
                for m, found in zip(counts, by_draw, strict=True)
            ]
            slopes = np.polyfit(np.log(totals), np.log(by_draw), 1)[0]
            lines.append(entry(f"{name}, slope", method, None, slopes, constant=best[method]))
            ax.plot(totals, by_draw.mean(axis=1), "o-", label=f"{method}, slope {slopes.mean():.2f}")
        show(lines[-len(DISTILLED) * (len(counts) + 1) :])
        ax.plot(totals, by_draw[0].mean() * (totals / totals[0]) ** (-2 / 3), ":", color="black", label="slope -2/3")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_title(name)
        ax.set_xlabel("rows of all clients, m N")
        ax.set_ylabel("mean squared error")
        ax.legend(fontsize=8)
    write(lines, options, "distill-rates", fig)


if __name__ == "__main__":
    main()
