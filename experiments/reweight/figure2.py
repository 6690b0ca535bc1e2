"""Figures 2 and 3 of the FTW-ERM paper: eigenvalues of test rows over those of training rows, client by client.

Theorem 2 asks that the root of their ratio, i-th largest by i-th largest, is below a bound that is 1 without a ridge
and at most 1.62. The paper finds all ratios below 1 on the clients of Tables 1 and 3, but for the lowest eigenvalues,
where rounding decides (Figure 3). It does not say whether second moments are sums over rows or means. A client has six
times as many training as test rows, so sums differ by that factor without any shift: both are told here.

Clients are those of Table 9 on Fashion-MNIST where it is at hand; else, and with --quick, USPS digits stand in, with
the same kind of shift: 600 training rows of class 5 to 9 and 4 of each other class, and 100 or, so that the sizes are
equal, 600 test rows of class 0 to 4, and 1 of each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from data_sets import arrays
from records import announce, entry, write
from reweight.common import Floats, Images, deal, images, parser
from reweight.table1 import TEST, TRAIN
from tables import show, subplots

BOUND = (1 + np.sqrt(5)) / 2
"""Of the root of a ratio, with the greatest ridge."""
LEAST = 1e-6
"""Of the largest eigenvalue of training rows: below it rounding decides."""


def digits() -> Images:
    """USPS in two pools: classes 5 to 9 for training and a few for tests, the others the other way round."""
    file = arrays("usps")
    x = np.concatenate([file["X_train"], file["X_test"]]).astype(np.float64)
    y = np.concatenate([file["y_train"], file["y_test"]]).astype(np.int64)
    place = np.zeros(len(y), dtype=np.int64)
    for k in range(10):
        rows = np.flatnonzero(y == k)
        place[rows] = np.arange(len(rows))
    train = (y >= 5) & (place >= 30) | (y < 5) & (place < 30)
    return x[train], y[train], x[~train], y[~train]


def eigenvalues(x: Floats) -> Floats:
    """Of the sum of x x', the largest first."""
    found: Floats = np.linalg.eigvalsh(x.T @ x)[::-1].clip(min=0.0)
    return found


def rows_of(train: Floats, test: Floats) -> dict[str, float]:
    """For sums and for means over rows: the share of ratios below 1, and the greatest root of one."""
    of_train, of_test = eigenvalues(train), eigenvalues(test)
    kept = of_train > LEAST * of_train[0]
    sums = of_test[kept] / of_train[kept]
    means = sums * len(train) / len(test)
    return {
        "sums, share below 1": float((sums < 1).mean()),
        "sums, greatest root": float(np.sqrt(sums.max())),
        "means, share below 1": float((means < 1).mean()),
        "means, greatest root": float(np.sqrt(means.max())),
        "means, share within 1.62": float((np.sqrt(means) < BOUND).mean()),
    }


def main() -> None:
    """Run, print, and write JSON and a plot."""
    options = parser(__doc__, rounds=1, full_rounds=1, full_repetitions=5).parse_args()
    fashion = None if options.quick else images(options.fashion, "Fashion-MNIST", scaled=False)
    name, data = ("USPS", digits()) if fashion is None else ("Fashion-MNIST", fashion)
    few = [[600 if c == 5 + k else 4 for c in range(10)] for k in range(5)]
    settings: Mapping[str, tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]]] = {
        f"{name}, six times as many training rows": (
            few,
            [[100 if c == k else 1 for c in range(10)] for k in range(5)],
        ),
        f"{name}, as many test rows": (few, [[600 if c == k else 1 for c in range(10)] for k in range(5)]),
    }
    if fashion is not None:
        settings = {f"{name}, Table 9": (TRAIN, TEST)}
    repetitions = options.repetitions or 5
    announce(sum(sum(map(sum, c[0])) for c in settings.values()) * repetitions, 0, 60.0)
    lines: list[dict[str, Any]] = []
    figure, axes = subplots(len(settings), 2, height=3.6)
    for column, (setting, counts) in enumerate(settings.items()):
        found: dict[str, list[float]] = {}
        for seed in range(repetitions):
            for k, rows in enumerate(deal(data, *counts, seed).values()):
                for what, value in rows_of(rows.x_train, rows.x_test).items():
                    found.setdefault(f"client {k + 1}, {what}", []).append(value)
                if seed == 0:
                    of_train, of_test = (eigenvalues(x) / len(x) for x in (rows.x_train, rows.x_test))
                    axes[0][column].plot(of_test / np.maximum(of_train, 1e-300), label=f"client {k + 1}")
                    axes[1][column].plot(of_train, color=f"C{k}")
                    axes[1][column].plot(of_test, ":", color=f"C{k}")
        lines += [entry(setting, method, None, values) for method, values in found.items()]
        axes[0][column].axhline(1.0, color="black", lw=0.8)
        axes[0][column].set_title(setting, fontsize=8)
        axes[0][column].set_ylabel("ratio, means over rows")
        axes[1][column].set_ylabel("eigenvalues (dotted: test rows)")
        axes[1][column].set_xlabel("i")
        for ax in axes[:, column]:
            ax.set_yscale("log")
        axes[0][column].set_ylim(1e-2, 1e3)
        axes[0][column].legend(fontsize=7)
    show(lines)
    write(lines, options, "reweight-figure2", figure)


if __name__ == "__main__":
    main()
