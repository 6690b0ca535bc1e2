"""What the experiments on reweighting share: images, clients with given class counts, jobs in this process, tables.

Each table is one job per repetition: the model of everyone's test distribution (FTW-ERM), the one of own ratios
(FITW-ERM) and the unweighted one (FedAvg) are trained side by side, from the same start, on the same clients and
batches. The model is LeNet; clients send weighted gradients of a batch of 64 rows, and the coordinator takes steps of
Adam, as in Appendix O of the paper (Ramezani-Kebrya, Liu, Pethick, Chrysos, Cevher: Federated learning under covariate
shifts with generalization guarantees). Reported is the mean of the networks over the last fifth of the rounds, for
single ones swing by five points; the paper reports the best iterate or the last.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import structlog
from image_files import FASHION, read_images
from records import add_sizes, announce, entry, of_size
from tables import subplots

from kernfed.federation.events import EventKind, RoundMetrics
from kernfed.jobs.job_file import JobFile
from kernfed_client.data.device import choose_device
from kernfed_client.data.local_job import LocalJob
from kernfed_server.jobs.execute import execute
from kernfed_server.jobs.journal import MemoryJournal
from kernfed_server.jobs.run import Run
from kernfed_simulation.federation import Rows, from_rows, open_cohort

CLASSES = tuple(str(i) for i in range(10))

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Images = tuple[Floats, Integers, Floats, Integers]
"""Training rows and classes, test rows and classes; rows are pixels, scaled."""

SECONDS = 0.25
"""An iteration of five clients and three models on a processor core, about."""
NAMES = {"global": "FTW-ERM", "own": "FITW-ERM", "fedavg": "FedAvg"}
"""Model of a job to what the paper calls it."""


def parser(description: str | None, rounds: int, full_rounds: int, full_repetitions: int) -> argparse.ArgumentParser:
    """Options of every experiment here."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    made = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    made.add_argument("--rounds", type=int, help=f"iterations (default {full_rounds}, with --middle {rounds})")
    made.add_argument("--repetitions", type=int, help=f"draws of rows and start (default {full_repetitions})")
    made.add_argument("--fashion", type=Path, default=FASHION, help="folder of Fashion-MNIST's idx files")
    made.add_argument("--mnist", type=Path, help="folder of MNIST's plain idx files")
    add_sizes(made, "few rows and iterations: shows that it runs")
    made.set_defaults(normal=(rounds, 1), most=(full_rounds, full_repetitions))
    return made


def sizes(options: argparse.Namespace, rows: int, jobs: int = 1) -> tuple[int, int]:
    """Iterations and repetitions that the options ask for, once it is told what they take.

    Args:
        options: As given.
        rows: Of training, over all clients.
        jobs: Of each repetition, with three models each.
    """
    rounds, repetitions = of_size(options, quick=(4, 1), middle=options.normal, paper=options.most)
    rounds, repetitions = options.rounds or rounds, options.repetitions or repetitions
    device = choose_device("auto")
    print(f"{rounds} iterations of {repetitions} draw(s), on {device}", flush=True)
    announce(rows, 3 * jobs * repetitions, SECONDS * rounds * jobs * repetitions if device.type == "cpu" else None)
    if device.type == "cpu" and not options.quick:
        print("PyTorch finds no GPU: give one, and a CUDA build of PyTorch, or --middle, or fewer --rounds", flush=True)
    return rounds, repetitions


def images(folder: Path | None, name: str, *, scaled: bool = True) -> Images | None:
    """Images of 28 x 28 pixels, scaled by their mean and deviation or from 0 to 1; None, and a word, without the files.

    Args:
        folder: With the idx files.
        name: What they are.
        scaled: By mean and deviation.
    """
    parts = read_images(name, folder)
    if parts is None:
        return None
    x, xt = (p / 255.0 for p in parts[::2])
    mean, deviation = (x.mean(), x.std()) if scaled else (0.0, 1.0)
    y, yt = (p.astype(np.int64) for p in parts[1::2])
    return (x - mean) / deviation, y, (xt - mean) / deviation, yt


def made_up_images(seed: int = 0, *, scaled: bool = True) -> Images:
    """Ten kinds of blurred noise, for --quick where no files are needed; not scaled, they lie from 0 to 1."""
    random = np.random.default_rng(seed)
    centres = np.kron(random.normal(size=(10, 7, 7)), np.ones((4, 4))).reshape(10, 784)
    parts: list[tuple[Floats, Integers]] = []
    for size in (6000, 2000):
        y = np.arange(size) % 10
        x = centres[y] + 0.7 * random.normal(size=(size, 784))
        parts.append((x if scaled else x.clip(-4, 4) / 8 + 0.5, y))
    return *parts[0], *parts[1]


def deal(data: Images, train: Sequence[Sequence[int]], test: Sequence[Sequence[int]], seed: int) -> dict[str, Rows]:
    """Give each client so many training and test rows of each class, none to two of them.

    Args:
        data: All rows.
        train: Per client, the number of training rows of each class.
        test: The same of test rows.
        seed: Of the draw.
    """
    random = np.random.default_rng(seed)
    x, y, xt, yt = data

    def parts(labels: Integers, counts: Sequence[Sequence[int]]) -> list[Integers]:
        given: list[list[Integers]] = [[] for _ in counts]
        for k in range(10):
            rows = random.permutation(np.flatnonzero(labels == k))
            ends = np.cumsum([c[k] for c in counts])
            if ends[-1] > len(rows):
                raise ValueError(f"class {k} has {len(rows)} rows, fewer than the {ends[-1]} wanted")
            for i, chosen in enumerate(np.split(rows[: ends[-1]], ends[:-1])):
                given[i].append(chosen)
        return [random.permutation(np.concatenate(g)) for g in given]

    pairs = zip(parts(y, train), parts(yt, test), strict=True)
    width = len(str(len(train)))
    return {f"client-{i + 1:0{width}d}": Rows(x[a], y[a], xt[b], yt[b]) for i, (a, b) in enumerate(pairs)}


