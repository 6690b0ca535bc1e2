"""Evaluation at a client: the right rows, the right units, the models asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.federation.messages.evaluation import EvaluateRequest
from kernfed_client.steps import evaluation
from kernfed_client.steps.own_ridge import own_weights
from kernfed_simulation.federation import Rows
from kernfed_testing.in_process import bench, label_skewed_rows, make_job, regression_rows


def test_errors_are_in_the_units_of_the_targets(tmp_path: Path) -> None:
    """Squared errors are those of predictions on the client's own test rows, targets not centred."""
    rows = regression_rows({"ant": 60, "bee": 50}, shift=1.0)
    federation = bench(rows, tmp_path)
    model = federation.run(make_job("dkrr")).model
    assert model is not None
    reply = evaluation.evaluate(
        federation.jobs["bee"], EvaluateRequest(weights=model.weights, local_ridge=0.0, include_global=True)
    )
    errors = model.predict(rows["bee"].x_test) - rows["bee"].y_test
    assert reply.num_test_rows == len(errors)
    assert reply.sums[0].squared_error == pytest.approx(np.square(errors).sum())


def test_models_asked_for_are_measured_and_no_others(tmp_path: Path) -> None:
    """Global, local, both; a ridge of 0 asks for no local model."""
    federation = bench(regression_rows({"ant": 60}), tmp_path)
    federation.run(make_job("dkrr"))
    job, w = federation.jobs["ant"], np.zeros((40, 1))

    def models(local_ridge: float, include_global: bool) -> list[str]:
        sums = evaluation.evaluate(
            job, EvaluateRequest(weights=w, local_ridge=local_ridge, include_global=include_global)
        ).sums
        return [s.model for s in sums]

    assert models(0.0, True) == ["global"]
    assert models(0.1, True) == ["global", "local"]
    assert models(0.1, False) == ["local"]
    own = own_weights(job, 0.1)
    local = evaluation.evaluate(job, EvaluateRequest(weights=w, local_ridge=0.1, include_global=False)).sums[0]
    as_global = evaluation.evaluate(job, EvaluateRequest(weights=own, local_ridge=0.0, include_global=True)).sums[0]
    assert local.squared_error == as_global.squared_error


def test_without_test_rows_no_model_is_trained_to_be_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over no rows need no ridge model of the client's own."""
    rows = regression_rows({"ant": 60, "bee": 50})
    rows["bee"] = replace(rows["bee"], x_test=rows["bee"].x_test[:0], y_test=rows["bee"].y_test[:0])
    federation = bench(rows, tmp_path)
    federation.run(make_job("dkrr"))
    monkeypatch.setattr(evaluation, "alone", pytest.fail)
    asked = EvaluateRequest(weights=np.zeros((40, 1)), local_ridge=0.2, include_global=True, alone=True)
    reply = evaluation.evaluate(federation.jobs["bee"], asked)
    assert [(s.model, s.num_rows, s.squared_error) for s in reply.sums] == [("global", 0, 0.0), ("local", 0, 0.0)]


def test_classes_are_measured_one_hot(tmp_path: Path) -> None:
    """A classification counts right answers of the largest score."""
    rows = label_skewed_rows()
    federation = bench(rows, tmp_path, ("red", "green", "blue"))
    federation.run(make_job("dkrr", task="classification", num_columns=6))
    job = federation.jobs["site-2"]
    targets = evaluation.held_out_targets(job)
    agreed = [job.classes.index(("red", "green", "blue")[y]) for y in rows["site-2"].y_test]
    assert np.array_equal(targets.argmax(axis=1), agreed)
    assert (targets.sum(axis=1) == 1).all()


def test_alone_has_an_intercept_and_scales_of_its_own(tmp_path: Path) -> None:
    """Clients with means of either sign: alone each is right; what others told, without an own intercept, is not."""
    random = np.random.default_rng(5)
    slope = random.normal(size=4)

    def made(num: int, sign: float) -> tuple[Any, Any]:
        x = random.normal(size=(num, 4))
        return x, sign * (x @ slope + 3) + 0.5 * random.normal(size=num)

    rows = {f"site-{i}": Rows(*made(40, s), *made(100, s)) for i, s in enumerate((1.0, -1.0, 1.0, -1.0))}
    federation = bench(rows, tmp_path)
    job = make_job("newton", num_columns=4, features='kernel = "linear"', top="local_shared = true")
    metrics = federation.run(job).metrics[-1]
    assert metrics.pooled["local"]["mse"] == pytest.approx(0.28, abs=0.05)
    assert metrics.pooled["local-shared"]["mse"] == pytest.approx(0.28, abs=0.05)
    former = EvaluateRequest(weights=np.zeros((4, 1)), local_ridge=1e-3, include_global=False)
    (sums,) = evaluation.evaluate(federation.jobs["site-0"], former).sums
    assert sums.squared_error / 100 > 3
