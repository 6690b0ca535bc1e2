"""Figure 7 of the distillation paper: Algorithm 3's test error by round, beside that of Algorithm 2 after 200 rounds.

50 clients of 10 rows, 490 public points, 10 clients drawn in a round, weights t^-0.501. The figure prints no numbers.
The text says that Algorithm 3 is level with Algorithm 2 after 5000 rounds on all three data sets.
"""

from __future__ import annotations

import numpy as np
from distill.common import SYNTHETIC, choose_ridges, draw, grid, parser
from distill.maps_common import Maps, agree
from records import announce, entry, of_size, write
from tables import show, subplots

MARKS = (200, 1000, 2000, 5000, 10000, 20000)
ALGORITHM_2 = "Algorithm 2, 200 rounds"


def main() -> None:
    """Run, print, and write JSON and a plot."""
    made = parser(__doc__, repetitions=100)
    made.add_argument("--rounds", type=int, help="the last number of rounds (default 20000)")
    options = made.parse_args()
    m, repetitions, rounds = of_size(options, quick=(5, 2, 60), middle=(50, 3, 5000), paper=(50, 100, 20_000))
    repetitions, rounds = options.repetitions or repetitions, options.rounds or rounds
    marks = (20, 60) if options.quick else tuple(t for t in MARKS if t <= rounds)
    clients = repetitions * m * len(SYNTHETIC)
    announce(clients * 10, clients * 2)
    ridges = grid(-4, 0, 9)[:: 3 if options.quick else 1]
    lines = []
    fig, (axes,) = subplots(len(SYNTHETIC), height=3.6)
    for (name, data), ax in zip(SYNTHETIC.items(), axes, strict=True):
        draws = [draw(data, m, 10, (m - 1) * 10, seed) for seed in range(repetitions)]
        ridge = choose_ridges(data, draws[:3], ridges, ["de-regularised"])["de-regularised"]
        errors: dict[str, list[float]] = {}
        for i, drawn in enumerate(draws):
            maps = Maps(data, drawn, ridge)
            if i == 0:
                agree(maps, 0.2, 0.501, stale=False)
            for t, v in zip(range(1, 201), maps.rounds(), strict=False):
                if t == 200:
                    errors.setdefault(ALGORITHM_2, []).append(maps.error(v))
            for t, v in zip(range(1, marks[-1] + 1), maps.rounds(0.2, 0.501), strict=False):
                if t in marks:
                    errors.setdefault(f"Algorithm 3, {t} rounds", []).append(maps.error(v))
        rows = [entry(name, method, None, found, ridge=ridge) for method, found in errors.items()]
        show(rows)
        lines += rows
        ax.axhline(float(np.mean(errors[ALGORITHM_2])), ls="--", color="black", label=ALGORITHM_2)
        ax.plot(marks, [float(np.mean(errors[f"Algorithm 3, {t} rounds"])) for t in marks], "o-", label="Algorithm 3")
        ax.set_xscale("log")
        ax.set_title(name)
        ax.set_xlabel("rounds")
        ax.set_ylabel("mean squared error")
        ax.legend(fontsize=8)
    write(lines, options, "distill-figure7", fig)


if __name__ == "__main__":
    main()