def lenet_job(seed: int, rounds: int, num_columns: int = 784, **parts: Any) -> JobFile:
    """The job of Appendix O: LeNet, batches of 64, Adam with step 0.001 at the coordinator."""
    method = {
        "name": "reweight",
        "trainer": "adam",
        "rounds": rounds,
        "batch_size": 64,
        "average_last": max(1, rounds // 5),
        "network": {"kind": "cnn", "image": [1, 28, 28]},
        "client_weights": "equal",
        "deliver": "weighted",
        "ratios": {"source": "labels", "denominator": "client"},
    }
    data = {"task": "classification", "target": "y", "features": [f"x{i}" for i in range(num_columns)]}
    return JobFile.model_validate(
        {
            "name": "reweight",
            "seed": seed,
            "evaluate_every": parts.pop("evaluate_every", 1_000_000),
            "method": {**method, **parts.pop("method", {})},
            "data": {**data, "standardise": False, **parts.pop("data", {})},
        }
    )


def run_job(
    job: JobFile,
    rows: Mapping[str, Rows],
    classes: tuple[str, ...] = CLASSES,
    prepare: Callable[[Mapping[str, LocalJob]], None] = lambda _: None,
) -> RoundMetrics:
    """Run a job through the workflow and steps of a real federation, in this process; metrics of its end."""
    with tempfile.TemporaryDirectory() as state:
        jobs = from_rows(rows, classes, Path(state))
        prepare(jobs)
        journal = MemoryJournal()
        cohort = open_cohort(job, jobs, journal.event)
        asyncio.run(execute(job, cohort, Run(cohort, journal, evaluate_every=job.evaluate_every)))
    return [e.metrics for e in journal.events if e.kind is EventKind.ROUND_CLOSED and e.metrics and e.metrics.clients][
        -1
    ]


def accuracies(metrics: RoundMetrics, model: str) -> Floats:
    """Accuracy of a model at each client, in the order of names."""
    return np.array([metrics.clients[c][model]["accuracy"] for c in sorted(metrics.clients)])


def label_shift_table(
    data: Images,
    counts: tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]],
    rounds: int,
    repetitions: int,
    method: Mapping[str, Any] | None = None,
    prepare: Callable[[Mapping[str, LocalJob]], None] = lambda _: None,
) -> dict[str, Floats]:
    """Accuracies of each model, shape (repetitions, clients).

    Args:
        data: All rows.
        counts: Of training and of test rows of each class, per client.
        rounds: Iterations.
        repetitions: Draws.
        method: Keys of the job's method that are not those of `lenet_job`.
        prepare: Sets up the clients.
    """
    found: dict[str, list[Floats]] = {name: [] for name in NAMES.values()}
    for seed in range(repetitions):
        started = time.perf_counter()
        rows = deal(data, *counts, seed)
        metrics = run_job(lenet_job(seed, rounds, method=dict(method or {})), rows, prepare=prepare)
        for model, name in NAMES.items():
            found[name].append(accuracies(metrics, model))
        print(f"draw {seed}: {time.perf_counter() - started:.0f} s", flush=True)
    return {name: np.array(values) for name, values in found.items()}


def table_of(found: Mapping[str, Floats], published: Mapping[str, Sequence[float]], title: str) -> list[dict[str, Any]]:
    """Rows of the average and of each client; published holds the average first, then the clients."""
    lines = []
    for method, values in found.items():
        given = published.get(method, [None] * (1 + values.shape[1]))
        lines.append(entry(f"{title}, average accuracy", method, given[0], values.mean(axis=1)))
        for i in range(values.shape[1]):
            lines.append(entry(f"{title}, client {i + 1}", method, given[1 + i], values[:, i]))
    return lines


def bars(lines: Sequence[Mapping[str, Any]], labels: Mapping[str, str], y_label: str, title: str) -> Any:
    """A plot: bars of what was measured, ticks of what was published.

    Args:
        lines: The table.
        labels: Setting to its label on the axis, in the order of the plot.
        y_label: Of the values.
        title: Of the plot.
    """
    methods = list(dict.fromkeys(row["method"] for row in lines))
    figure, ((ax,),) = subplots(width=1.6 + 1.25 * len(labels), height=3.9)
    width = 0.8 / len(methods)
    value = {(row["setting"], row["method"]): row for row in lines}
    for j, method in enumerate(methods):
        for i, setting in enumerate(labels):
            row = value.get((setting, method))
            if row is None:
                continue
            x = i - 0.4 + width * (j + 0.5)
            ax.bar(x, row["measured"], width * 0.9, color=f"C{j}", label=method if i == 0 else None)
            if row["published"] is not None:
                label = "published" if i == 0 and j == 0 else ""
                ax.hlines(row["published"], x - width * 0.45, x + width * 0.45, color="black", lw=1.6, label=label)
    ax.set_xticks(range(len(labels)), list(labels.values()))
    ax.set_ylabel(y_label)
    ax.set_title(title, fontsize=10)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(
        fontsize=8,
        ncols=3 if len(methods) > 4 else len(methods) + 1,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.12),
        frameon=False,
    )
    return figure
