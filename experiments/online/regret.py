"""Regret in hindsight of Table 1's methods: Figure 1 (each client, its best kernel) and equation (12) (all clients).

Figure 1 draws the average regret of clients over rounds for vM-KOFL and POF-MKL; its curves have no printed values. The
regret (12) is that of all predictions against the best function of one kernel for the rows of all clients, a row and
times 1000, beside the bound of Theorem 2 where its premises hold. `loss of the best function` is what that function
itself has, so that the sum of both is the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from online.table1 import PROBLEMS, Measured, T, asked, methods, run
from records import entry, write
from tables import show, subplots

METHODS = (
    "vM-KOFL",
    "POF-MKL (1, 100), rates of the text",
    "POF-MKL (25, 20), rates of the text",
    "POF-MKL (25, 20), weights at rate 1",
    "POF-MKL (25, 20), adaptive",
    "POF-MKL (51, 9), rates of the text",
    "online, statistics",
)
AT = (T // 4, T // 2, T)
"""Rounds of Figure 1 that the table shows."""


def rows(title: str, by_method: dict[str, list[Measured]]) -> Iterator[dict[str, Any]]:
    """Regret of clients per round at three rounds; (12), its bound, and the loss of the best function."""
    for at in AT:
        for method, found in by_method.items():
            so_far = [1000 * m.regret[at * 20 // T - 1] / at for m in found]
            yield entry(f"{title}, regret of clients a round x 1000, {at} rounds", method, None, so_far)
    told = {method: [m.hindsight for m in found if m.hindsight] for method, found in by_method.items()}
    for method, of_all in told.items():
        yield entry(f"{title}, regret (12) a row x 1000", method, None, [1000 * f.regret / f.rows for f in of_all])
    for method, of_all in told.items():
        bounds = [1000 * f.bound / f.rows for f in of_all if f.bound is not None]
        if bounds:
            yield entry(f"{title}, Theorem 2 a row x 1000", method, None, bounds)
    for method, of_all in told.items():
        best = [1000 * f.loss / f.rows for f in of_all]
        yield entry(f"{title}, loss of the best function a row x 1000", method, None, best)


def main() -> None:
    """Run, print, and write JSON and a plot."""
    options, sets, count = asked(__doc__, len(METHODS), quick=3)
    lines: list[dict[str, Any]] = []
    fig, (axes,) = subplots(len(sets), width=5.2)
    for (name, data), ax in zip(sets.items(), axes, strict=True):
        by_method = {
            method: [run(data, {**methods()[method][1], "hindsight": True}, seed) for seed in range(count)]
            for method in METHODS
        }
        lines += rows(PROBLEMS[name].title, by_method)
        for method, found in by_method.items():
            regret = np.mean([m.regret for m in found], axis=0)
            rounds = (np.arange(len(regret)) + 1) * (T // 20)
            ax.plot(rounds, regret / rounds, label=method)
        ax.set_title(PROBLEMS[name].title)
        ax.set_xlabel("round")
        ax.set_ylabel("mean regret of clients, per round")
        ax.set_yscale("symlog", linthresh=1e-3)
        ax.grid(alpha=0.3)
        ax.legend(fontsize=7)
    show(lines)
    write(lines, options, "online-regret", fig)


if __name__ == "__main__":
    main()
