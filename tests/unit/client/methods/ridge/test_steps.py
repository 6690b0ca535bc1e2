"""Ridge steps against the formulas, written densely."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernfed.errors import InvalidTensorError, JobStateMissingError
from kernfed.federation.messages.base import Stated
from kernfed.federation.messages.evaluation import EvaluateRequest
from kernfed.jobs.client_file import PolicySection
from kernfed.methods.ridge.messages import (
    CurvatureRequest,
    GradientDescentRequest,
    GradientRequest,
    HeldOutLossRequest,
    HessianProductRequest,
    LocalSolveRequest,
    NewtonStartRequest,
    NewtonStepRequest,
    ProximalSolveRequest,
    SecondMomentsRequest,
    TrainLocallyRequest,
)
from kernfed.models.global_model import load_model
from kernfed_client.data.alone import alone
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.ridge import steps as ridge
from kernfed_client.steps import evaluation
from kernfed_client.steps.own_ridge import chosen_ridge, fold_rows, local_ridge, own_weights
from kernfed_simulation.federation import Rows, from_rows
from kernfed_testing.in_process import bench, label_skewed_rows, make_job, regression_rows

RIDGE = 0.02
CLASSES = ("red", "green", "blue")


@pytest.fixture(params=[30, 150], ids=["wide", "tall"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> LocalJob:
    """A client prepared by a job, with fewer or more rows than its 40 features."""
    federation = bench(regression_rows({"ant": request.param, "bee": 50}), tmp_path)
    federation.run(make_job("dkrr"))
    return federation.jobs["ant"]


def dense(job: LocalJob, ridge: float = RIDGE) -> tuple[np.ndarray, np.ndarray]:
    """H_j and c_j."""
    z, y = job.z_train.numpy(), job.y_train.numpy()
    return z.T @ z / len(z) + ridge * np.eye(z.shape[1]), z.T @ y / len(z)


def test_second_moments_are_those_of_the_rows(job: LocalJob) -> None:
    """Products, solves and the mean square equal their definitions; a message with too many columns is refused."""
    hessian, moment = dense(job)
    draw = np.random.default_rng(4)
    z, g = draw.normal(size=(len(moment), 5)), draw.normal(size=(len(moment), 2))
    request = SecondMomentsRequest(ridge=RIDGE, directions=z, right=g)
    told = ridge.second_moments(job, request)
    assert np.allclose(told.product, hessian @ z)
    assert np.allclose(told.solve, np.linalg.solve(hessian, g))
    assert told.mean_square == pytest.approx(float(np.square(job.z_train.numpy()).sum(axis=1).mean()))
    assert not list(request.refusals(told))
    for lie in ({"product": 2.0 * told.product}, {"solve": 0.5 * told.solve}, {"product": -told.product}):
        assert list(request.refusals(replace(told, **lie)))
    with pytest.raises(InvalidTensorError, match="65 columns, and a client takes 64 at most"):
        ridge.second_moments(job, replace(request, directions=np.zeros((len(moment), 65))))


def test_steps_compute_what_the_algorithm_says(job: LocalJob) -> None:
    """Start, gradient, Newton step, product and proximal solve equal their definitions."""
    hessian, moment = dense(job)
    w = np.random.default_rng(3).normal(size=moment.shape)
    start = ridge.newton_start(
        job, NewtonStartRequest(ridge=RIDGE, num_features=moment.shape[0], num_outputs=moment.shape[1])
    )
    assert np.allclose(start.moment, moment)
    assert np.allclose(start.weights, np.linalg.solve(hessian, moment))
    solve = LocalSolveRequest(ridge=RIDGE, num_features=moment.shape[0], num_outputs=moment.shape[1])
    assert np.array_equal(ridge.local_solve(job, solve).weights, start.weights)
    told = ridge.gradient(job, GradientRequest(ridge=RIDGE, weights=w, energy=True))
    assert np.allclose(told.gradient, hessian @ w - moment)
    assert told.energy == pytest.approx(float(np.vdot(w, hessian @ w)))
    assert ridge.gradient(job, GradientRequest(ridge=RIDGE, weights=w)).energy == 0.0
    assert np.allclose(
        ridge.newton_step(job, NewtonStepRequest(ridge=RIDGE, gradient=w)).newton_step, np.linalg.solve(hessian, w)
    )
    assert np.allclose(ridge.hessian_product(job, HessianProductRequest(ridge=RIDGE, direction=w)).product, hessian @ w)
    near = ridge.proximal_solve(job, ProximalSolveRequest(ridge=RIDGE, weights=w, proximal=0.5)).weights
    assert np.allclose((hessian + 0.5 * np.eye(len(w))) @ near, moment + 0.5 * w)
    top = ridge.curvature(job, CurvatureRequest(ridge=RIDGE)).largest_eigenvalue
    assert top == pytest.approx(np.linalg.eigvalsh(hessian)[-1])


def test_full_gradient_steps_are_gradient_descent_and_batches_come_from_the_seed(job: LocalJob) -> None:
    """Without batches the steps are exact; with batches one seed gives one result, another seed another."""
    hessian, moment = dense(job)
    w = np.zeros_like(moment)

    def update(batch_size: int, seed: int) -> np.ndarray:
        return ridge.gradient_descent(
            job,
            GradientDescentRequest(
                ridge=RIDGE, weights=w, learning_rate=0.3, num_steps=2, batch_size=batch_size, seed=seed
            ),
        ).weights

    once = w - 0.3 * (hessian @ w - moment)
    assert np.allclose(update(0, 1), once - 0.3 * (hessian @ once - moment))
    assert np.array_equal(update(7, 1), update(7, 1))
    assert not np.array_equal(update(7, 1), update(7, 2))


def test_every_reply_states_the_training_rows(job: LocalJob) -> None:
    """The weight in the mean is the client's number of training rows."""
    _, moment = dense(job)
    assert ridge.gradient(job, GradientRequest(ridge=RIDGE, weights=moment)).num_rows == job.num_rows
    assert ridge.train_locally(job, TrainLocallyRequest(ridge=RIDGE)).num_rows == job.num_rows


