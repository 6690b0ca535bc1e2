"""Figure 6 of the distillation paper: how drawn clients and their weights change the way to Algorithm 2's limit.

D3, 50 clients of 10 rows, 490 public points. The limit y* is computed by one solve, which only a simulation can do.
Shown is the squared distance |y_p - y*|² (per point) by round, for the number of drawn clients C with q = 0.501, and
for the exponent q of the weights t^-q with C = 10, in the form of the paper's proof, and once as Algorithm 3 is
printed. Theorem C.16: every second client is drawn a quarter as often as the others; shown is the distance to the
limit of the theorem and to y*, and by which power of the round the first falls: q in the end, where chance decides.
Beside these stand the same draws where the last predictions of clients count for those that are not drawn.

The paper says that the distance "is large" at q = 0. Three readings stand beside each other: clients answer by the
current consensus, as in the proof; by the one that they were handed last, as printed ("stale"); and the distance is
that of the targets that are handed out, after de-regularisation, in place of the consensus.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from distill.common import D3, draw, parser
from distill.maps_common import Maps, agree
from records import announce, entry, of_size, write
from tables import show, subplots

from kernfed_simulation.partition import client_names

RIDGE = 1e-2


def main() -> None:
    """Run, print, and write JSON and a plot."""
    made = parser(__doc__, repetitions=1)
    made.add_argument("--rounds", type=int, help="rounds (default 50000)")
    options = made.parse_args()
    m, num_public, rounds = of_size(options, quick=(10, 90, 60), middle=(50, 490, 5000), paper=(50, 490, 50_000))
    rounds, repetitions = options.rounds or rounds, options.repetitions or 1
    announce(repetitions * m * 10, repetitions * m)
    problems = [Maps(D3, draw(D3, m, 10, num_public, seed), RIDGE) for seed in range(repetitions)]
    limits = [p.limit for p in problems]
    print(f"spectral radius of Algorithm 2's map: {np.mean([p.radius for p in problems]):.5f}")
    rarely = dict.fromkeys(client_names(m)[::2], 0.25)
    for stale in (False, True):
        agree(problems[0], 0.2, 0.501, stale=stale)
    agree(problems[0], 0.2, 0.501, participation=rarely)
    agree(problems[0], 0.2, None, participation=rarely)
    print("the workflow's first ten rounds agree with the maps, in all forms")

    lines: list[dict[str, Any]] = []
    curves: dict[str, tuple[int, list[float]]] = {}

    def run(panel: int, label: str, fraction: float, exponent: float | None, **options: Any) -> list[list[float]]:
        aims, handed_out = options.pop("limits", limits), options.pop("handed_out", False)
        found = []
        for p, limit in zip(problems, aims, strict=True):
            steps = itertools.islice(p.rounds(fraction, exponent, **options), rounds)
            apart = (p.undo(v) - p.undo(limit) if handed_out else v - limit for v in steps)
            found.append([float(np.mean(np.square(a))) for a in apart])
        curves[label] = panel, list(np.mean(found, axis=0))
        lines.append(entry(f"after {rounds} rounds", label, None, [f[-1] for f in found]))
        show(lines[-1:])
        return found

    for count in sorted({1, m // 5, m // 2, m}):
        run(0, f"C = {count}, q = 0.501", count / m, 0.501)
    for q in (0.0, 0.3, 0.7):
        run(1, f"C = {m // 5}, q = {q}", 0.2, q)
    run(1, f"C = {m // 5}, q = 0.501, stale", 0.2, 0.501, stale=True)
    run(1, f"C = {m // 5}, q = 0.0, stale", 0.2, 0.0, stale=True)
    for q in (0.0, 0.501):
        run(1, f"C = {m // 5}, q = {q}, of the targets handed out", 0.2, q, handed_out=True)
    unequal = {"participation": rarely}
    leaning = [p.limit_of(0.2, rarely) for p in problems]
    found = run(2, f"C = {m // 5}, q = 0.501, unequal, to its limit", 0.2, 0.501, limits=leaning, **unequal)
    rates = [_rate(distances) for distances in found]
    lines.append(entry("distance as round^-rate: rate", f"C = {m // 5}, q = 0.501, unequal", None, rates))
    show(lines[-1:])
    run(2, f"C = {m // 5}, q = 0.501, unequal, to y*", 0.2, 0.501, **unequal)
    for label, options_of in {"remembered": {}, "remembered, unequal": unequal}.items():
        run(2, f"C = {m // 5}, {label}, to y*", 0.2, None, remember_predictions=True, **options_of)
    run(2, "C = 1, remembered, to y*", 1 / m, None, remember_predictions=True)

    fig, (axes,) = subplots(3, height=3.6)
    for label, (panel, distances) in curves.items():
        axes[panel].plot(np.arange(1, rounds + 1), distances, label=label)
    for ax in axes:
        ax.set_yscale("log")
        ax.set_xlabel("round")
        ax.set_ylabel("squared distance to y*, per point")
        ax.legend(fontsize=8)
    write(lines, options, "distill-figure6", fig)


def _rate(distances: list[float]) -> float:
    """By which power of the round the distance falls, over the last nine tenths of the rounds."""
    first = len(distances) // 10
    t = np.arange(1, len(distances) + 1)[first:]
    return -float(np.polyfit(np.log(t), np.log(distances[first:]), 1)[0])


if __name__ == "__main__":
    main()
