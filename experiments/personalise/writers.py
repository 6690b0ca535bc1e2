"""Figures 3 and 4 of the personalisation paper: writers of digits, each with few of them, in a stand-in.

The paper takes 192 writers of FEMNIST, of 62 characters, which is not at hand. Here USPS digits stand in: each client
has a hand of its own, which leans by 0.5 to the left or to the right, and by a normal number of deviation 0.1 more; it
has 20 to 80 digits to learn from (Figure 4 shows how many a writer has) and 60 to be tested on. As in Section 6.3 the
weights are of pixels alone by 1000 random features, C_Q² = C_P = log B, and the model is a ReLU network of 32 units.
Each step is of all rows, 200 by Adam at 0.01 in place of the paper's 2000 at 0.001. The paper's figure has no printed
values; it shows its weights above GrandMean, and that above local training, at nearly all writers.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from data_sets import arrays
from personalise.common import Floats, line, make_job, parser, run_job
from records import announce, of_size, write
from scipy.ndimage import affine_transform
from tables import show, subplots

from kernfed_simulation.federation import Rows

SIDE = 16
LEAN, SPREAD = 0.5, 0.1
DEFAULT, PAPER, EXACT = "default (crossfit)", "Q-aggregation, as printed", "Q-aggregation, optimum"
WEIGHTS: Mapping[str, dict[str, Any]] = {PAPER: {"weights": "paper"}, EXACT: {"weights": "exact"}, DEFAULT: {}}
Integers = npt.NDArray[np.int64]


def leaning(images: Floats, lean: float) -> Floats:
    """Images of rows of pixels, (n, 256), whose lines move sideways by `lean` pixels a line, less at the middle."""
    shear = np.array([[1.0, 0.0], [-lean, 1.0]])
    middle = np.full(2, (SIDE - 1) / 2)
    offset = middle - shear @ middle
    pictures = images.reshape(-1, SIDE, SIDE)
    moved = [affine_transform(picture, shear, offset, order=1, mode="nearest") for picture in pictures]
    return np.array(moved).reshape(len(images), -1)


def draw(num_clients: int, num_test: int, most: int, seed: int) -> tuple[dict[str, Rows], Integers]:
    """Rows by client, no digit at two of them, and each client's hand."""
    random = np.random.default_rng([seed, 63])
    held = arrays("usps")
    x, y = (np.concatenate([held[part] for part in parts]) for parts in (("X_train", "X_test"), ("y_train", "y_test")))
    if num_clients * (most + num_test) > len(y):
        sys.exit(
            f"{num_clients} writers of up to {most + num_test} digits are more than there are; give fewer --clients"
        )
    order = random.permutation(len(y))
    hand = np.arange(num_clients) % 2
    rows, start = {}, 0
    for k in range(num_clients):
        size = int(random.integers(most // 4, most + 1))
        mine = order[start : start + size + num_test]
        start += len(mine)
        digits = leaning(x[mine].astype(np.float64), LEAN * (2 * hand[k] - 1) + SPREAD * random.normal())
        label = y[mine].astype(np.int64)
        rows[f"w{k:03d}"] = Rows(digits[:size], label[:size], digits[size:], label[size:])
    return rows, hand


def main() -> None:
    """Run, print, and write JSON and a plot."""
    arguments = parser(__doc__, repetitions=1)
    arguments.add_argument("--clients", type=int, help="writers (default 66; the paper: 192)")
    arguments.add_argument("--rounds", type=int, help="rounds of a network (default 200)")
    options = arguments.parse_args()
    num_clients, rounds, most, frequencies, units = of_size(
        options, quick=(6, 30, 60, 200, 16), middle=(20, 200, 80, 1000, 32), paper=(66, 200, 80, 1000, 32)
    )
    num_clients, rounds, num_test = options.clients or num_clients, options.rounds or rounds, 60
    repetitions = options.repetitions or 1
    models = repetitions * len(WEIGHTS) * num_clients
    announce(repetitions * num_clients * most, models)
    classes = tuple("0123456789")
    network = {"trainer": "fedavg", "rounds": rounds + 1, "network": {"kind": "mlp", "widths": [units]}}
    found: dict[str, list[Floats]] = {}
    inside: dict[str, list[float]] = {}
    for seed in range(repetitions):
        rows, hand = draw(num_clients, num_test, most, seed)
        for name, weights in WEIGHTS.items():
            method = {"view": "x", "num_frequencies": frequencies, **network, **weights}
            data, features = {"task": "classification", "classes": list(classes)}, {"kernel": "linear"}
            ran = run_job(make_job("writers", SIDE**2, seed, method, data=data, features=features), rows, classes)
            found.setdefault(name, []).append(ran.scores("personal", "accuracy"))
            inside.setdefault(name, []).append(float((ran.weights * (hand[:, None] == hand)).sum(axis=1).mean()))
            if name == DEFAULT:
                found.setdefault("local", []).append(ran.scores("local", "accuracy"))
                found.setdefault("fedavg", []).append(ran.scores("global", "accuracy"))
    setting = f"{num_clients} writers, {rounds} rounds, accuracy"
    lines = []
    for name in ("local", "fedavg", *WEIGHTS):
        row = line(setting, name, [float(a.mean()) for a in found[name]])
        if name in inside:
            row["weight in own hand"] = round(float(np.mean(inside[name])), 3)
            for other in ("local", "fedavg"):
                below = [float((a < b).mean()) for a, b in zip(found[name], found[other], strict=True)]
                row[f"share below {other}"] = round(float(np.mean(below)), 3)
        lines.append(row)
    show(lines)
    fig, axes = subplots(1)
    order = np.argsort(found[PAPER][0])
    for name in ("local", "fedavg", PAPER, DEFAULT):
        axes[0, 0].plot(found[name][0][order], marker=".", label=name)
    axes[0, 0].set_xlabel(f"writers, by accuracy of {PAPER}")
    axes[0, 0].set_ylabel("accuracy")
    axes[0, 0].legend(fontsize=8)
    write(lines, options, "personalise-writers", fig)


if __name__ == "__main__":
    main()
