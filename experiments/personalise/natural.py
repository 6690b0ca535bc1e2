"""Personalisation on real data with natural clients: patients by hospital, speech by patient, air by station.

`heart`: disease at four hospitals, three quarters of the rows for training; squared error of its probability, the Brier
score. `parkinsons`: the total UPDRS of 42 patients from 16 voice measures, age, sex and the day, 20 rows each. `air`:
PM2.5 at 12 stations of Beijing from the other pollutants and the weather, 20 hours each. Targets of both are divided by
their deviation. Models are ridge on standardised columns. Each reference stands as a job gives it, with its default
ridge, and with the best ridge that its test rows show in hindsight; the default sees no test row. The heart job runs
over the network too, with a coordinator and four daemons that talk mutual TLS, and must find the same.
"""

from __future__ import annotations

import asyncio
import csv
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from data_sets import arrays
from personalise.common import Floats, Ran, in_hindsight, line, make_job, parser, run_job
from records import HERE, announce, of_size, write
from tables import show, subplots

from kernfed.federation.events import JobState
from kernfed.jobs.job_file import parse_job
from kernfed_simulation.federation import Rows, from_client_files
from kernfed_simulation.run import simulate

HEART = HERE.parent / "examples" / "heart"
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
DEFAULT, PAPER, BEST = "default (crossfit)", "Q-aggregation, as printed", ", best ridge"
METHODS = ("local", "local" + BEST, "fedavg", "fedavg" + BEST, PAPER, PAPER + BEST, DEFAULT)


@dataclass(frozen=True)
class Problem:
    """A data set with natural clients."""

    name: str
    draw: Callable[[int], dict[str, Rows]]
    """Rows by client for a seed."""
    view: str
    classes: tuple[str, ...] = ()
    lengthy: bool = False
    """Whether there are too many clients to print each."""

    @property
    def data(self) -> dict[str, Any]:
        """Of the job."""
        return {"task": "binary", "classes": list(self.classes)} if self.classes else {}


def heart(seed: int) -> dict[str, Rows]:
    """Complete rows of each hospital; a quarter, drawn anew for each seed, is for testing."""
    random = np.random.default_rng([seed, 1])
    found = {}
    for hospital in HOSPITALS:
        with (HEART / "data" / f"{hospital}.csv").open() as file:
            table = [list(row.values()) for row in csv.DictReader(file)]
        whole = np.array([[float(v) for v in row] for row in table if all(row)])
        order = random.permutation(len(whole))
        x, y = whole[order, :-1], whole[order, -1].astype(np.int64)
        cut = len(x) // 4
        found[hospital] = Rows(x[cut:], y[cut:], x[:cut], y[:cut])
    return found


def parkinsons(seed: int) -> dict[str, Rows]:
    """20 rows of each patient for training, the others for testing."""
    random = np.random.default_rng([seed, 2])
    file = arrays("parkinsons")
    x, y, patient = file["X"], file["y_total"], file["subject"]
    y = y / y.std()
    found = {}
    for p in np.unique(patient):
        rows = random.permutation(np.flatnonzero(patient == p))
        found[f"patient{p:02d}"] = Rows(x[rows[:20]], y[rows[:20]], x[rows[20:]], y[rows[20:]])
    return found


def air(seed: int) -> dict[str, Rows]:
    """20 hours of each station for training, 500 others for testing; columns are cut at 5 deviations."""
    random = np.random.default_rng([seed, 3])
    file = arrays("beijing_air")
    x = np.moveaxis(file["x"], 0, 2) / file["scale"]
    names = [str(name).lower() for name in file["stations"]]
    deviation = x[:, :, 0].std()
    drawn = np.array([part[random.permutation(len(part))[:520]] for part in x])
    columns, targets = np.delete(drawn, 0, axis=2), drawn[:, :, 0] / deviation
    training = columns[:, :20].reshape(-1, columns.shape[2])
    # Rain falls in few hours: of 240 all may be dry but one, whose neighbours in the test then lie 100 deviations off.
    reach = 5.0 * training.std(axis=0)
    columns = np.clip(columns, training.mean(axis=0) - reach, training.mean(axis=0) + reach)
    return {
        name: Rows(columns[i, :20], targets[i, :20], columns[i, 20:], targets[i, 20:]) for i, name in enumerate(names)
    }


