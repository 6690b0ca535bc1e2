"""Table 3 of the FTW-ERM paper: coloured MNIST, where colour goes with the label, but not as it will at test time.

Digits below 5 are class 0, others class 1; a quarter of the labels is flipped. A digit's colour is its label's, but
flipped with a probability of its own in each set (Table 12): client 1 trains at 0.5 and is tested at 0.2, client 2
trains at 0.2 and is tested at 0.8, and has 40 times as many rows. Ratios are exact, of the colour given the label.
Images are halved to 14 x 14 in two channels. Grayscale has no colour: what can be had without the spurious one. With
--middle 800 iterations in place of 5000, 16,400 of the 60,000 rows, and one draw in place of five.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import numpy as np
from records import entry, of_size, write
from reweight.common import (
    NAMES,
    Floats,
    Images,
    Integers,
    accuracies,
    bars,
    images,
    lenet_job,
    made_up_images,
    parser,
    run_job,
    sizes,
)
from tables import show

from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.reweight.state import Facts, Ratios, keep_ratios
from kernfed_simulation.federation import Rows

TRAIN_FLIPS, TEST_FLIPS = (0.5, 0.2), (0.2, 0.8)
CLIENTS = ("client-1", "client-2")
PUBLISHED = {"FTW-ERM": 0.66, "FITW-ERM": 0.63, "FedAvg": 0.58, "Grayscale": 0.68}


def coloured(
    x: Floats, digits: Integers, flip: float, random: np.random.Generator
) -> tuple[Floats, Integers, Integers]:
    """Images in two channels, labels, and whether the colour is the label's."""
    small = x.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196)
    label = (digits >= 5).astype(np.int64) ^ (random.random(len(digits)) < 0.25)
    agrees = random.random(len(digits)) >= flip
    colour = np.where(agrees, label, 1 - label)
    both = np.full((len(digits), 2, 196), small.min())
    both[np.arange(len(digits)), colour] = small
    return both.reshape(len(digits), 392), label, agrees.astype(np.int64)


def draw(data: Images, sizes_of: tuple[int, int], seed: int) -> tuple[dict[str, Rows], dict[str, Integers]]:
    """Rows of both clients, and for each training row whether its colour is the label's."""
    random = np.random.default_rng(seed)
    x, y, xt, yt = data
    order, test = random.permutation(len(x)), np.array_split(random.permutation(len(xt)), 2)
    train = np.split(order[: sum(sizes_of)], [sizes_of[0]])
    rows, agrees = {}, {}
    for i, name in enumerate(CLIENTS):
        a, b, c = coloured(x[train[i]], y[train[i]], TRAIN_FLIPS[i], random)
        d, e, _ = coloured(xt[test[i]], yt[test[i]], TEST_FLIPS[i], random)
        rows[name], agrees[name] = Rows(a, b, d, e), c
    return rows, agrees


def known_ratios(agrees: Mapping[str, Integers], jobs: Mapping[str, LocalJob]) -> None:
    """Keep the exact ratios at the clients, as if they had been found: of p(colour | label), which alone differs."""
    for i, name in enumerate(CLIENTS):
        own = np.array([TEST_FLIPS[i], 1 - TEST_FLIPS[i]])
        train = np.array([TRAIN_FLIPS[i], 1 - TRAIN_FLIPS[i]])
        everyone = np.array([sum(TEST_FLIPS), 2 - sum(TEST_FLIPS)])
        for variant, ratios, total in (("own", own / train, 1.0), ("all", everyone / train, 2.0)):
            weights = ratios[agrees[name]] / total
            keep_ratios(jobs[name], variant, Ratios(weights, Facts(total, float(weights.mean() * total))))


def main() -> None:
    """Run, print, and write JSON and a plot."""
    options = parser(__doc__, rounds=800, full_rounds=5000, full_repetitions=5).parse_args()
    data = made_up_images() if options.quick else images(options.mnist, "MNIST")
    if data is None:
        sys.exit(1)
    sizes_of = of_size(options, quick=(60, 2400), middle=(400, 16_000), paper=(1464, 58_536))
    rounds, repetitions = sizes(options, sum(sizes_of), 2)
    network = {"kind": "cnn", "image": [2, 14, 14]}
    method = {"network": network, "ratios": {"denominator": "client"}}
    parts = {"data": {"task": "binary", "classes": ["0", "1"]}, "method": method}
    found: dict[str, list[Floats]] = {name: [] for name in (*NAMES.values(), "Grayscale")}
    for seed in range(repetitions):
        rows, agrees = draw(data, sizes_of, seed)
        job = lenet_job(seed, rounds, 392, **parts)
        metrics = run_job(job, rows, ("0", "1"), lambda jobs, a=agrees: known_ratios(a, jobs))  # type: ignore[misc]
        for model, name in NAMES.items():
            found[name].append(accuracies(metrics, model))
        for client in rows.values():
            for x in (client.x_train, client.x_test):
                x.reshape(-1, 2, 196)[:] = x.reshape(-1, 2, 196).max(axis=1, keepdims=True)
        gray = run_job(job, rows, ("0", "1"), lambda jobs, a=agrees: known_ratios(a, jobs))  # type: ignore[misc]
        found["Grayscale"].append(accuracies(gray, "fedavg"))
    lines = []
    title = "coloured MNIST, 2 clients"
    for name, values in found.items():
        measured = np.array(values)
        lines.append(entry(f"{title}, average accuracy", name, PUBLISHED[name], measured.mean(axis=1)))
        lines += [entry(f"{title}, client {i + 1}", name, None, measured[:, i]) for i in range(2)]
    show(lines)
    labels = {
        f"{title}, average accuracy": "average",
        f"{title}, client 1": "client 1",
        f"{title}, client 2": "client 2",
    }
    figure = bars(lines, labels, "accuracy", f"Table 3, {rounds} iterations")
    figure.set_size_inches(6.5, 4.0)
    write(lines, options, "reweight-table3", figure)


if __name__ == "__main__":
    main()