def test_wrong_shapes_are_refused(job: LocalJob) -> None:
    """A request for another number of features or outputs names both."""
    with pytest.raises(InvalidTensorError, match=r"newton.gradient: shape \(39, 1\).*\(40, 1\)"):
        ridge.gradient(job, GradientRequest(ridge=RIDGE, weights=np.zeros((39, 1))))
    with pytest.raises(InvalidTensorError, match=r"ridge.local_solve"):
        ridge.local_solve(job, LocalSolveRequest(ridge=RIDGE, num_features=40, num_outputs=2))
    with pytest.raises(InvalidTensorError, match=r"evaluation.evaluate"):
        evaluation.evaluate(job, EvaluateRequest(weights=np.zeros((40, 2)), local_ridge=0.0, include_global=True))


def test_the_problem_is_kept_per_ridge_and_made_anew_for_new_means(job: LocalJob) -> None:
    """One factor serves all rounds; centring differently discards it."""
    first = local_ridge(job, RIDGE)
    assert local_ridge(job, RIDGE) is first
    assert local_ridge(job, 2 * RIDGE) is not first
    job.centre(np.zeros(40), np.zeros(1))
    assert local_ridge(job, RIDGE) is not first
    hessian, moment = dense(job)
    assert np.allclose(own_weights(job, RIDGE), np.linalg.solve(hessian, moment))


def test_a_client_without_state_says_so(tmp_path: Path) -> None:
    """Asked before it was prepared, the client asks to be prepared again."""
    rows = regression_rows({"ant": 20})
    fresh = from_rows(rows, (), tmp_path)["ant"]
    with pytest.raises(JobStateMissingError):
        ridge.gradient(fresh, GradientRequest(ridge=RIDGE, weights=np.zeros((40, 1))))


@pytest.mark.parametrize("task", ["regression", "binary", "classification"])
def test_the_own_model_stays_in_the_clients_folder_and_predicts_as_measured(tmp_path: Path, task: str) -> None:
    """The model that a client keeps gives, from raw rows, the scores that evaluation measured."""
    classes: tuple[str, ...]
    if task == "regression":
        rows, classes, columns = regression_rows({"ant": 60, "bee": 50}), (), 3
    else:
        rows, classes, columns = label_skewed_rows(2), CLASSES, 6
        if task == "binary":
            rows = {n: Rows(r.x_train, r.y_train % 2, r.x_test, r.y_test % 2) for n, r in rows.items()}
            classes = CLASSES[:2]
    federation = bench(rows, tmp_path, classes)
    federation.run(make_job("local", task=task, num_columns=columns, ridge=RIDGE))
    name = sorted(rows)[0]
    job = federation.jobs[name]
    model = load_model(tmp_path / name / "model")
    own = alone(job)
    scores = evaluation.predict(own, own_weights(own, RIDGE))
    assert np.allclose(model.predict_scores(rows[name].x_test), scores, atol=1e-10)
    assert model.job == {"job_id": job.job_id, "client": name, "missing": "refuse"}
    if task == "classification":
        accuracy = (model.predict(rows[name].x_test) == np.array(CLASSES)[rows[name].y_test]).mean()
        sums = evaluation.evaluate(
            job, EvaluateRequest(weights=np.zeros((40, 3)), local_ridge=RIDGE, include_global=False, alone=True)
        ).sums
        assert sums[0].num_correct == round(accuracy * len(rows[name].y_test))