PROBLEMS = (
    Problem("heart", heart, "xy", ("0", "1")),
    Problem("parkinsons", parkinsons, "xy", lengthy=True),
    Problem("air", air, "xy"),
)


def repeat(problem: Problem, seed: int) -> tuple[dict[str, Floats], Ran]:
    """Errors of each client by method on one draw, clients by name; and the default's run."""
    rows = problem.draw(seed)
    names = sorted(rows)
    num_columns = rows[names[0]].x_train.shape[1]

    def run(method: Mapping[str, Any]) -> Ran:
        job = make_job(
            problem.name,
            num_columns,
            seed,
            {"view": problem.view, **method},
            features={"kernel": "linear"},
            data=problem.data,
        )
        return run_job(job, rows, problem.classes)

    paper, default = run({"weights": "paper"}), run({})
    pooled = np.concatenate([rows[c].x_train for c in names])
    mean, deviation = pooled.mean(axis=0), pooled.std(axis=0)
    deviation[deviation == 0] = 1.0

    def inputs(x: Floats) -> Floats:
        return np.hstack([np.ones((len(x), 1)), (x - mean) / deviation])

    known = {c: (inputs(r.x_train), r.y_train * 1.0, inputs(r.x_test), r.y_test * 1.0) for c, r in rows.items()}
    num_rows = np.array([len(rows[c].y_train) for c in names], dtype=float)
    mixes = {
        "local": np.eye(len(names)),
        "fedavg": np.tile(num_rows / num_rows.sum(), (len(names), 1)),
        PAPER: paper.weights,
    }
    penalised = np.append(0.0, np.ones(num_columns))
    found = {name + BEST: in_hindsight(mix, known, penalised) for name, mix in mixes.items()}
    for name, ran, model in (
        ("local", paper, "local"),
        ("fedavg", paper, "global"),
        (PAPER, paper, "personal"),
        (DEFAULT, default, "personal"),
    ):
        found[name] = ran.scores(model)
    return found, default


