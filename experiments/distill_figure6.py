"""Figure 6 of the distillation paper: how drawn clients and their weights change the way to Algorithm 2's limit.

D3, 50 clients of 10 rows, 490 public points. The limit y* is computed by one solve, which only a simulation can do.
Shown is the squared distance |y_p - y*|² (per point) by round, for the number of drawn clients C with q = 0.501, and
for the exponent q of the weights t^-q with C = 10, in the form of the paper's proof, and once as Algorithm 3 is
printed.

Thousands of rounds are run on the clients' affine maps directly; the first rounds of one setting are run through the
workflow too, and must agree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from distill_common import D3, draw, parser, run_job
from records import entry, write
from tables import show, subplots

from kernfed.maths.kernels import gram
from kernfed.maths.sampling import sample_clients
from kernfed.methods.distill.consensus import Deregulariser, fixed_point, mean_predictions, remember, spectral_radius
from kernfed.methods.distill.consensus_file import PublicConsensus
from kernfed.methods.distill.tensors.distillation import DistilledRidge, kernel_ridge
from kernfed_simulation.partition import client_names

Floats = npt.NDArray[np.float64]
RIDGE = 1e-2


class Problem:
    """One draw: every client's own predictions and affine map, and the limit."""

    def __init__(self, num_clients: int, num_public: int, seed: int) -> None:
        self.drawn = draw(D3, num_clients, 10, num_public, seed)
        public = torch.from_numpy(self.drawn.public)
        self.own, self.maps = [], []
        for x, y in self.drawn.train:
            a, b = torch.from_numpy(x), torch.from_numpy(y)[:, None]
            self.own.append(kernel_ridge(D3.kernel, a, b, RIDGE)(public).numpy())
            made = DistilledRidge(D3.kernel, a, b, public, RIDGE, 1 / num_clients).affine_map
            self.maps.append((made[0].numpy(), made[1].numpy()))
        k = gram(D3.kernel, self.drawn.public)
        self.limit = fixed_point(self.maps, k, RIDGE)
        self.radius = spectral_radius(self.maps, k, RIDGE)
        self.deregularise = Deregulariser(k, RIDGE)

    def iterate(
        self, fraction: float, exponent: float, rounds: int, *, stale: bool = False
    ) -> tuple[Floats, list[float]]:
        """Consensus after the last round, and the squared distance per point after each."""
        names = client_names(len(self.own))
        v: Floats | None = None
        w: Floats | None = None
        last: dict[str, Floats | None] = dict.fromkeys(names)
        distances = []
        for t in range(1, rounds + 1):
            drawn = names if fraction == 1.0 else sample_clients(names, fraction, 0, t)
            uploads = []
            for name in drawn:
                j = names.index(name)
                targets = last[name] if stale else w
                uploads.append(self.own[j] if targets is None else self.maps[j][0] @ targets + self.maps[j][1])
            v = remember(v, mean_predictions(uploads), t, exponent)
            w = self.deregularise(v)
            last.update(dict.fromkeys(drawn, w))
            distances.append(float(np.mean(np.square(v - self.limit))))
        assert v is not None
        return v, distances


def main() -> None:
    """Run, print, and write JSON and a plot."""
    made = parser(__doc__, repetitions=1)
    made.add_argument("--rounds", type=int, default=5000, help="rounds (the paper: 20000 and 50000)")
    options = made.parse_args()
    m, num_public, rounds = (10, 90, 60) if options.quick else (50, 490, options.rounds)
    problems = [Problem(m, num_public, seed) for seed in range(options.repetitions)]
    print(f"spectral radius of Algorithm 2's map: {np.mean([p.radius for p in problems]):.5f}")
    agree(problems[0], m)

    lines: list[dict[str, Any]] = []
    curves: dict[str, tuple[int, list[float]]] = {}

    def run(panel: int, label: str, fraction: float, exponent: float, *, stale: bool = False) -> None:
        found = [p.iterate(fraction, exponent, rounds, stale=stale)[1] for p in problems]
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


def agree(problem: Problem, m: int) -> None:
    """The workflow's consensus after ten rounds, each way, is that of the maps."""
    fraction = 0.2 if m > 5 else 1.0
    for uploads in ("current", "stale"):
        settings: dict[str, Any] = {
            "deregularise": "paper",
            "rounds": 10,
            "client_fraction": fraction,
            "memory_exponent": 0.501,
        }
        if fraction < 1:
            settings["uploads"] = uploads
        done = run_job(D3, problem.drawn, RIDGE, settings)
        assert isinstance(done.left, PublicConsensus)
        found, _ = problem.iterate(fraction, 0.501, 10, stale=uploads == "stale")
        difference = float(np.abs(done.left.values - found).max())
        if difference > 1e-10:
            raise SystemExit(f"the workflow differs from the maps by {difference:.2g} ({uploads})")
    print("the workflow's first ten rounds agree with the maps, in both forms")


if __name__ == "__main__":
    main()
