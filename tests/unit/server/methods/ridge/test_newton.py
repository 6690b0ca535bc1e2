"""The Newton workflow on ridge problems: it reaches the pooled solution, and the iterates of independent programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kernfed.arrays import Floats
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, fingerprint, make_spec
from kernfed.federation.cohort import Cohort
from kernfed.federation.in_process import InProcessExchange
from kernfed.federation.messages.data import DataSchema, LearningTask, MissingRule
from kernfed.models.global_model import GlobalModel
from kernfed_client.steps.registry import STEPS
from kernfed_server.jobs.diverged import DivergedRunError
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.agreement import Agreement
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.methods.ridge import newton
from kernfed_server.methods.ridge.newton import NewtonPlan
from kernfed_simulation.central import central_weights
from kernfed_testing.in_process import (
    FOUR,
    INDEPENDENT,
    JOB_ID,
    RecordingJournal,
    bench,
    label_skewed_rows,
    make_job,
    regression_rows,
    with_nan,
)
from kernfed_testing.methods.ridge_clients import load_golden

SMALL = {"ant": 25, "bee": 18, "cat": 31, "dog": 22}
CLASSES = ("red", "green", "blue")


def distance(weights: Floats, outcome_bench: Any, ridge: float) -> float:
    """Relative distance to the pooled solution in the norm of the pooled Hessian."""
    jobs = outcome_bench.jobs
    star = central_weights(jobs, ridge)
    z = np.concatenate([job.z_train.numpy() for job in jobs.values()])

    def norm(w: Floats) -> float:
        return float(np.sqrt(np.square(z @ w).sum() / len(z) + ridge * np.square(w).sum()))

    return norm(weights - star) / norm(star)


@pytest.mark.parametrize("step", ["auto", "paper"])
def test_newton_converges_linearly_to_pooled_ridge_on_an_iid_split(tmp_path: Path, step: str) -> None:
    """With enough rows both steps reach 1e-8 within 30 rounds, and the certificate holds in every round."""
    job = make_job("newton", ridge=1e-2, rounds=30, step=step)
    federation = bench(regression_rows(FOUR), tmp_path)
    outcome = federation.run(job)
    assert distance(outcome.weights, federation, 1e-2) < 1e-8
    bounds = [m.training["relative_distance_bound"] for m in outcome.metrics if "relative_distance_bound" in m.training]
    assert bounds[-1] <= 1e-8
    rates = np.array(bounds[1:]) / np.array(bounds[:-1])
    assert rates.max() < 0.9
    weights = [c.state["weights"] for c in outcome.journal.checkpoints]
    for w, bound in zip(weights[:-1], bounds[1:] if step == "paper" else bounds, strict=True):
        assert distance(w, federation, 1e-2) <= bound * (1 + 1e-6) + 1e-12


def test_newton_default_converges_where_the_papers_step_diverges_for_too_few_rows(tmp_path: Path) -> None:
    """With fewer rows than features the paper's step is stopped with a diagnosis; the default reaches pooled ridge."""
    federation = bench(regression_rows(SMALL), tmp_path)
    outcome = federation.run(make_job("newton", ridge=1e-4, rounds=30))
    assert distance(outcome.weights, federation, 1e-4) < 1e-8
    with pytest.raises(DivergedRunError, match="moves away from the pooled solution") as stopped:
        federation.run(make_job("newton", ridge=1e-4, rounds=30, step="paper"))
    assert stopped.value.reason == "DIVERGED"
    assert 'step = "auto"' in str(stopped.value)
    assert isinstance(stopped.value.model, GlobalModel)
    assert stopped.value.weights is not None
    assert np.array_equal(stopped.value.model.weights, stopped.value.weights)
    dkrr = federation.run(make_job("dkrr", ridge=1e-4))
    assert distance(stopped.value.weights, federation, 1e-4) <= distance(dkrr.weights, federation, 1e-4)


def test_newton_default_converges_where_the_papers_step_diverges_under_label_skew(tmp_path: Path) -> None:
    """Clients with nearly one class each: the default reaches pooled ridge, the paper's step is stopped."""
    federation = bench(label_skewed_rows(), tmp_path, CLASSES)
    common: dict[str, Any] = {"task": "classification", "num_columns": 6, "ridge": 1e-4, "rounds": 30}
    common["data"] = 'classes = ["red", "green", "blue"]'
    outcome = federation.run(make_job("newton", **common))
    assert distance(outcome.weights, federation, 1e-4) < 1e-8
    with pytest.raises(DivergedRunError):
        federation.run(make_job("newton", step="paper", **common))


@pytest.mark.parametrize("solver", ["auto", "paper"])
@pytest.mark.parametrize("step", ["newton.gradient", "newton.step", "newton.hessian_product"])
def test_a_client_that_fails_midway_leaves_the_others_pooled_solution(tmp_path: Path, solver: str, step: str) -> None:
    """After a wrong answer in a later round, newton goes on to the pooled solution of the others, and says so."""
    rows = regression_rows(FOUR)
    tampered = bench(rows, tmp_path, tamper={("dog", step): with_nan}, from_round=3)
    job = make_job("newton", ridge=1e-2, rounds=30, step=solver, **INDEPENDENT)
    outcome = tampered.run(job)
    concerned = step in ("newton.step", "newton.hessian_product") if solver == "auto" else step == "newton.gradient"
    left = bench({name: r for name, r in rows.items() if name != "dog" or not concerned}, tmp_path)
    left.run(job)
    assert distance(outcome.weights, left, 1e-2) < 1e-7
    assert any("dog is out of the pooled problem" in note for note in outcome.notes) == concerned