def over_network() -> None:
    """The heart job over mutual TLS: four daemons and a coordinator in processes of their own."""
    sys.path.append(str(HERE.parent / "tests"))
    from kernfed_testing.federation import Federation

    text = (HEART / "personalise.toml").read_text()
    text = text.replace("test_fraction", 'split = "copies-together"\ntest_fraction')
    drawn = dict.fromkeys(HOSPITALS, "[policy]\ndrawn_splits = true")
    data = {name: (HEART / "data" / f"{name}.csv").read_text() for name in HOSPITALS}

    async def run(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        async with Federation(folder / "federation", data, settings=drawn, processes=True) as fed:
            paths = [fed.client_folder(name) / "client.toml" for name in HOSPITALS]
            ended = await fed.run(text.replace('dataset = "heart"\n', ""))
            if ended.info.state is not JobState.SUCCEEDED:
                raise SystemExit(f"over the network: {ended.info.error_message}")
            job = parse_job(text.replace('dataset = "heart"\n', ""))
            done = await asyncio.to_thread(simulate, job, from_client_files(paths, folder / "alone"))
            if done.error is not None:
                raise done.error
            left = await fed.operator.fetch(ended.info.job_id, folder / "artifacts")
            found = json.loads((folder / "artifacts" / "findings.json").read_text())
            del left
        return found, {c: scores["personal"] for c, scores in done.final.clients.items()}

    with tempfile.TemporaryDirectory() as folder:
        found, alone = asyncio.run(run(Path(folder)))
    print("\nheart, examples/heart/personalise.toml over the network, log-loss of the personal models")
    worst = 0.0
    for client in found["personalise"]["clients"]:
        scores = client["scores"]
        worst = max(worst, *(abs(scores["personal"][m] - alone[client["client"]][m]) for m in scores["personal"]))
        three = ", ".join(f"{model} {scores[model]['log_loss']:.4f}" for model in ("local", "global", "personal"))
        print(f"  {client['client']:<14}{three}   {client['choice']}")
    print(f"  greatest difference of a metric to the same job in one process: {worst:.1e}", flush=True)


def main() -> None:
    """Run, print, and write JSON and a plot."""
    arguments = parser(__doc__, repetitions=10)
    arguments.add_argument("--no-network", action="store_true", help="leave out the run over the network")
    options = arguments.parse_args()
    repetitions = options.repetitions or of_size(options, quick=2, middle=4, paper=10)
    clients = [rows for problem in PROBLEMS for rows in problem.draw(0).values()]
    announce(sum(len(rows.y_train) for rows in clients), repetitions * len(clients) * len(METHODS))
    lines: list[dict[str, Any]] = []
    fig, axes = subplots(len(PROBLEMS), height=4.2)
    for ax, problem in zip(axes[0], PROBLEMS, strict=True):
        began = time.monotonic()
        draws = [repeat(problem, seed) for seed in range(repetitions)]
        names = sorted(problem.draw(0))
        by_method = {m: np.array([found[m] for found, _ in draws]) for m in METHODS}
        base = by_method[DEFAULT].mean(axis=1)
        rows = [
            line(f"{problem.name}, all clients", m, by_method[m].mean(axis=1), against=() if m == DEFAULT else base)
            for m in METHODS
        ]
        lines += rows
        show(rows)
        for i, name in enumerate(names):
            against = by_method[DEFAULT][:, i]
            each = [
                line(f"{problem.name}, {name}", m, by_method[m][:, i], against=() if m == DEFAULT else against)
                for m in METHODS
            ]
            lines += each
            if not problem.lengthy:
                show(each)
        plot(ax, problem.name, by_method)
        worse = _worse(by_method, names)
        print(f"  the default is worse than the better of local and fedavg by over a standard error at: {worse}")
        print(f"  ({time.monotonic() - began:.0f} s)", flush=True)
    if not options.no_network:
        over_network()
    write(lines, options, "personalise-natural", fig)


def _worse(by_method: Mapping[str, npt.NDArray[np.float64]], names: list[str]) -> str:
    found = []
    for i, name in enumerate(names):
        better = min(("local", "fedavg"), key=lambda m: by_method[m][:, i].mean())
        difference = by_method[DEFAULT][:, i] - by_method[better][:, i]
        error = difference.std(ddof=1) / np.sqrt(len(difference))
        if difference.mean() > error:
            found.append(f"{name} ({difference.mean():+.4g} ± {error:.2g} to {better})")
    return ", ".join(found) or "none"


def plot(ax: Any, name: str, by_method: Mapping[str, npt.NDArray[np.float64]]) -> None:
    """Each client's error over the better of local and fedavg, both with their default ridge, clients sorted."""
    reference = np.minimum(by_method["local"].mean(axis=0), by_method["fedavg"].mean(axis=0))
    for method in ("local", "fedavg", PAPER, DEFAULT):
        ratio = np.sort(by_method[method].mean(axis=0) / reference)
        ax.plot(np.arange(1, len(ratio) + 1), ratio, marker="o", markersize=4, label=method)
    ax.axhline(1.0, color="#999999", linewidth=0.8)
    ax.set_yscale("log")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_title(name)
    ax.set_xlabel("clients, sorted")
    ax.set_ylabel("error / better of local and fedavg")
    ax.legend(fontsize=8)


if __name__ == "__main__":
    main()
