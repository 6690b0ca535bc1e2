"""Personalisation end to end on clients in this process."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kernfed.errors import ConfigError, PolicyError
from kernfed.features.spec import draw_frequencies
from kernfed.federation.events import EventKind
from kernfed.federation.messages.base import Kind, Reply
from kernfed.jobs.job_file import data_schema
from kernfed.maths.triangles import pack
from kernfed.methods.personalise.choice import FULL_GRID, Scores, Turns
from kernfed.methods.personalise.crossfit import Target
from kernfed.methods.personalise.embedding_messages import EmbedRequest
from kernfed.methods.personalise.embeddings import Embedding, View, embed, view_spec
from kernfed.methods.personalise.mixing.shared import Shared
from kernfed.methods.personalise.noise import add_noise
from kernfed_client.methods.personalise.state import noise_stream, release
from kernfed_client.models.kept_models import load_kept_model
from kernfed_server.jobs.journal import Checkpoint
from kernfed_server.methods.personalise.newton import _Solver
from kernfed_server.methods.personalise.state import SCALES
from kernfed_testing.in_process import bench, with_nan
from kernfed_testing.methods.personalise import (
    ALIKE,
    NAMES,
    TRAINERS,
    clients,
    concept_rows,
    finding,
    notes,
    opposite_rows,
    personal_job,
    run,
    without,
)

pytestmark = pytest.mark.slow


def by_hand(rows: Any, job: Any) -> tuple[np.ndarray, np.ndarray]:
    """Weights and models of the same job, from all rows in one place with plain numpy around the library."""
    x = {c: r.x_train for c, r in rows.items()}
    everything = np.concatenate([x[c] for c in sorted(x)])
    mean, deviation = everything.mean(axis=0), everything.std(axis=0)
    y_mean = np.concatenate([rows[c].y_train for c in sorted(rows)]).mean()
    z = {c: (x[c] - mean) / deviation for c in sorted(x)}
    y = {c: (rows[c].y_train - y_mean)[:, None] for c in sorted(rows)}
    columns = {c: np.hstack([z[c], y[c]]) for c in z}
    scale = np.concatenate(list(columns.values())).std(axis=0)
    from kernfed import rng

    seed = rng.seed(job.seed, "personalise", "embedding")
    drawn = draw_frequencies(view_spec(job.method.view, 3, 1, num_frequencies=60, seed=seed))
    phi = {c: np.sqrt(2 / 60) * np.cos(columns[c] / scale @ drawn.omega.T + drawn.phase) for c in z}
    inputs = {c: np.hstack([np.ones((len(z[c]), 1)), z[c]]) for c in z}
    parts = [embed(phi[c]) for c in z]
    shared = Shared(
        np.array([float(len(y[c])) for c in z]),
        np.array([p.mean for p in parts]),
        np.array([p.error for p in parts]),
        np.array([pack(inputs[c].T @ inputs[c] / len(y[c])) for c in z]),
        np.array([inputs[c].T @ y[c] / len(y[c]) for c in z]),
        np.array([float(np.square(y[c]).mean()) for c in z]),
    )
    penalised = np.array([0.0, 1, 1, 1])
    targets = [Target(i, shared, inputs[c], y[c], phi[c], FULL_GRID, penalised) for i, c in enumerate(z)]
    turns = Turns(FULL_GRID)
    while not turns.done:
        told = [t.scores(turns.decisions) for t in targets]
        summed = Scores(*(sum(getattr(s, f) for s in told) for f in ("losses", "squared_differences", "variances")))
        turns.add(summed, len(targets))
    personal = [t.adopt(turns.decisions) for t in targets]
    return np.array([p.weights for p in personal]), np.array([p.coefficients[:, 0] for p in personal])


def test_the_default_gives_the_librarys_weights_and_models(tmp_path: Path) -> None:
    """Weights and kept models are those of the library on all rows; personal models beat both references."""
    rows, job = concept_rows(), personal_job()
    done = run(job, clients(rows, tmp_path))
    weights, models = by_hand(rows, job)
    np.testing.assert_allclose(finding(done)["matrix"], weights, atol=1e-4)
    for i, name in enumerate(rows):
        kept: Any = load_kept_model(tmp_path / name / "model")
        frame = pd.DataFrame(rows[name].x_test, columns=["x0", "x1", "x2"])
        scores = kept.predict_scores(frame)[:, 0]
        z = (rows[name].x_test - kept.mean) / kept.deviation
        y_mean = np.concatenate([r.y_train for r in rows.values()]).mean()
        np.testing.assert_allclose(scores, models[i, 0] + z @ models[i, 1:] + y_mean, atol=1e-8)
        measured = done.final.clients[name]["personal"]["mse"]
        assert measured == pytest.approx(float(np.square(scores - rows[name].y_test).mean()), abs=1e-9)
    pooled = done.final.pooled
    assert pooled["personal"]["mse"] < min(pooled["local"]["mse"], pooled["global"]["mse"])
    assert pooled["global"] == pytest.approx(pooled["central"])
    assert done.model is not None


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_kept_model_names_whom_it_was_learned_from(tmp_path: Path, trainer: str) -> None:
    """`model.json` at the client has the weights of its teachers; the job's own model says that it is nobody's."""
    rows = concept_rows()
    done = run(personal_job(**TRAINERS[trainer]), clients(rows, tmp_path))
    found = finding(done)
    for i, name in enumerate(rows):
        facts = json.loads((tmp_path / name / "model" / "model.json").read_text())["job"]
        teachers = {one["client"]: one["weight"] for one in facts["learns_from"]}
        np.testing.assert_allclose([teachers.get(c, 0.0) for c in rows], found["matrix"][i], atol=1e-4)
        assert list(teachers.values()) == sorted(teachers.values(), reverse=True)
        assert facts["found_by"]
    if done.model is not None:
        assert "each client's personal model stays at the client" in done.model.job["note"]


def test_newton_trains_the_models_of_the_exact_trainer(tmp_path: Path) -> None:
    """With the paper's weights, gradients and Hessian solves lead to the solutions of the weighted normal equations."""
    common: dict[str, Any] = {"c_q": 0.1, "c_p": 0.1, "ridge": 0.05}
    rows = concept_rows()
    for weights in ("paper", "exact"):
        solved = run(personal_job(weights=weights, **common), clients(rows, tmp_path / "a"))
        by_steps = personal_job(weights=weights, trainer="newton", min_weight=0.0, **common)
        trained = run(by_steps, clients(rows, tmp_path / "b"))
        assert finding(solved)["matrix"] == finding(trained)["matrix"]
        for name in rows:
            one: Any = load_kept_model(tmp_path / "a" / name / "model")
            other: Any = load_kept_model(tmp_path / "b" / name / "model")
            np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)
            np.testing.assert_allclose(one.target_mean, other.target_mean, atol=1e-6)
        assert trained.final.training["largest_relative_distance_bound"] <= 1e-8
        np.testing.assert_allclose(trained.model.weights, solved.model.weights, atol=1e-6)  # type: ignore[union-attr]  # both trainers leave one


