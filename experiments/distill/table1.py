"""Table 1 of the distillation paper: kernel ridge regression of one client alone, with 10 and with 20 rows.

Each repetition is a federation of 20 clients, whose models are measured by the job's own `local` metrics. MNIST's
recipe is not stated there in full; here pixels are standardised by MNIST's mean and deviation, and odd digits are +1,
even ones -1.
"""

from __future__ import annotations

import numpy as np
from distill.common import SYNTHETIC, choose_ridges, draw, grid, measured, mnist, parser
from records import announce, entry, of_size, write
from tables import show, subplots

PUBLISHED = {
    ("D1", 10): 0.0329,
    ("D1", 20): 0.0243,
    ("D2", 10): 0.0255,
    ("D2", 20): 0.0144,
    ("D3", 10): 0.0785,
    ("D3", 20): 0.0739,
    ("MNIST", 10): 0.9436,
    ("MNIST", 20): 0.7845,
}
NUM_CLIENTS = 20


def main() -> None:
    """Run, print, and write JSON and a plot."""
    options = parser(__doc__, repetitions=100).parse_args()
    repetitions, clients = of_size(options, quick=(2, 10), middle=(30, NUM_CLIENTS), paper=(100, NUM_CLIENTS))
    repetitions = options.repetitions or repetitions
    images = mnist(options.mnist)
    sets = {**SYNTHETIC, **({"MNIST": images} if images else {})}
    announce(repetitions * clients * 30 * len(sets), repetitions * clients * 2 * len(sets))
    lines = []
    for name, data in sets.items():
        ridges = grid(-4, -1, 7) if name == "MNIST" else grid(-3, 0.5, 15)
        for num_rows in (10, 20):
            if options.quick:
                ridges = ridges[::5]
            draws = [draw(data, clients, num_rows, 2, seed) for seed in range(repetitions)]
            ridge = choose_ridges(data, draws[:3], ridges, ["local"])["local"]
            found = [measured(data, drawn, "local", ridge) for drawn in draws]
            lines.append(entry(f"{name}, N = {num_rows}", "local", PUBLISHED[name, num_rows], found, ridge=ridge))
    show(lines)
    fig, ((ax,),) = subplots(height=3.6)
    at = np.arange(len(lines))
    errors = [row["standard_error"] or 0.0 for row in lines]
    ax.errorbar(at, [row["measured"] for row in lines], errors, fmt="o", capsize=3, label="measured")
    ax.plot(at, [row["published"] for row in lines], "x", color="black", ms=8, label="published")
    ax.set_xticks(at, [row["setting"] for row in lines], rotation=60)
    ax.set_yscale("log")
    ax.set_ylabel("mean squared error")
    ax.legend()
    write(lines, options, "distill-table1", fig)


if __name__ == "__main__":
    main()
