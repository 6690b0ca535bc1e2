"""Networks on weighted rows: Adam on their gradients, batch normalisation, and what clients keep."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from kernfed.errors import ConfigError
from kernfed.federation.messages.data import LearningTask
from kernfed.models.network_model import NetworkModel, load_network_model, load_predictor
from kernfed.models.network_spec import NetworkKind, initial_parameters, make_network_spec, norm_entries
from kernfed.tensors.networks import outputs
from kernfed_client.methods.reweight.state import LAST_ROUND, ReweightState, own_norm
from kernfed_client.models.kept_models import load_kept_model
from kernfed_simulation.federation import from_rows
from kernfed_testing.in_process import bench
from kernfed_testing.methods.personalise import notes, run
from kernfed_testing.methods.reweight import (
    CLASSES,
    NAMES,
    PAPER,
    label_shifted_rows,
    reweight_job,
    sharing,
    shifted_rows,
)


def test_adam_takes_the_mean_of_the_weighted_gradients(tmp_path: Path) -> None:
    """One round by hand: Adam's first step moves every parameter by its step size against the mean gradient's sign."""
    rows = shifted_rows(60)
    job = reweight_job(trainer="adam", rounds=1, batch_size=0, step_size=0.01, compare=False, ratios=PAPER)
    jobs = sharing(rows, tmp_path)
    done = run(job, jobs)
    assert isinstance(done.left, NetworkModel)
    model = done.left
    from kernfed import rng
    from kernfed.models.network_spec import initial_parameters
    from kernfed.tensors.networks import gradients

    spec = model.network
    start = initial_parameters(spec, rng.seed(5, "reweight", "network"))
    slopes = []
    for name in NAMES:
        local = jobs[name]
        y = (rows[name].y_train[:, None] - model.target_mean) / model.target_deviation
        w = torch.tensor(local.memory(ReweightState).ratios["all"].weights)[None]
        slopes.append(gradients(spec, torch.tensor(start)[None], torch.tensor(local.x_train), torch.tensor(y), w)[0])
    mean = torch.stack(slopes).mean(dim=0).numpy()
    want = start - 0.01 * mean / (np.abs(mean) + 1e-8)
    np.testing.assert_allclose(model.parameters, want, atol=1e-9)


def test_one_local_step_is_a_gradient_to_the_coordinators_optimiser(tmp_path: Path) -> None:
    """FedAdam with one step on all rows is Adam on the clients' mean gradient; Yogi parts from it after a step."""

    def left(rounds: int, **settings: Any) -> np.ndarray[Any, Any]:
        job = reweight_job(rounds=rounds, batch_size=0, step_size=0.01, compare=False, ratios=PAPER, **settings)
        done = run(job, sharing(shifted_rows(60), tmp_path / str(rounds) / "-".join(map(str, settings.values()))))
        assert isinstance(done.left, NetworkModel)
        return done.left.parameters

    steps: dict[str, Any] = {"trainer": "fedavg", "local_steps": 1, "learning_rate": 0.1}
    adam = left(4, trainer="adam")
    np.testing.assert_allclose(left(4, optimiser="adam", **steps), adam, atol=1e-7)
    np.testing.assert_allclose(left(4, optimiser="adam", proximal=1.0, **steps), adam, atol=1e-7)  # it begins there
    np.testing.assert_allclose(left(1, optimiser="yogi", **steps), left(1, trainer="adam"), atol=1e-7)
    assert np.abs(left(4, optimiser="yogi", **steps) - adam).max() > 1e-6


def test_the_proximal_term_holds_clients_near(tmp_path: Path) -> None:
    """With it a round of many local steps moves the network less."""
    moved = {}
    for proximal in (0.0, 5.0):
        own: dict[str, Any] = {"trainer": "fedavg", "local_steps": 20, "learning_rate": 0.1, "proximal": proximal}
        job = reweight_job(rounds=1, compare=False, ratios=PAPER, **own)
        done = run(job, sharing(shifted_rows(60), tmp_path / str(proximal)))
        moved[proximal] = done.final.training["movement"]
    assert moved[5.0] < 0.5 * moved[0.0]


def test_networks_learn_and_can_be_taken_away(tmp_path: Path) -> None:
    """Under label shift the network for a target is better there than the plain one; it predicts from its files."""
    rows = label_shifted_rows()
    job = reweight_job(
        task="classification",
        trainer="adam",
        scope="target",
        target="bee",
        rounds=120,
        step_size=0.02,
        ratios='source = "labels"',
        top="evaluate_every = 1000",
    )
    done = run(job, sharing(rows, tmp_path, CLASSES), tmp_path / "out")
    there = done.final.clients["bee"]
    assert there["global"]["accuracy"] > there["fedavg"]["accuracy"] + 0.02
    model = load_network_model(tmp_path / "out")
    scores = load_predictor(tmp_path / "out").predict_scores(rows["ant"].x_test)
    np.testing.assert_allclose(scores.sum(axis=1), 1.0)
    correct = (scores.argmax(axis=1) == rows["ant"].y_test).mean()
    assert correct == pytest.approx(done.final.clients["ant"]["global"]["accuracy"])
    (tmp_path / "out" / "model.safetensors").write_bytes(b"other")
    with pytest.raises(ConfigError, match="damaged"):
        load_network_model(tmp_path / "out")
    assert model.classes == CLASSES


