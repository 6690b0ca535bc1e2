"""Table 10 of the FTW-ERM paper: Fashion-MNIST on two clients of very different sizes, LeNet, exact ratios.

Counts are those of Table 11. How clients are weighed decides this table: FedAvg is run with equal weights, as FTW-ERM
is, and by rows. With --middle 600 iterations in place of 5000, and one draw in place of five; all rows are used.
"""

from __future__ import annotations

import sys

from records import write
from reweight.common import bars, images, label_shift_table, made_up_images, parser, sizes, table_of
from tables import show

TRAIN = [[100] * 10, [39] * 5 + [3986] * 5]
TEST = [[9] * 5 + [990] * 5, [990] * 5 + [9] * 5]
PUBLISHED = {"FTW-ERM": (0.82, 0.89, 0.74), "FITW-ERM": (0.76, 0.80, 0.71), "FedAvg": (0.76, 0.94, 0.58)}


def main() -> None:
    """Run, print, and write JSON and a plot."""
    options = parser(__doc__, rounds=600, full_rounds=5000, full_repetitions=5).parse_args()
    data = made_up_images() if options.quick else images(options.fashion, "Fashion-MNIST")
    if data is None:
        sys.exit(1)
    counts = (TRAIN, TEST)
    if options.quick:
        counts = ([[n // 8 for n in row] for row in TRAIN], [[n // 6 for n in row] for row in TEST])
    rounds, repetitions = sizes(options, sum(map(sum, counts[0])), 2)
    lines = []
    for weights in ("equal", "rows"):
        found = label_shift_table(data, counts, rounds, repetitions, {"client_weights": weights})
        suffix = "" if weights == "equal" else ", by rows"
        named = {f"{method}{suffix}": values for method, values in found.items()}
        published = {f"{method}{suffix}": values for method, values in PUBLISHED.items()}
        lines += table_of(named, published, "Fashion-MNIST, 2 clients")
    show(lines)
    labels = {"Fashion-MNIST, 2 clients, average accuracy": "average"}
    labels |= {f"Fashion-MNIST, 2 clients, client {k}": f"client {k}" for k in (1, 2)}
    figure = bars(lines, labels, "accuracy", f"Table 10, {rounds} iterations")
    figure.set_size_inches(8.5, 4.2)
    write(lines, options, "reweight-table10", figure)


if __name__ == "__main__":
    main()
