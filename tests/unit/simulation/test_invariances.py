"""Properties that every method keeps: of constants in a target, of names and order of classes, of base rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.federation.messages.base import Kind
from kernfed.jobs.job_file import JobFile
from kernfed_simulation.federation import Rows
from kernfed_simulation.run import Simulated, simulate
from kernfed_testing.methods.distill import made_job
from kernfed_testing.methods.installed import installed
from kernfed_testing.methods.personalise import clients

COLUMNS = ["x0", "x1", "x2"]
HEAD: dict[str, Any] = {"loss": "squared", "rounds": 4, "ridge": 0.1}
NETWORK: dict[str, Any] = {"kind": "mlp", "widths": [3]}
WEIGHED: dict[str, Any] = {"name": "reweight", "rounds": 2, "ratios": {"num_frequencies": 10}}
PERSONAL: dict[str, Any] = {"name": "personalise", "num_frequencies": 10}
STREAM: dict[str, Any] = {"metrics_every": 2}

METHODS = installed(
    {
        "local": {"name": "local"},
        "dkrr": {"name": "dkrr"},
        "newton": {"name": "newton", "rounds": 3},
        "newton paper": {"name": "newton", "step": "paper", "rounds": 2, "ridge": 1.0},
        "fedavg": {"name": "fedavg", "rounds": 3},
        "fedprox": {"name": "fedprox", "rounds": 3},
        "head": {"name": "newton", **HEAD},
        "head cg": {"name": "newton", **HEAD, "solver": "cg", "warm_start": False},
        "head paper": {"name": "newton", **HEAD, "step": "paper"},
        "fedavg head": {"name": "fedavg", **HEAD},
        "fedprox head": {"name": "fedprox", **HEAD},
        "fedsophia": {"name": "fedsophia", **HEAD},
        "fednew": {"name": "fednew", **HEAD},
        "reweight": WEIGHED,
        "reweight adam": {**WEIGHED, "trainer": "adam", "network": NETWORK},
        "reweight fedavg": {**WEIGHED, "trainer": "fedavg"},
        "personalise": PERSONAL,
        "personalise paper": {**PERSONAL, "weights": "paper"},
        "personalise unscaled": {**PERSONAL, "weights": "paper", "scale_columns": False},
        "personalise newton": {**PERSONAL, "trainer": "newton", "rounds": 3},
        "personalise network": {**PERSONAL, "trainer": "fedavg", "rounds": 3, "network": NETWORK},
        "distill": {"name": "distill", "rounds": 4},
        "distill plain": {"name": "distill", "rounds": 4, "ridge": 0.01, "lengthscale": "median", "keep": "better"},
        "distill printed": {"name": "distill", "rounds": 4, "deregularise": "paper", "keep": "distilled"},
        "online": {"name": "online", **STREAM},
        "online gradients": {"name": "online", **STREAM, "share": "gradients", "num_kernels": 5},
        "ofskl": {"name": "ofskl", **STREAM, "rounds": 4},
        "vm-kofl": {"name": "vm-kofl", **STREAM, "rounds": 4, "num_kernels": 5},
        "perfedavg": {"name": "perfedavg", **STREAM, "rounds": 4},
    }
)

OF_CLASSES = [
    (method, task)
    for method in METHODS
    for task in ("binary", "classification")
    if task == "binary" or method not in {"online", "online gradients", "ofskl", "vm-kofl", "perfedavg"}
]
"""Streams take numbers and two classes."""
BY_GRADIENTS = [
    name
    for name in METHODS
    if name
    in {"fedavg head", "fedprox head", "fedsophia", "fednew", "reweight adam", "personalise network", "perfedavg"}
]
BASE_RATES = ("head", "head cg", "fedavg head")
"""Methods of a head that end near the minimum of the pooled loss."""


def job_of(method: Mapping[str, Any], task: str, folder: Path, classes: tuple[str, ...] = ()) -> tuple[JobFile, Any]:
    """A job of the method on a task, and the files that it names."""
    files: dict[str, bytes] = {}
    data: dict[str, Any] = {"task": task, "target": "y", "features": COLUMNS}
    data |= {"classes": list(classes)} if classes else {}
    whole: dict[str, Any] = {"name": "job", "seed": 4, "method": dict(method), "data": data}
    if method["name"] == "distill":
        job, _, files = made_job(folder, num_points=20)
        whole["method"] |= {"public": job.model_dump()["method"]["public"]}
        whole["files"] = job.model_dump()["files"]
    if "features" in JobFile.model_validate(whole).plan():
        whole["features"] = {"num_frequencies": 10}
    return JobFile.model_validate(whole), files


def rows_of(num_classes: int = 0, shift: float = 0.0, unit: float = 1.0, column: float = 1.0) -> dict[str, Rows]:
    """Three clients: numbers, or classes of unequal shares; targets, and the first column, in a unit."""
    random = np.random.default_rng(3)
    rows = {}
    for i, name in enumerate(("ant", "bee", "cat")):
        x = random.normal(size=(52, 3)) + 0.1 * i
        score = np.sin(x).sum(axis=1) + 0.2 * random.normal(size=52)
        y = np.digitize(score, [0.7, 1.5][: num_classes - 1]) if num_classes else unit * score + shift
        x[:, 0] *= column
        rows[name] = Rows(x[:40], y[:40], x[40:], y[40:])
    return rows


def scores(done: Simulated) -> dict[str, float]:
    """Every metric of every model at every client."""
    assert done.error is None, done.error
    found = {
        f"{client} {model} {metric}": value
        for client, models in done.final.clients.items()
        for model, metrics in models.items()
        for metric, value in metrics.items()
    }
    assert found
    return found


def run(method: str, task: str, rows: Mapping[str, Rows], folder: Path, classes: tuple[str, ...] = ()) -> Simulated:
    """The job on clients in this process."""
    folder.mkdir()
    job, files = job_of(METHODS[method], task, folder, classes)
    everything = {"allow": list(Kind)}
    jobs = clients(dict(rows), folder / "state", classes, **dict.fromkeys(rows, everything))
    return simulate(job, jobs, files=files)


@pytest.mark.parametrize("method", list(METHODS))
def test_a_constant_in_the_target_moves_predictions_by_it(tmp_path: Path, method: str) -> None:
    """Squared errors stay, whatever is added to every target."""
    here, there = (
        run(method, "regression", rows_of(shift=shift), tmp_path / str(i)) for i, shift in enumerate((0.0, 140.0))
    )
    first, second = scores(here), scores(there)
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert second[name] == pytest.approx(value, rel=1e-8, abs=1e-8), name
    if here.model is not None and there.model is not None:
        x = rows_of()["ant"].x_test
        np.testing.assert_allclose(there.model.predict_scores(x) - 140.0, here.model.predict_scores(x), atol=1e-8)


@pytest.mark.parametrize("method", BY_GRADIENTS)
def test_units_change_no_share_that_is_explained(tmp_path: Path, method: str) -> None:
    """The target times 2^-20 and a column times 2^9 leave r² as it is, in methods that take steps by gradients."""
    first = scores(run(method, "regression", rows_of(), tmp_path / "a"))
    second = scores(run(method, "regression", rows_of(unit=2.0**-20, column=2.0**9), tmp_path / "b"))
    told = [name for name in first if name.endswith(" r2")]
    assert told
    for name in told:
        assert second[name] == pytest.approx(first[name], rel=1e-6, abs=1e-6), name


@pytest.mark.parametrize(("method", "task"), OF_CLASSES)
def test_names_and_order_of_classes_change_nothing(tmp_path: Path, method: str, task: str) -> None:
    """The same classes under other names in another order have the same metrics."""
    assert_same_metrics(tmp_path, method, task)


def assert_same_metrics(tmp_path: Path, method: str, task: str) -> None:
    """Run a job on classes and on the same ones under other names in another order."""
    num = 2 if task == "binary" else 3
    rows = rows_of(num)
    turned = {n: replace(r, y_train=num - 1 - r.y_train, y_test=num - 1 - r.y_test) for n, r in rows.items()}
    first = scores(run(method, task, rows, tmp_path / "a", ("low", "mid", "up")[:num]))
    second = scores(run(method, task, turned, tmp_path / "b", ("z", "b", "k")[:num]))
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert second[name] == pytest.approx(value, rel=1e-8, abs=1e-8), name


@pytest.mark.parametrize("method", ["ofskl", "online"])
def test_squares_of_two_classes_do_not_hang_on_which_is_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """A stream's model begins midway between both classes, whatever they are called."""
    if method not in METHODS:
        pytest.skip("the method is not installed")
    monkeypatch.setitem(METHODS, method, {**METHODS[method], "loss": "squared", "rounds": 4})
    assert METHODS[method]["loss"] == "squared"
    assert_same_metrics(tmp_path, method, "binary")


