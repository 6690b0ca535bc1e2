"""Figure 4 of the distillation paper: de-regularised distillation of kernel models beside FedMD with neural networks.

D3, 10 rows per client, (m - 1) N public points. FedMD is the same job with a network at every client, named by its own
client file: three hidden layers, pre-trained on own rows; in each round it learns the consensus, then its own rows.
With --mnist, MNIST with LeNet-5. "Central" is one model of all clients' rows. The figure prints no numbers; in it FedMD
stays above the kernel models.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from distill.common import D3, SYNTHETIC, DataSet, Draw, choose_ridges, draw, grid, measured, mnist, parser
from records import announce, entry, of_size, write
from tables import show, subplots

from kernfed.jobs.client_file import ClientFile
from kernfed.jobs.job_file import JobFile
from kernfed.methods.distill.public_set import pack, sha256
from kernfed_simulation.federation import Rows, from_rows
from kernfed_simulation.partition import client_names
from kernfed_simulation.run import simulate

NUM_ROWS = 10
MLP = {"kind": "mlp", "hidden": [64, 64, 64], "pretrain_epochs": 200, "digest_epochs": 5, "revisit_epochs": 5}
CNN = {"kind": "cnn", "image_shape": [28, 28], "pretrain_epochs": 30, "digest_epochs": 2, "revisit_epochs": 2}


def fedmd(data: DataSet, drawn: Draw, rounds: int, epochs: int | None = None) -> tuple[float, float]:
    """Mean test error of the networks: alone, and after FedMD; `epochs` on own rows are others than the network's."""
    content = pack(drawn.public)
    job = JobFile.model_validate(
        {
            "name": "fedmd",
            "evaluate_every": 1_000_000,
            "method": {
                "name": "distill",
                "public": "public",
                "rounds": rounds,
                "deregularise": False,
                "keep": "distilled",
                "tolerance": 0.0,
            },
            "data": {
                "task": "regression",
                "target": "y",
                "features": [f"x{i}" for i in range(data.num_columns)],
                "standardise": False,
            },
            "files": {"public": sha256(content)},
        }
    )
    names = client_names(len(drawn.train))
    rows = {n: Rows(x, y, *drawn.test) for n, (x, y) in zip(names, drawn.train, strict=True)}
    network: dict[str, Any] = MLP if data.images is None else CNN
    if epochs is not None:
        network = {**network, "pretrain_epochs": epochs}
    with tempfile.TemporaryDirectory() as state:
        jobs = from_rows(rows, (), Path(state))
        for name, local in jobs.items():
            file = {
                "state": Path(state) / name,
                "policy": {"min_rows": 1},
                "models": {"default": network},
                "device": "cpu",
            }
            local.file = ClientFile.model_validate(file)
        done = simulate(job, jobs, files={sha256(content): content})
    if done.error is not None:
        raise done.error
    return done.final.pooled["local"]["mse"], done.final.pooled["personal"]["mse"]


def together(drawn: Draw) -> Draw:
    """The same draw, all rows at one client."""
    x, y = (np.concatenate(parts) for parts in zip(*drawn.train, strict=True))
    return replace(drawn, train=[(x, y)])


def main() -> None:
    """Run, print, and write JSON and a plot."""
    made = parser(__doc__, repetitions=100)
    made.add_argument("--clients", nargs="+", type=int, help="numbers of clients m")
    made.add_argument("--rounds", type=int, help="of FedMD")
    options = made.parse_args()
    repetitions, counts, rounds = of_size(
        options, quick=(2, [3], 2), middle=(5, [10, 20], 40), paper=(100, [10, 20, 30, 40, 50], 40)
    )
    repetitions, counts = options.repetitions or repetitions, options.clients or counts
    rounds = options.rounds or rounds
    images = mnist(options.mnist)
    sets = {"D3": SYNTHETIC["D3"], **({"MNIST": images} if images else {})}
    clients = repetitions * sum(counts) * len(sets)
    announce(clients * NUM_ROWS, 5 * clients)
    lines = []
    fig, (axes,) = subplots(len(sets), height=3.6)
    for (name, data), ax in zip(sets.items(), axes, strict=True):
        methods = ("central", "de-regularised")
        rows: dict[str, list[dict[str, Any]]] = {}
        for m in counts:
            draws = [draw(data, m, NUM_ROWS, (m - 1) * NUM_ROWS, seed) for seed in range(repetitions)]
            ridges = grid(-3.5, -0.5, 4 if options.quick else 7) if data is D3 else grid(-5, -2, 4)
            chosen = choose_ridges(data, draws[:3], ridges, methods)
            found = {f"{k}, kernel ridge": [measured(data, d, k, chosen[k]) for d in draws] for k in methods}
            epochs = 40 if options.quick else None
            pairs = [fedmd(data, d, rounds, epochs) for d in draws]
            found["networks alone"], found["FedMD"] = [p[0] for p in pairs], [p[1] for p in pairs]
            found["central, network"] = [fedmd(data, together(d), 1, epochs)[0] for d in draws]
            for method, values in found.items():
                rows.setdefault(method, []).append(entry(f"{name}, m = {m}", method, None, values))
            show(r[-1] for r in rows.values())
        lines += [row for group in rows.values() for row in group]
        for method, group in rows.items():
            values, errors = ([row[key] for row in group] for key in ("measured", "standard_error"))
            ax.errorbar(counts, values, errors, fmt="o-", capsize=3, label=method)
        ax.set_title(name)
        ax.set_xlabel("clients")
        ax.set_ylabel("mean squared error")
        ax.legend(fontsize=8)
    write(lines, options, "distill-fedmd", fig)


if __name__ == "__main__":
    main()