def test_a_fold_is_left_out_of_every_step(job: LocalJob) -> None:
    """Start, gradient, step and product are those of the other rows; the loss is the mean over the fold's."""
    apart = fold_rows(job, 2)
    kept = np.setdiff1d(np.arange(job.num_rows), apart.numpy())
    z, y = job.z_train.numpy(), job.y_train.numpy()
    hessian = z[kept].T @ z[kept] / len(kept) + RIDGE * np.eye(z.shape[1])
    moment = z[kept].T @ y[kept] / len(kept)
    w = np.random.default_rng(3).normal(size=moment.shape)
    shape = {"num_features": moment.shape[0], "num_outputs": moment.shape[1]}
    for ridge_now in (1.0, RIDGE):
        start = ridge.newton_start(job, NewtonStartRequest(ridge=ridge_now, fold=2, **shape))
    np.testing.assert_allclose(start.weights, np.linalg.solve(hessian, moment), atol=1e-9)
    np.testing.assert_allclose(start.moment, moment, atol=1e-12)
    found = (
        ridge.gradient(job, GradientRequest(ridge=RIDGE, weights=w, fold=2)).gradient,
        ridge.newton_step(job, NewtonStepRequest(ridge=RIDGE, gradient=w, fold=2)).newton_step,
        ridge.hessian_product(job, HessianProductRequest(ridge=RIDGE, direction=w, fold=2)).product,
    )
    wanted = (hessian @ w - moment, np.linalg.solve(hessian, w), hessian @ w)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-8)
    loss = ridge.loss_apart(job, HeldOutLossRequest(fold=2, weights=w))
    assert loss.num_apart == len(apart) == job.num_rows // 5
    error = np.square(z[apart] @ w - y[apart]).sum(axis=1)
    assert loss.loss == pytest.approx(error.mean())
    assert loss.num_correct == 0
    job.file = job.file.model_copy(update={"policy": PolicySection(min_rows=len(apart) + 1)})
    assert ridge.loss_apart(job, HeldOutLossRequest(fold=2, weights=w)).num_apart == 0
    nothing_left_out = ridge.gradient(job, GradientRequest(ridge=RIDGE, weights=w, fold=2)).gradient
    assert np.array_equal(nothing_left_out, ridge.gradient(job, GradientRequest(ridge=RIDGE, weights=w)).gradient)


def test_rows_apart_that_are_right_are_counted(tmp_path: Path) -> None:
    """Of several classes the one with the largest score is predicted, where targets and scores are centred too."""
    federation = bench(label_skewed_rows(2), tmp_path, CLASSES)
    federation.run(make_job("dkrr", task="classification", num_columns=6))
    job = federation.jobs["site-0"]
    w, rows = own_weights(job, RIDGE), fold_rows(job, 1).numpy()
    scores = job.z_train.numpy()[rows] @ w + job.target_mean
    truth = (job.y_train.numpy()[rows] + job.target_mean).argmax(axis=1)
    reply = ridge.loss_apart(job, HeldOutLossRequest(fold=1, weights=w))
    assert reply.num_correct == (scores.argmax(axis=1) == truth).sum() > 0
    assert not list(reply.contradictions(Stated(num_rows=60)))
    wrong = replace(reply, num_correct=reply.num_apart + 1)
    assert any("rows classified correctly" in why for why in wrong.contradictions(Stated(num_rows=60)))


def test_a_client_chooses_the_ridge_of_its_own_model(tmp_path: Path) -> None:
    """From a ridge a thousand times too large and too small it ends where rows kept apart are predicted well."""
    federation = bench(regression_rows({"ant": 199, "bee": 200}), tmp_path)
    federation.run(make_job("dkrr"))
    assert chosen_ridge(federation.jobs["ant"], 10.0) == 10.0  # too few rows to choose by
    job = federation.jobs["bee"]
    found = [chosen_ridge(job, begin) for begin in (10.0, 1e-9)]
    assert all(1e-7 < ridge < 0.1 for ridge in found)
    request = EvaluateRequest(
        weights=np.zeros((job.train_rows.shape[1], 1)),
        local_ridge=10.0,
        include_global=False,
        alone=True,
        choose_ridge=True,
    )
    chosen = evaluation.evaluate(job, request).sums[0].squared_error
    assert chosen < 0.5 * evaluation.evaluate(job, replace(request, choose_ridge=False)).sums[0].squared_error
