"""Weights of all targets at once beside the paper's algorithm, one target after the other, in one run.

The rows are those of the personalisation paper's Section 6.1: clients in 20 dimensions, in two groups of opposite
concepts; of 50 rows each, for with the paper's 10 and its constants every client's optimum is to stay alone. The plain
loop is Algorithm 1 with 3 as they are printed (two slips corrected), for each target: its matrix A, the largest
eigenvalue of it, 1000 steps with a look-ahead. For 1,000 clients it would take an hour, so it runs for a few targets
there, and the time of all is their mean times 1,000.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from kernfed.features.spec import draw_frequencies
from kernfed.maths.triangles import pack
from kernfed.methods.personalise.choice import FULL_GRID, LITE_GRID, Scores, Turns
from kernfed.methods.personalise.crossfit import Target
from kernfed.methods.personalise.crossfit_messages import CandidateGrid
from kernfed.methods.personalise.embeddings import View, embed, target_terms, view_spec
from kernfed.methods.personalise.mixing.shared import Shared
from kernfed.methods.personalise.q_aggregation.weights import (
    Aggregation,
    default_constants,
    linear_term,
    solve_exact,
    solve_paper,
)

COLUMNS, BOUND, STEPS = 20, np.sqrt(2.0), 1000
Floats = npt.NDArray[np.float64]


def rows_of(num_clients: int, num_rows: int) -> tuple[Floats, Floats]:
    """Inputs (B, n, d) and targets (B, n), standardised."""
    random = np.random.default_rng(0)
    sign = random.choice([-1.0, 1.0], num_clients)
    beta = sign[:, None] * random.normal(size=COLUMNS)
    x = 1.0 + random.normal(size=(num_clients, num_rows, COLUMNS))
    y = np.einsum("bnd,bd->bn", x, beta) + np.sqrt(2.0) * random.normal(size=(num_clients, num_rows))
    return (x - x.mean(axis=(0, 1))) / x.std(axis=(0, 1)), (y - y.mean()) / y.std()


def features(x: Floats, y: Floats, num_frequencies: int) -> Floats:
    """Embedding features of all rows, (B, n, D)."""
    drawn = draw_frequencies(view_spec(View.XY, COLUMNS, 1, num_frequencies=num_frequencies))
    z = np.concatenate([x, y[:, :, None]], axis=2)
    phi: Floats = np.sqrt(2.0 / num_frequencies) * np.cos(z @ drawn.omega.T + drawn.phase)
    return phi


def plain_target(phi: Floats, nu: Floats, t: int) -> Floats:
    """Weights of one target, as the paper's boxes say it."""
    num, n = len(nu), phi.shape[1]
    c_p = np.log(num)
    offset = nu - nu[t]
    a = offset @ offset.T
    centred = phi[t] - nu[t]
    trace = np.square(centred).sum() / (n - 1)
    spread = np.square(centred @ offset.T).sum(axis=0) / (n - 1)
    b = np.sqrt(c_p) / np.sqrt(n) * np.sqrt(spread) + c_p * BOUND / n * np.linalg.norm(offset, axis=1)
    b[t] += 2.0 * trace / n
    eta = 0.5 / (2.0 * np.linalg.norm(a, 2) + np.abs(b).max())
    w = np.full(num, 1.0 / num)
    for _ in range(STEPS):
        ahead = w * np.exp(-eta * (2.0 * a @ w + b))
        ahead /= ahead.sum()
        w = w * np.exp(-eta * (2.0 * a @ ahead + b))
        w /= w.sum()
    return w


def at_once(
    phi: Floats, nu: Floats, solve: Callable[[Floats, npt.NDArray[np.intp], Floats], Aggregation]
) -> Aggregation:
    """Weights of every target: terms, one Gram matrix, one solver."""
    num = len(nu)
    constants = default_constants(num)
    linear = np.stack([linear_term(target_terms(phi[t], nu), t, constants) for t in range(num)], axis=1)
    return solve(nu @ nu.T, np.arange(num), linear)