@pytest.mark.parametrize(
    "settings",
    [
        {"trainer": "newton"},
        {"weights": "paper"},
        {"weights": "exact"},
        {"weights": "paper", "trainer": "newton"},
        {"weights": "crossfit", "grid": "lite"},
    ],
)
def test_every_personal_ridge_model_has_an_intercept_of_its_own(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Clients whose means of y lie apart reach the noise, 0.25, by every way to weights and models."""
    done = run(personal_job(num_columns=5, **settings), clients(opposite_rows(), tmp_path))
    assert done.final.pooled["personal"]["mse"] < 0.32


def test_a_run_that_began_without_own_intercepts_goes_on_without(tmp_path: Path, monkeypatch: Any) -> None:
    """A checkpoint of an earlier release holds features alone; its models keep the intercept of all rows."""
    rows, job = concept_rows(), personal_job(**TRAINERS["newton"])
    start = _Solver.start

    def as_before(job: Any, found: Any) -> _Solver:
        solver = start(job, found)
        solver.own = solver.moments = solver.own[:, 1:]
        return solver

    monkeypatch.setattr(_Solver, "start", as_before)
    first = bench(rows, tmp_path).run(job, stop_before=3)
    monkeypatch.undo()
    second = bench(rows, tmp_path).run(job, resumed=first.journal.last)
    assert second.metrics[-1].training["largest_relative_distance_bound"] <= 1e-8
    kept: Any = [load_kept_model(tmp_path / name / "model") for name in rows]
    assert all((one.target_mean == kept[0].target_mean).all() for one in kept)


@pytest.mark.parametrize("trainer", ["newton", "fedavg"])
def test_a_run_that_began_under_other_scales_keeps_them(tmp_path: Path, trainer: str) -> None:
    """A checkpoint of a release before `data.scales`: the run ends as one of the rule of then, one bad row and all."""
    rows = concept_rows()
    rows["bee"].x_train[0, 0] = 1e3
    told: dict[str, Any] = {**TRAINERS[trainer], "weights": "paper", "ridge": 1e-3}
    whole = bench(rows, tmp_path).run(personal_job(data='scales = "moments"', **told))
    first = bench(rows, tmp_path).run(personal_job(data='scales = "moments"', **told), stop_before=4)
    assert first.journal.last is not None
    state = {name: array for name, array in first.journal.last.state.items() if name != SCALES}
    now, then = (
        bench(rows, tmp_path).run(personal_job(**told), resumed=Checkpoint(3, {**state, **marked}))
        for marked in ({SCALES: np.array([True])}, {})
    )
    assert then.metrics[-1] == whole.metrics[-1]
    assert now.metrics[-1] != whole.metrics[-1]


def test_metrics_of_all_rows_are_of_the_clients_with_a_personal_model(tmp_path: Path) -> None:
    """Where one has none, local and global are pooled over the others, as personal is, and the job names it."""
    rows = concept_rows()
    job = personal_job(weights="paper", **TRAINERS["newton"])
    done = run(job, clients(rows, tmp_path, cat=without(Kind.COLLABORATION_WEIGHTS)))
    assert "no personal model for cat; the metrics of all rows together are of the clients that have one" in notes(done)
    found = done.final
    for model in ("local", "global", "personal"):
        parts = [found.clients[name][model]["mse"] for name in rows if name != "cat"]
        assert found.pooled[model]["mse"] == pytest.approx(np.mean(parts))
    assert "local" in found.clients["cat"]


@pytest.mark.parametrize("trainer", TRAINERS)
def test_order_of_clients_and_of_replies_does_not_matter(tmp_path: Path, trainer: str) -> None:
    """The same bits, whoever answers first."""
    rows, job = concept_rows(), personal_job(**TRAINERS[trainer])
    first = bench(rows, tmp_path).run(job)
    second = bench(dict(reversed(rows.items())), tmp_path).run(job, reverse=True)
    assert first.journal.last is not None
    assert second.journal.last is not None
    for name, array in first.journal.last.state.items():
        assert np.array_equal(array, second.journal.last.state[name]), name
    assert first.metrics[-1] == second.metrics[-1]


@pytest.mark.parametrize(
    ("trainer", "stops"), [("exact", (1,)), ("newton", (1, 3)), ("fedavg", (1, 5)), ("alike", (5,))]
)
def test_a_killed_run_goes_on_to_the_same_bits(tmp_path: Path, trainer: str, stops: tuple[int, ...]) -> None:
    """Stopped in any round, resumed with clients that lost their memory: models and metrics are the same."""
    rows, job = concept_rows(), personal_job(**{**TRAINERS, **ALIKE}[trainer])
    whole = bench(rows, tmp_path / "whole").run(job)
    for stop in stops:
        parts = f"parts of {stop}"
        first = bench(rows, tmp_path / parts).run(job, stop_before=stop)
        assert first.stopped
        second = bench(rows, tmp_path / parts).run(job, resumed=first.journal.last)
        assert second.metrics[-1] == whole.metrics[-1]
        for name in rows:
            one, other = ((tmp_path / part / name / "model" / "model.safetensors") for part in ("whole", parts))
            assert one.read_bytes() == other.read_bytes()
    again = bench(rows, tmp_path / "whole").run(job, resumed=whole.journal.last)
    assert again.journal.checkpoints == []


def noised(epsilon: float | None, **settings: Any) -> Any:
    """A job whose statement of privacy is true: nothing is scaled by moments, and no normal equations leave."""
    method = {"weights": "exact", "c_q": 0.05, "c_p": 0.05, "trainer": "newton", "scale_columns": False, **settings}
    noise = "" if epsilon is None else f"[method.noise]\nepsilon = {epsilon}\ndelta = 1e-5"
    return personal_job(data="standardise = false", features=f'kernel = "linear"\n{noise}', **method)


def test_noise_is_stated_and_the_same_when_asked_again(tmp_path: Path) -> None:
    """The job says what the noise buys and what it does not cover, and less noise leaves the weights nearer."""
    rows = concept_rows()
    clean = np.array(finding(run(noised(None), clients(rows, tmp_path / "a")))["matrix"])
    moved = []
    for epsilon in (1.0, 1000.0):
        first, second = (run(noised(epsilon), clients(rows, tmp_path / part)) for part in "bc")
        assert finding(first) == finding(second)
        assert f"({epsilon:g}, 1e-05)-differentially private" in notes(first)
        assert "covers the embeddings alone" in notes(first)
        moved.append(np.abs(np.array(finding(first)["matrix"]) - clean).sum())
    assert moved[1] < moved[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scale_columns": True}, "scale_columns = false"),
        ({"data": "standardise = true"}, "data.standardise = false"),
        ({"weights": "paper", "trainer": "exact"}, 'trainer = "exact".*normal equations'),
        ({"weights": "crossfit"}, 'weights = "crossfit".*normal equations'),
    ],
)
def test_noise_is_refused_beside_what_makes_it_false(settings: dict[str, Any], message: str) -> None:
    """Scales from rows without noise, and normal equations of the same rows; a stored job is still read."""
    method = {"weights": "paper", "trainer": "newton", "scale_columns": False, **settings}
    data = method.pop("data", "standardise = false")
    noise = 'kernel = "linear"\n[method.noise]\nepsilon = 1.0\ndelta = 1e-5'
    with pytest.raises(ConfigError, match=message):
        personal_job(data=data, features=noise, **method)


def test_a_daemons_noise_comes_from_a_secret_that_stays(tmp_path: Path) -> None:
    """One noised embedding per job, data set and view: given again to the same request, and to no other."""
    job = clients(concept_rows(), tmp_path)["ant"]
    job.load("default", data_schema(personal_job()))
    job.durable = True
    spec = view_spec(View.X, 3, 1, num_frequencies=4)
    asked = EmbedRequest(
        view=View.X,
        features=spec,
        mean=np.zeros(3),
        deviation=np.ones(3),
        target_mean=np.zeros(1),
        target_deviation=np.ones(1),
        intercept=True,
        noise_factor=1.0,
        seed=0,
    )
    exact = Embedding(14, np.zeros(4), 1.0)

    def made(request: EmbedRequest) -> Embedding:
        draw = noise_stream(job, request)
        return release(job, request, lambda: add_noise(exact, request.noise_factor, 1.0, draw))

    first = made(asked)
    assert np.abs(first.mean).max() > 0
    again = made(replace(asked, seed=9))
    assert np.array_equal(first.mean, again.mean)
    for other in (
        replace(asked, mean=np.array([1e-13, 0, 0])),
        replace(asked, noise_factor=2.0),
        replace(asked, deviation=np.array([1, 1, 1 + 1e-13])),
    ):
        with pytest.raises(PolicyError, match="submit a new job"):
            made(other)
    key = job.file.state / "noise.key"
    assert key.stat().st_mode & 0o777 == 0o600
    drawn = noise_stream(job, asked).normal(4)
    key.unlink()
    assert not np.allclose(drawn, noise_stream(job, asked).normal(4))


@pytest.mark.parametrize("trainer", ["newton", "fedavg"])
def test_a_client_that_fails_in_training_is_left_out(tmp_path: Path, trainer: str) -> None:
    """NaN from round 3 on: the others' models go on without it, and the job says so."""
    step = {"newton": "personalise.newton_steps", "fedavg": "personalise.train_networks"}[trainer]
    federation = bench(concept_rows(), tmp_path, tamper={("bee", step): with_nan}, from_round=3)
    outcome = federation.run(personal_job(**TRAINERS[trainer]))
    failed = [e for e in outcome.journal.events if e.kind is EventKind.CLIENT_FAILED]
    assert {e.client for e in failed} == {"bee"}
    assert all("personal" in outcome.metrics[-1].clients[name] for name in NAMES if name != "bee")
    pooled = outcome.metrics[-1].pooled["personal"]
    assert np.isfinite(pooled["mse"])
    if trainer == "newton":
        assert any("bee is out of training" in note for note in outcome.notes)


def test_covariate_view_and_random_features_work(tmp_path: Path) -> None:
    """View x with 40 random features, and lengthscales of one's own."""
    job = personal_job(view="x", features="", lengthscales=[2.0], grid="lite")
    done = run(job, clients(concept_rows(), tmp_path))
    assert "87 candidates" in notes(done)
    assert all("personal" in scores for scores in done.final.clients.values())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"embedding_kernel": "linear", "weights": "exact"}, "c_q is auto"),
        ({"trainer": "fedavg", "network": {"kind": "cnn"}}, "image"),
        ({"trainer": "newton", "rounds": 1}, "rounds"),
        ({"lengthscales": [1.0, 2.0, 3.0]}, "lengthscales"),
    ],
)
def test_settings_that_do_not_fit_are_told(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    """By key and remedy."""
    network = settings.pop("network", None)

    def attempt() -> None:
        job = personal_job(**settings) if network is None else parse_with_network(settings, network)
        run(job, clients(concept_rows(), tmp_path))

    with pytest.raises(ConfigError, match=message):
        attempt()


def parse_with_network(settings: dict[str, Any], network: dict[str, Any]) -> Any:
    from kernfed.jobs.job_file import parse_job

    lines = "\n".join(f'{k} = "{v}"' for k, v in settings.items())
    table = "\n".join(f'{k} = "{v}"' for k, v in network.items())
    return parse_job(
        f'name = "t"\n[method]\nname = "personalise"\n{lines}\n[method.network]\n{table}\n'
        '[data]\ntask = "regression"\ntarget = "y"\nfeatures = ["x0"]\n'
    )


def test_a_client_needs_its_embedding_before_anything_else(tmp_path: Path) -> None:
    """Steps out of order ask for the preparation to be repeated, which then happens by itself."""
    rows, job = concept_rows(), personal_job()
    federation = bench(rows, tmp_path)
    forgot: list[str] = []

    def forget(reply: Reply) -> Reply:
        if not forgot:
            forgot.append("bee")
            federation.jobs["bee"].forget("personalise")
        return reply

    federation = replace(federation, tamper={("ant", "personalise.crossfit"): forget})
    outcome = federation.run(job)
    assert forgot
    whole = bench(rows, tmp_path).run(job)
    assert outcome.metrics[-1] == whole.metrics[-1]
