"""Models that a client's own file names: scikit-learn, networks, classes from anywhere installed; kept and served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from kernfed.errors import ConfigError
from kernfed.jobs.client_file import ClientFile, load_client_file
from kernfed.methods.distill.consensus_file import PublicConsensus
from kernfed.methods.distill.messages import DistillRequest
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.distill.kept_apart import parts
from kernfed_client.methods.distill.sklearn_models import make_estimator, sklearn_scorer
from kernfed_client.methods.distill.steps import distil
from kernfed_client.models.kept_models import load_kept_model
from kernfed_simulation.federation import Rows, from_rows
from kernfed_simulation.run import Simulated, simulate
from kernfed_testing.methods.distill import made_job, made_rows

pytestmark = pytest.mark.slow

TREES = {
    "kind": "scikit-learn",
    "class_name": "sklearn.ensemble.RandomForestRegressor",
    "parameters": {"n_estimators": 10},
}
MLP = {"kind": "mlp", "hidden": [16], "pretrain_epochs": 20, "digest_epochs": 2, "revisit_epochs": 1}


class TwoLayers(nn.Module):
    """A network that a client brings."""

    def __init__(self, num_columns: int, num_outputs: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(num_columns, width), nn.Tanh(), nn.Linear(width, num_outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layers(x)
        return found


def bring(jobs: dict[str, LocalJob], state: Path, models: dict[str, dict[str, Any]]) -> dict[str, LocalJob]:
    """Give clients models of their own."""
    for name, model in models.items():
        file = {"state": state / name, "policy": {"min_rows": 1}, "models": {"default": model}, "device": "cpu"}
        jobs[name].file = ClientFile.model_validate(file)
    return jobs


def ran(
    folder: Path, models: dict[str, dict[str, Any]], rows: dict[str, Rows] | None = None, **settings: Any
) -> Simulated:
    job, text, files = made_job(folder, **{"rounds": 3, **settings})
    classes = {"binary": ("a", "b"), "classification": ("a", "b", "c")}.get(settings.get("task", ""), ())
    jobs = bring(from_rows(rows or made_rows(), classes, folder / "s"), folder / "s", models)
    return simulate(job, jobs, text=text, files=files)


def class_rows(num_classes: int) -> dict[str, Rows]:
    random = np.random.default_rng(4)
    centres = random.random((num_classes, 3))
    rows = {}
    for i in range(3):
        y = np.arange(40) % num_classes
        x = centres[y] + 0.15 * random.normal(size=(40, 3))
        rows[f"site-{i}"] = Rows(x[:25], y[:25], x[25:], y[25:])
    return rows


def test_different_models_learn_from_each_other(tmp_path: Path) -> None:
    """A forest, a network, a model of one's own class and kernel ridge in one job; each keeps what it predicts with."""
    name = f"{TwoLayers.__module__}.{TwoLayers.__name__}"
    own: dict[str, Any] = {"kind": "torch", "class_name": name, "parameters": {"width": 8}, "pretrain_epochs": 20}
    models: dict[str, Any] = {"site-0": TREES, "site-1": MLP, "site-2": own}
    done = ran(tmp_path, models, keep="distilled")
    assert done.error is None
    assert all({"local", "personal"} <= scores.keys() for scores in done.final.clients.values())
    frame = pd.DataFrame(made_rows()["site-0"].x_test, columns=["x0", "x1", "x2"])
    for name, kind in {
        "site-0": "scikit-learn",
        "site-1": "network",
        "site-2": "network",
        "site-3": "kernel-ridge",
    }.items():
        folder = tmp_path / "s" / name / "model"
        assert json.loads((folder / "model.json").read_text())["kind"] == kind
        kept = load_kept_model(folder)
        y = made_rows()[name].y_test
        x = pd.DataFrame(made_rows()[name].x_test, columns=["x0", "x1", "x2"])
        mse = float(np.mean((kept.predict_scores(x)[:, 0] - y) ** 2))
        assert mse == pytest.approx(done.final.clients[name]["personal"]["mse"], rel=1e-6)
        assert kept.predict_scores(frame.iloc[:0]).shape == (0, 1)
        assert (folder / "model.safetensors").stat().st_mode & 0o077 == 0


def test_a_mean_of_two_models_is_kept_and_loaded(tmp_path: Path) -> None:
    """Of any kind of model: what predicts afterwards is what was measured as personal, and the files name both."""
    rows = made_rows(3, 40)
    done = ran(tmp_path, {"site-0": TREES, "site-1": MLP}, rows)
    assert done.error is None
    shares = {}
    for name in rows:
        folder = tmp_path / "s" / name / "model"
        facts = json.loads((folder / "model.json").read_text())
        shares[name] = facts["details"].get("share", 1.0)
        if facts["kind"] == "blend":
            assert 0.0 < shares[name] < 1.0
            assert facts["details"]["own"]["kind"] == facts["details"]["distilled"]["kind"]
        frame = pd.DataFrame(rows[name].x_test, columns=["x0", "x1", "x2"])
        found = load_kept_model(folder).predict_scores(frame)[:, 0]
        mse = float(np.mean((found - rows[name].y_test) ** 2))
        assert mse == pytest.approx(done.final.clients[name]["personal"]["mse"], rel=1e-6)
    assert sum(share < 1.0 for share in shares.values()) >= 2