NORMED = 'kind = "mlp"\nwidths = [6]\nbatch_norm = '


@pytest.mark.parametrize("trainer", ["adam", "fedavg"])
def test_batch_norm_is_averaged(tmp_path: Path, trainer: str) -> None:
    """Means and variances of the model are those that the clients' batches have, on average; the model learns."""
    rows = shifted_rows(60)
    own: dict[str, Any] = {"step_size": 0.02} if trainer == "adam" else {"local_steps": 2, "learning_rate": 0.2}
    job = reweight_job(trainer=trainer, rounds=60, batch_size=0, network=f'{NORMED}"average"', **own)
    jobs = sharing(rows, tmp_path)
    done = run(job, jobs)
    assert isinstance(done.left, NetworkModel)
    spec, kept = done.left.network, done.left.parameters
    _, statistics = norm_entries(spec)
    seen = []
    for name in NAMES:
        parts: list[torch.Tensor] = []
        outputs(spec, torch.tensor(kept)[None], torch.tensor(jobs[name].x_train), parts)
        seen.append(torch.cat(parts, dim=1)[0].numpy())
    # The statistics lag behind a network that still moves: within a tenth of their size.
    assert np.abs(kept[statistics] - np.mean(seen, axis=0)).mean() < 0.1 * np.abs(kept[statistics]).mean() + 0.05
    assert done.final.pooled["global"]["mse"] < 1.0


def test_own_batch_norm_stays_at_the_client(tmp_path: Path) -> None:
    """FedBN: what leaves has the normalisation that everyone started with; a client's own differs, and outlives it."""
    rows = shifted_rows(60)
    job = reweight_job(trainer="fedavg", rounds=5, compare=False, network=f'{NORMED}"own"', batch_size=0)
    made = bench(rows, tmp_path)
    for local in made.jobs.values():
        local.durable = True
        local.file = sharing(rows, tmp_path)["ant"].file
    last = made.run(job).journal.last
    assert last is not None
    spec = make_network_spec(NetworkKind.MLP, LearningTask.REGRESSION, 2, 1, (6,), (), batch_norm=True)
    norm, _ = norm_entries(spec)
    start = last.state["parameters"][:, norm]
    np.testing.assert_array_equal(start[0], initial_parameters(spec, 0)[norm])
    own = {name: own_norm(made.jobs[name], LAST_ROUND, start) for name in NAMES}
    assert not np.allclose(own["ant"], start)
    assert not np.allclose(own["ant"], own["cat"])
    again = from_rows(rows, (), tmp_path)["ant"]
    again.durable = True
    np.testing.assert_array_equal(own_norm(again, LAST_ROUND, start), own["ant"])


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_each_client_keeps_a_model_with_its_own_batch_norm(tmp_path: Path, task: str) -> None:
    """It predicts with the accuracy that the job told; the coordinator leaves no model, and says where they are."""
    rows, classes = (shifted_rows(60), ()) if task == "regression" else (label_shifted_rows(120), CLASSES)
    settings: dict[str, Any] = {"trainer": "fedavg", "rounds": 6, "scope": "own", "network": f'{NORMED}"own"'}
    jobs = sharing(rows, tmp_path / "state", classes)
    done = run(reweight_job(task=task, **settings), jobs, tmp_path / "out")
    assert done.left is None
    assert done.model is None
    (tmp_path / "out" / "job.json").write_text("{}")
    with pytest.raises(ConfigError, match="every client keeps a model of its own"):
        load_predictor(tmp_path / "out")
    assert "the coordinator has no model: every client keeps its own" in notes(done)
    for name in NAMES:
        model = load_kept_model(jobs[name].folder / "model")
        scores = model.predict_scores(pd.DataFrame(rows[name].x_test, columns=["x0", "x1"]))
        told = done.final.clients[name]["global"]
        if task == "regression":
            assert np.square(scores[:, 0] - rows[name].y_test).mean() == pytest.approx(told["mse"])
        else:
            assert (scores.argmax(axis=1) == rows[name].y_test).mean() == pytest.approx(told["accuracy"])


def test_a_client_that_was_never_drawn_is_named(tmp_path: Path) -> None:
    """It has no normalisation of its own, so its model is not one to predict with."""
    job = reweight_job(trainer="fedavg", rounds=1, scope="own", client_fraction=0.3, network=f'{NORMED}"own"')
    told = notes(run(job, sharing(shifted_rows(60), tmp_path)))
    assert re.search(r"(\w+), (\w+): never drawn for a round", told)


def test_own_batch_norm_is_resumed_to_the_same_bits(tmp_path: Path) -> None:
    """A coordinator that falls back by a round finds the normalisation of before."""
    rows = shifted_rows(60)
    job = reweight_job(trainer="fedavg", rounds=4, scope="own", network=f'{NORMED}"own"')
    whole = bench(rows, tmp_path / "a").run(job)
    second = bench(rows, tmp_path / "b")
    stopped = second.run(job, stop_before=4)
    resumed = second.run(job, resumed=stopped.journal.checkpoints[1])
    assert resumed.metrics[-1] == whole.metrics[-1]