@pytest.mark.parametrize("ridge", [1e-2, 1.0])
@pytest.mark.parametrize("task", ["binary", "classification"])
@pytest.mark.parametrize("method", BASE_RATES)
def test_the_mean_prediction_on_training_rows_is_the_base_rate(
    tmp_path: Path, method: str, task: str, ridge: float
) -> None:
    """However strong the ridge, probabilities add up to the rows of each class."""
    num = 2 if task == "binary" else 3
    rows = rows_of(num)
    changes = {"loss": "cross-entropy", "ridge": ridge, "rounds": 30}
    changes |= {"tolerance": 1e-7, "raise_ridge": False} if "fedavg" not in method else {"batch_size": 0}
    if method == "head cg":
        del changes["raise_ridge"]
    classes = ("low", "mid", "up")[:num]
    job, _ = job_of({**METHODS[method], **changes}, task, tmp_path, classes)
    done = simulate(job, clients(rows, tmp_path / "state", classes))
    assert done.model is not None
    x, y = (np.concatenate([getattr(r, name) for r in rows.values()]) for name in ("x_train", "y_train"))
    mean = done.model.predict_scores(x).mean(axis=0)
    share = np.bincount(y) / len(y)
    np.testing.assert_allclose(mean, share[1:] if num == 2 else share, atol=1e-6 if method != "fedavg head" else 0.02)