@pytest.mark.parametrize("copies", [1, 4])
def test_copies_of_a_row_lie_in_one_part(copies: int) -> None:
    """Five parts of about the same size; few different rows make as many parts."""
    unit = np.repeat(np.arange(23), copies)
    dealt = np.array(parts(unit, 3))
    assert (dealt.sum(axis=0) == 1).all()
    assert len(dealt) == 5
    assert np.ptp(dealt.sum(axis=1)) <= copies
    assert all(len({tuple(row) for row in dealt[:, unit == u].T}) == 1 for u in range(23))
    assert len(parts(np.array([0, 0, 1, 1, 1]), 3)) == 2


@pytest.mark.parametrize("model", [TREES, MLP], ids=["forest", "network"])
def test_the_same_question_gets_the_same_bits(tmp_path: Path, model: dict[str, Any]) -> None:
    """Two runs, each with clients of their own, agree to the last bit."""
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    first, second = (ran(folder, {"site-0": model}) for folder in folders)
    assert isinstance(first.left, PublicConsensus)
    assert isinstance(second.left, PublicConsensus)
    assert (first.left.values == second.left.values).all()


def test_a_network_goes_on_from_its_last_round_after_a_restart(tmp_path: Path) -> None:
    """A daemon that was restarted, or is asked a round again, answers with the bits of one that was not."""
    job, text, files = made_job(tmp_path, rounds=3)
    jobs = bring(from_rows(made_rows(), (), tmp_path / "s"), tmp_path / "s", {"site-0": MLP})
    assert simulate(job, jobs, text=text, files=files).error is None
    local = jobs["site-0"]
    targets = [np.full((30, 1), t / 10) for t in range(4, 7)]
    answers = [
        distil(local, DistillRequest(trained_round=10 + i, targets=t)).predictions for i, t in enumerate(targets)
    ]
    state = local._memo["distillation"]
    state.learner._fitted.clear()  # as a new life of the daemon begins
    again = distil(local, DistillRequest(trained_round=12, targets=targets[2])).predictions
    assert (again == answers[2]).all()
    earlier = distil(local, DistillRequest(trained_round=11, targets=targets[1])).predictions
    assert (earlier == answers[1]).all()
    assert len(list((local.folder / "setup" / "network").glob("*.safetensors"))) <= 4


@pytest.mark.parametrize("task", ["binary", "classification"])
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("sklearn.ensemble.RandomForestClassifier", {"n_estimators": 10}),
        ("sklearn.svm.LinearSVC", {}),
        ("sklearn.ensemble.GradientBoostingRegressor", {"n_estimators": 10}),
        ("sklearn.linear_model.Ridge", {}),
    ],
)
def test_classifiers_and_regressors_learn_classes(
    tmp_path: Path, task: str, name: str, parameters: dict[str, int]
) -> None:
    """With or without probabilities, with one output or several, a client's scores have the job's shape."""
    num = 2 if task == "binary" else 3
    models = {"site-0": {"kind": "scikit-learn", "class_name": name, "parameters": parameters}}
    done = ran(tmp_path, models, class_rows(num), task=task, kernel="gaussian", lengthscale=0.3, ridge=1e-2, rounds=2)
    assert done.error is None
    assert done.final.clients["site-0"]["personal"]["accuracy"] > 0.6
    kept = load_kept_model(tmp_path / "s" / "site-0" / "model")
    frame = pd.DataFrame(np.random.default_rng(0).random((5, 3)), columns=["x0", "x1", "x2"])
    assert kept.predict_scores(frame).shape == (5, 1 if num == 2 else 3)


