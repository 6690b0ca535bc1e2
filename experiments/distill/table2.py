"""Table 2 of the distillation paper: de-regularised distillation on D3 with 50 clients of 10 rows, by public points."""

from __future__ import annotations

from collections.abc import Sequence

from distill.common import D3, ROUNDS, choose_ridges, draw, grid, measured, parser
from records import announce, entry, of_size, write
from tables import show, subplots

PUBLISHED = {50: 0.0251, 100: 0.0198, 200: 0.0168, 500: 0.0168, 1000: 0.0164}
NUM_CLIENTS, NUM_ROWS = 50, 10
METHOD = "de-regularised"


def main() -> None:
    """Run, print, and write JSON and a plot."""
    made = parser(__doc__, repetitions=100)
    made.add_argument("--rounds", type=int, default=ROUNDS, help="of distillation")
    options = made.parse_args()
    ridges: Sequence[float] = grid(-3.5, -1, 6)
    repetitions, clients = of_size(options, quick=(2, 10), middle=(10, NUM_CLIENTS), paper=(100, NUM_CLIENTS))
    repetitions, published = options.repetitions or repetitions, dict(PUBLISHED)
    if options.quick:
        ridges, published = [1e-2], {50: 0.0251, 100: 0.0198}
    announce(repetitions * clients * NUM_ROWS, repetitions * clients * len(published))
    largest = max(published)
    draws = [draw(D3, clients, NUM_ROWS, largest, seed) for seed in range(repetitions)]
    lines = []
    for num_public, known in published.items():
        # The first points of the largest set: settings differ in nothing else.
        cut = [type(d)(d.train, d.public[:num_public], d.test) for d in draws]
        ridge = choose_ridges(D3, cut[:2], ridges, [METHOD], options.rounds)[METHOD]
        found = [measured(D3, drawn, METHOD, ridge, options.rounds) for drawn in cut]
        lines.append(entry(f"N_p = {num_public}", METHOD, None if options.quick else known, found, ridge=ridge))
    show(lines)
    fig, ((ax,),) = subplots(height=3.6)
    sizes = list(published)
    ax.errorbar(
        sizes, [row["measured"] for row in lines], [row["standard_error"] for row in lines], fmt="o-", capsize=3
    )
    ax.lines[-1].set_label("measured")
    ax.plot(sizes, list(published.values()), "x", color="black", ms=8, label="published")
    ax.set_xscale("log")
    ax.set_xlabel("public points")
    ax.set_ylabel("mean squared error")
    ax.legend()
    write(lines, options, "distill-table2", fig)


if __name__ == "__main__":
    main()
