"""Exploration in the online paper's method (Appendix C): POF-MKL (25, 20) with rates xi from 0.1 to 1.

The appendix studies them and is not at hand, so nothing published stands beside.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from online.table1 import PROBLEMS, Data, Problem, asked, run
from records import entry, write
from tables import show, subplots

EXPLORATION = (0.1, 0.25, 0.5, 1.0)


def rows(problem: Problem, data: Data, repetitions: int) -> Iterator[dict[str, Any]]:
    """MSE x 1000 for each setting, one after another."""
    sizes = {"name": "online", "kernels_per_round": 25, "num_frequencies": 20, "rates": "paper"}
    for xi in EXPLORATION:
        found = [1000 * run(data, {**sizes, "exploration": xi}, seed).mse for seed in range(repetitions)]
        yield entry(f"{problem.title}, MSE x 1000", f"POF-MKL (25, 20), xi = {xi:g}", None, found)


def main() -> None:
    """Run, print, and write JSON and a plot."""
    options, sets, count = asked(__doc__, len(EXPLORATION), quick=6)
    lines: list[dict[str, Any]] = []
    fig, (axes,) = subplots(len(options.set), width=5.2)
    for (name, data), ax in zip(sets.items(), axes, strict=True):
        found = list(rows(PROBLEMS[name], data, count))
        show(found)
        lines += found
        places = np.arange(len(found))
        ax.barh(places, [row["measured"] for row in found], color="tab:blue")
        ax.set_yticks(places, [row["method"] for row in found], fontsize=7)
        ax.invert_yaxis()
        ax.set_title(PROBLEMS[name].title)
        ax.set_xlabel("MSE x 1000")
    write(lines, options, "online-settings", fig)


if __name__ == "__main__":
    main()