def test_a_convolutional_network_takes_images(tmp_path: Path) -> None:
    """LeNet-5 on 12 x 12 pixels; another number of columns is refused."""
    random = np.random.default_rng(0)
    images = {
        f"site-{i}": Rows(random.random((12, 144)), random.random(12), random.random((4, 144)), random.random(4))
        for i in (0, 1)
    }
    names = ", ".join(f'"p{i}"' for i in range(144))
    np.savez(tmp_path / "public.npz", x=random.random((10, 144)), columns=[f"p{i}" for i in range(144)])
    text = (
        f'name = "images"\n[method]\nname = "distill"\npublic = "public.npz"\nrounds = 2\n'
        f'[data]\ntask = "regression"\ntarget = "y"\nfeatures = [{names}]\n'
    )
    from kernfed.jobs.job_file import parse_job
    from kernfed.jobs.named_files import attach_files

    job, whole, files = attach_files(parse_job(text), text, tmp_path)
    cnn = {"kind": "cnn", "image_shape": [12, 12], "pretrain_epochs": 1, "digest_epochs": 1, "revisit_epochs": 1}
    jobs = bring(from_rows(images, (), tmp_path / "s"), tmp_path / "s", {"site-0": cnn})
    assert simulate(job, jobs, text=whole, files=files).error is None
    jobs = bring(jobs, tmp_path / "s", {"site-0": {**cnn, "image_shape": [14, 14]}})
    refused = simulate(job, jobs, text=whole, files=files)
    assert "144" in str(refused.error)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"kind": "scikit-learn", "class_name": "no_such_package.Model"}, "install its package"),
        ({"kind": "scikit-learn", "class_name": "os.path"}, "not a class"),
        ({"kind": "scikit-learn", "class_name": "collections.OrderedDict"}, "no fit"),
        ({"kind": "scikit-learn", "class_name": "sklearn.linear_model.Ridge", "parameters": {"alfa": 1}}, "alfa"),
        ({"kind": "scikit-learn", "class_name": "sklearn.neighbors.KNeighborsRegressor"}, 'weights = "ignore"'),
        ({"kind": "scikit-learn", "class_name": "sklearn.naive_bayes.GaussianNB"}, "name a regressor"),
        ({"kind": "torch", "class_name": "collections.OrderedDict"}, "torch.nn.Module"),
        ({"kind": "torch", "class_name": "torch.nn.Linear", "parameters": {"width": 1}}, "cannot be made"),
        ({"kind": "torch", "class_name": "torch.nn.Bilinear", "parameters": {"out_features": 1}}, "cannot take"),
    ],
)
def test_what_cannot_be_used_is_refused_before_round_1(tmp_path: Path, model: dict[str, Any], words: str) -> None:
    """The operator reads which client and why."""
    done = ran(tmp_path, {"site-1": model}, rounds=2)
    assert "nothing was trained" in str(done.error)
    assert "site-1" in str(done.error)
    assert words in str(done.error)


def test_a_model_without_weights_may_ignore_them(tmp_path: Path) -> None:
    """Where the client's file says so."""
    model = {"kind": "scikit-learn", "class_name": "sklearn.neighbors.KNeighborsRegressor", "weights": "ignore"}
    done = ran(tmp_path, {"site-1": model})
    assert done.error is None
    assert "personal" in done.final.clients["site-1"]


def test_weights_are_those_of_alpha() -> None:
    """Weighted least squares by scikit-learn agrees with the normal equations."""
    from kernfed.federation.messages.data import LearningTask

    random = np.random.default_rng(1)
    x, t, w = random.random((9, 2)), random.random((9, 1)), random.random(9)
    details = {"class_name": "sklearn.linear_model.LinearRegression", "parameters": {"fit_intercept": False}}
    score = sklearn_scorer(LearningTask.REGRESSION, {"x": x, "t": t, "w": w}, {**details, "weights": "use", "seed": 1})
    expected = np.linalg.solve((x.T * w) @ x, (x.T * w) @ t)
    np.testing.assert_allclose(score(np.eye(2), "cpu"), expected, atol=1e-12)
    assert make_estimator("sklearn.ensemble.RandomForestRegressor", {}, 7).random_state == 7
    assert make_estimator("sklearn.ensemble.RandomForestRegressor", {"random_state": 3}, 7).random_state == 3


def test_a_damaged_model_is_refused(tmp_path: Path) -> None:
    """Arrays that are not those that the facts name do not predict."""
    assert ran(tmp_path, {}, rounds=1).error is None
    folder = tmp_path / "s" / "site-0" / "model"
    (folder / "model.safetensors").write_bytes((tmp_path / "s" / "site-1" / "model" / "model.safetensors").read_bytes())
    with pytest.raises(ConfigError, match="damaged"):
        load_kept_model(folder)
    (folder / "model.json").write_text("[]")
    with pytest.raises(ConfigError, match="run the job again"):
        load_kept_model(folder)


@pytest.mark.parametrize(
    ("lines", "words"),
    [('kind = "cnn"', "image_shape"), ('kind = "torch"', "class_name"), ('kind = "forest"', "kind")],
)
def test_incomplete_models_are_errors_of_the_client_file(tmp_path: Path, lines: str, words: str) -> None:
    """Found when the file is read."""
    (tmp_path / "client.toml").write_text(f"[models.default]\n{lines}\n")
    with pytest.raises(ConfigError, match=words):
        load_client_file(tmp_path / "client.toml")