@pytest.mark.parametrize("solver", ["auto", "paper"])
def test_a_client_that_is_gone_when_a_run_resumes_leaves_the_pooled_problem(tmp_path: Path, solver: str) -> None:
    """The run goes on to the pooled solution of those who are still there."""
    rows = regression_rows(FOUR)
    job = make_job("newton", ridge=1e-2, rounds=30, step=solver, cohort='preflight = "quorum"', **INDEPENDENT)
    first = bench(rows, tmp_path).run(job, stop_before=4)
    gone = bench(rows, tmp_path, tamper={("bee", "data.describe"): with_nan})
    outcome = gone.run(job, resumed=first.journal.last)
    left = bench({name: r for name, r in rows.items() if name != "bee"}, tmp_path)
    left.run(job)
    assert distance(outcome.weights, left, 1e-2) < 1e-7
    assert any("bee is out of the pooled problem" in note for note in outcome.notes)


@dataclass
class GoldenJob:
    """A client whose features and targets are given."""

    client: str
    z_train: torch.Tensor
    y_train: torch.Tensor
    device: str = "cpu"
    largest: int = 0
    row_weights: None = None
    kept: dict[Any, Any] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        return len(self.z_train)

    @property
    def train_rows(self) -> torch.Tensor:
        return self.z_train

    def ridge_sums(self) -> None:
        """The problem makes them itself."""

    def memo(self, key: Any, make: Any) -> Any:
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]

    def forget(self, key: Any) -> None:
        self.kept.pop(key, None)

    def settle_blocks(self, *, refused: bool) -> None:
        """Given rows have no blocks."""


async def golden_iterates(
    features: list[Any], targets: list[Any], ridge: float, step: str, rounds: int
) -> list[Floats]:
    """Weights after each round of the workflow on given features."""
    jobs = {
        f"client-{j}": GoldenJob(
            f"client-{j}", torch.tensor(z, dtype=torch.float64), torch.tensor(y, dtype=torch.float64)
        )
        for j, (z, y) in enumerate(zip(features, targets, strict=True))
    }
    num_features, num_outputs = jobs["client-0"].z_train.shape[1], jobs["client-0"].y_train.shape[1]
    spec = make_spec(Kernel.LINEAR, FeatureForm.COSINE, num_features, 1.0, 0, 0)
    names = tuple(f"x{i}" for i in range(num_features))
    setup = Setup(
        schema=DataSchema(
            task=LearningTask.REGRESSION,
            target="y",
            features=names,
            classes=(),
            missing=MissingRule.REFUSE,
            test_fraction=0.0,
            seed=0,
        ),
        agreed=Agreement(
            classes=(),
            mean=np.zeros(num_features),
            deviation=np.ones(num_features),
            spec=spec,
            fingerprint=fingerprint(spec),
            feature_mean=np.zeros(num_features),
            target_mean=np.zeros(num_outputs),
            num_rows={name: job.num_rows for name, job in jobs.items()},
        ),
        num_outputs=num_outputs,
    )
    journal = RecordingJournal()
    cohort = Cohort(InProcessExchange(STEPS, jobs), jobs, job_id=JOB_ID)
    plan = NewtonPlan(ridge, rounds, 1e-8, paper=step == "paper")
    await newton.run(setup, plan, cohort, Run(cohort, journal))
    return [c.state["weights"] for c in journal.checkpoints]


async def test_default_reproduces_the_golden_iterates() -> None:
    """Weights after trips 2, 4, 6 and 8 are those of an independent program."""
    golden = load_golden("newton-default")
    found = await golden_iterates(golden["X"], golden["Y"], golden["lam"], "auto", 4)
    for weights, expected in zip(found, golden["iterates"][1:], strict=True):
        assert np.allclose(weights, expected, rtol=0, atol=1e-10)
    assert np.allclose(found[-1], golden["krr"], rtol=0, atol=1e-10)


async def test_papers_step_reproduces_the_golden_iterates() -> None:
    """Weights after steps 1, 2 and 3 of Algorithm 1 are those of an independent program."""
    golden = load_golden("newton")
    omega, phase = np.array(golden["Omega"]), np.array(golden["b"])
    features = [np.cos(np.array(x) @ omega + phase) / np.sqrt(len(phase)) for x in golden["X"]]
    found = await golden_iterates(features, golden["Y"], golden["lam"], "paper", 3)
    for weights, expected in zip(found, golden["fednewton"][1:], strict=True):
        assert np.allclose(weights, expected, rtol=0, atol=1e-10)


def test_float32_on_the_wire_comes_near_the_pooled_solution(tmp_path: Path) -> None:
    """Messages rounded to float32 leave an error of their rounding."""
    federation = bench(regression_rows(FOUR), tmp_path)
    job = make_job("newton", ridge=1e-2, rounds=30, top='precision = "float32"')
    outcome = federation.run(job)
    assert distance(outcome.weights, federation, 1e-2) < 1e-5
    assert len(outcome.metrics) < 30
