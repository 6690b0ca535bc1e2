"""The largest number of clients of the distillation paper's Theorem 5.1: where one-shot distillation falls behind.

The theorem has one-shot distillation learn as fast as all rows in one place while m is at most N^(2 r + 1), with r in
[0, 1/2] for how smooth the target is: 4 to 16 clients of 4 rows. For iterative distillation there is no such limit
(Theorem 5.5). Here clients have 4 rows and m passes both ends, with (m - 1) N public points. The ridge is c (m N)^-1/3,
whose constant is chosen at each m. Shown is the error of each over that of all rows in one place, on the same draws:
at a limit on m the one of one-shot distillation would begin to grow.
"""

from __future__ import annotations

import numpy as np
from distill.common import SYNTHETIC, draw, errors, grid, parser
from records import announce, entry, of_size, write
from tables import show, subplots

NUM_ROWS = 4
COUNTS = (4, 8, 16, 32, 64)
METHODS = ("one-shot", "plain", "de-regularised", "central")
SECONDS = 0.01
"""Processor time of a client at one ridge, about."""
POWER = -1 / 3
"""Of m N in the ridge: -1/(2 r + 2) at r = 1/2."""


def main() -> None:
    """Run, print, and write JSON and a plot."""
    options = parser(__doc__, repetitions=100).parse_args()
    draws_of, counts = of_size(options, quick=(4, COUNTS[::2]), middle=(20, COUNTS), paper=(100, (*COUNTS, 128)))
    repetitions = options.repetitions or draws_of
    constants = grid(-3, 0.5, 8)[:: 3 if options.quick else 1]
    clients = repetitions * sum(counts) * len(SYNTHETIC)
    announce(clients * NUM_ROWS, clients * len(constants) * len(METHODS), SECONDS * clients * len(constants))
    lines = []
    fig, (axes,) = subplots(len(SYNTHETIC), height=3.6)
    for (name, data), ax in zip(SYNTHETIC.items(), axes, strict=True):
        ratios: dict[str, list[float]] = {method: [] for method in METHODS if method != "central"}
        for m in counts:
            total = m * NUM_ROWS
            draws = [draw(data, m, NUM_ROWS, total - NUM_ROWS, seed) for seed in range(repetitions)]
            found = [[errors(data, d, c * total**POWER, METHODS) for d in draws] for c in constants]
            best = {k: min(([e[k] for e in of_c] for of_c in found), key=lambda e: sum(e)) for k in METHODS}
            for method, of_m in ratios.items():
                ratio = np.array(best[method]) / np.array(best["central"])
                of_m.append(float(ratio.mean()))
                lines.append(entry(f"{name}, m = {m}, N = {NUM_ROWS}, error over central", method, None, ratio))
        for method, of_m in ratios.items():
            ax.plot(counts, of_m, "o-", label=method)
        ax.axvspan(NUM_ROWS, NUM_ROWS**2, color="black", alpha=0.08, label="N to N^2")
        ax.set_xscale("log")
        ax.set_title(name)
        ax.set_xlabel("clients m")
        ax.set_ylabel("error over that of all rows in one place")
        ax.legend(fontsize=8)
    show(lines)
    write(lines, options, "distill-clients", fig)


if __name__ == "__main__":
    main()