def timed(run: Callable[[], object]) -> tuple[float, object]:
    """Seconds of a call, and what it gave."""
    began = time.perf_counter()
    found = run()
    return time.perf_counter() - began, found


def show(num_clients: int, num_frequencies: int, plain_targets: int, repeat: int) -> None:
    """A line for each solver."""
    phi = features(*rows_of(num_clients, 50), num_frequencies)
    nu = phi.mean(axis=1)
    chosen = np.linspace(0, num_clients - 1, plain_targets).round().astype(int)
    times, loop = [], np.zeros((num_clients, plain_targets))
    for i, t in enumerate(chosen):
        seconds, w = timed(lambda t=int(t): plain_target(phi, nu, t))  # type: ignore[misc]
        times.append(seconds)
        loop[:, i] = w  # type: ignore[call-overload]
    plain = float(np.mean(times)) * num_clients
    measured = "" if plain_targets == num_clients else f", from {plain_targets} targets"
    print(f"\nweights of {num_clients} targets over {num_clients} clients, D = {num_frequencies}")
    print(f"  {'':<44}{'seconds':>9}{'times':>8}{'gap':>10}")
    print(f"  {'the printed loop, target by target' + measured:<44}{plain:>9.2f}{1:>8}")
    solvers = (("paper, all at once", solve_paper), ("exact, all at once", solve_exact))
    for name, solve in solvers if num_clients <= 200 else solvers[1:]:
        runs = [timed(lambda solve=solve: at_once(phi, nu, solve)) for _ in range(repeat)]  # type: ignore[misc]
        seconds, found = min(s for s, _ in runs), runs[-1][1]
        assert isinstance(found, Aggregation)
        print(f"  {name:<44}{seconds:>9.2f}{plain / seconds:>8.0f}{found.gap.max():>10.1e}")
        if solve is solve_paper:
            worst = float(np.abs(found.weights[:, chosen] - loop).max())
            assert worst < 1e-9, worst
        else:
            assert found.gap.max() < 1e-10, found.gap.max()


def show_default(num_clients: int, num_frequencies: int) -> None:
    """What the default costs a client: all stages of scoring, and adopting."""
    num_rows = 10
    x, y = rows_of(num_clients, num_rows)
    phi = features(x, y, num_frequencies)
    parts = [embed(rows) for rows in phi]
    shared = Shared(
        np.full(num_clients, float(num_rows)),
        np.array([p.mean for p in parts]),
        np.array([p.error for p in parts]),
        np.array([pack(rows.T @ rows / num_rows) for rows in x]),
        np.array([a.T @ b[:, None] / num_rows for a, b in zip(x, y, strict=True)]),
        np.square(y).mean(axis=1),
    )

    def run(grid: CandidateGrid) -> None:
        targets = [Target(t, shared, x[t], y[t][:, None], phi[t], grid, np.ones(COLUMNS)) for t in range(num_clients)]
        turns = Turns(grid)
        while not turns.done:
            told = [target.scores(turns.decisions) for target in targets]
            names = ("losses", "squared_differences", "variances")
            turns.add(Scores(*(np.sum([getattr(s, name) for s in told], axis=0) for name in names)), num_clients)
        for target in targets:
            target.adopt(turns.decisions)

    print(f"\nthe default (crossfit), {num_clients} clients, D = {num_frequencies}, {COLUMNS} inputs")
    print(f"  {'':<44}{'ms a client':>12}")
    for name, grid in (("full grid, 525 candidates", FULL_GRID), ("lite grid, 87 candidates", LITE_GRID)):
        seconds, _ = timed(lambda grid=grid: run(grid))  # type: ignore[misc]
        print(f"  {name:<44}{seconds / num_clients * 1e3:>12.1f}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="without the 1,000 clients")
    options = parser.parse_args()
    show(100, 500, plain_targets=100, repeat=3)
    if not options.quick:
        show(1000, 1000, plain_targets=3, repeat=1)
    show_default(100, 500)


if __name__ == "__main__":
    main()
