"""Figure 6 of the distillation paper: how drawn clients and their weights change the way to Algorithm 2's limit.

D3, 50 clients of 10 rows, 490 public points. The limit y* is computed by one solve, which only a simulation can do.
Shown is the squared distance |y_p - y*|² (per point) by round, for the number of drawn clients C with q = 0.501, and
for the exponent q of the weights t^-q with C = 10, in the form of the paper's proof, and once as Algorithm 3 is
printed.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from distill_common import D3, draw, parser
from distill_maps_common import Maps, agree
from records import entry, write
from tables import show, subplots

RIDGE = 1e-2


def main() -> None:
    """Run, print, and write JSON and a plot."""
    made = parser(__doc__, repetitions=1)
    made.add_argument("--rounds", type=int, default=5000, help="rounds (the paper: 20000 and 50000)")
    options = made.parse_args()
    m, num_public, rounds = (10, 90, 60) if options.quick else (50, 490, options.rounds)
    problems = [Maps(D3, draw(D3, m, 10, num_public, seed), RIDGE) for seed in range(options.repetitions)]
    limits = [p.limit for p in problems]
    print(f"spectral radius of Algorithm 2's map: {np.mean([p.radius for p in problems]):.5f}")
    for stale in (False, True):
        agree(problems[0], 0.2, 0.501, stale=stale)
    print("the workflow's first ten rounds agree with the maps, in both forms")

    lines: list[dict[str, Any]] = []
    curves: dict[str, tuple[int, list[float]]] = {}

    def run(panel: int, label: str, fraction: float, exponent: float, *, stale: bool = False) -> None:
        found = []
        for p, limit in zip(problems, limits, strict=True):
            steps = itertools.islice(p.rounds(fraction, exponent, stale=stale), rounds)
            found.append([float(np.mean(np.square(v - limit))) for v in steps])
        curves[label] = panel, list(np.mean(found, axis=0))
        lines.append(entry(f"after {rounds} rounds", label, None, [f[-1] for f in found]))
        show(lines[-1:])

    for count in sorted({1, m // 5, m // 2, m}):
        run(0, f"C = {count}, q = 0.501", count / m, 0.501)
    for q in (0.0, 0.3, 0.7):
        run(1, f"C = {m // 5}, q = {q}", 0.2, q)
    run(1, f"C = {m // 5}, q = 0.501, stale", 0.2, 0.501, stale=True)

    fig, (axes,) = subplots(2, height=3.6)
    for label, (panel, distances) in curves.items():
        axes[panel].plot(np.arange(1, rounds + 1), distances, label=label)
    for ax in axes:
        ax.set_yscale("log")
        ax.set_xlabel("round")
        ax.set_ylabel("squared distance to y*, per point")
        ax.legend(fontsize=8)
    write(lines, options, "distill-figure6", fig)


if __name__ == "__main__":
    main()
