"""Methods end to end, on clients in this process."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kernfed.arrays import Floats
from kernfed.errors import DivergedError, JobError, QuorumNotMetError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, fingerprint, make_spec
from kernfed.federation.cohort import Cohort
from kernfed.federation.events import EventKind
from kernfed.federation.in_process import InProcessExchange
from kernfed.federation.messages.data import DataSchema, LearningTask, MissingRule
from kernfed.jobs.job_file import JobFile
from kernfed.methods.registry import METHODS
from kernfed.models.global_model import GlobalModel
from kernfed_client.steps.registry import STEPS
from kernfed_server.jobs.diverged import DivergedRunError
from kernfed_server.jobs.preparation import Setup
from kernfed_server.jobs.run import Run
from kernfed_server.methods.registry import WORKFLOWS
from kernfed_server.methods.ridge import newton
from kernfed_server.methods.ridge.newton import NewtonPlan
from kernfed_simulation.central import central_weights
from kernfed_testing.in_process import (
    INDEPENDENT,
    JOB_ID,
    RecordingJournal,
    bench,
    label_skewed_rows,
    make_job,
    regression_rows,
    with_nan,
    with_rows,
    with_wrong_shape,
)
from kernfed_testing.ridge_clients import load_golden

FOUR = {"ant": 300, "bee": 260, "cat": 340, "dog": 280}
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


@pytest.mark.parametrize("method", ["newton", "dkrr", "fedavg", "fedprox"])
def test_order_of_clients_and_of_replies_does_not_matter(tmp_path: Path, method: str) -> None:
    """The same bits, whoever is named or answers first."""
    rows = regression_rows(FOUR)
    settings: dict[str, Any] = {"rounds": 3} if method != "dkrr" else {}
    job = make_job(method, **settings)
    first = bench(rows, tmp_path).run(job)
    second = bench(dict(reversed(rows.items())), tmp_path).run(job, reverse=True)
    assert first.weights.tobytes() == second.weights.tobytes()


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("newton", {"step": "auto"}),
        ("newton", {"step": "paper", "ridge": 0.1}),
        ("fedavg", {"batch_size": 16, "local_steps": 7}),
        ("fedprox", {}),
        ("fedprox", {"client_fraction": 0.5}),
    ],
)
@pytest.mark.parametrize("stop", [1, 3, 5])
def test_a_killed_run_goes_on_from_its_checkpoint_to_the_same_bits(
    tmp_path: Path, method: str, settings: dict[str, Any], stop: int
) -> None:
    """Stopped in any round, resumed with clients that lost their memory: the model is the same."""
    rows = regression_rows(FOUR, shift=0.3)
    job = make_job(method, rounds=6, **settings)
    whole = bench(rows, tmp_path).run(job)
    first = bench(rows, tmp_path).run(job, stop_before=stop)
    assert first.stopped
    assert first.model is None
    second = bench(rows, tmp_path).run(job, resumed=first.journal.last)
    assert second.weights.tobytes() == whole.weights.tobytes()
    assert second.metrics[-1] == whole.metrics[-1]


@pytest.mark.parametrize("method", ["fedavg", "fedprox"])
def test_clients_of_a_round_are_drawn_by_the_seed(tmp_path: Path, method: str) -> None:
    """Half of the clients update in each round, others in other rounds, the same ones in a second run."""
    job = make_job(method, rounds=8, client_fraction=0.5)
    drawn = []
    for _ in range(2):
        journal = bench(regression_rows(FOUR), tmp_path).run(job).journal
        answered = [e for e in journal.events if e.kind is EventKind.CLIENT_ANSWERED and "local_update" in e.step]
        drawn.append([frozenset(e.client for e in answered if e.round_num == r) for r in range(1, 9)])
    assert drawn[0] == drawn[1]
    assert {len(names) for names in drawn[0]} == {2}
    assert frozenset.union(*drawn[0]) == set(FOUR)


def test_a_run_resumed_after_its_last_round_only_assembles_the_model(tmp_path: Path) -> None:
    """Nothing is computed again where all rounds were closed, also where convergence closed them."""
    rows = regression_rows(FOUR)
    for job in (make_job("newton", ridge=1e-2), make_job("dkrr"), make_job("newton", ridge=0.1, step="paper")):
        whole = bench(rows, tmp_path).run(job)
        again = bench(rows, tmp_path).run(job, resumed=whole.journal.last)
        assert again.weights.tobytes() == whole.weights.tobytes()
        assert again.journal.checkpoints == []


FAULTS = [
    pytest.param(with_nan, "INVALID_TENSOR", id="nan"),
    pytest.param(with_wrong_shape, "INVALID_TENSOR", id="shape"),
    pytest.param(with_rows(0), "INVALID_REPLY", id="no-rows"),
    pytest.param(with_rows(-1), "INVALID_MESSAGE", id="negative-rows"),
    pytest.param(with_rows(10**30), "INVALID_MESSAGE", id="absurd-rows"),
]


@pytest.mark.parametrize(("tamper", "reason"), FAULTS)
@pytest.mark.parametrize(
    ("method", "step"),
    [
        ("dkrr", "ridge.local_solve"),
        ("fedavg", "fedavg.local_update"),
        ("fedprox", "fedprox.local_update"),
        ("newton", "newton.start"),
    ],
)
def test_a_client_that_answers_wrongly_is_out_and_the_aggregate_is_that_of_the_others(
    tmp_path: Path, method: str, step: str, tamper: Any, reason: str
) -> None:
    """The same bits as a run in which that client never took part."""
    rows = regression_rows(FOUR)
    settings: dict[str, Any] = {"ridge": 1e-3} | ({"rounds": 4} if method != "dkrr" else {})
    if method == "fedavg":
        settings["learning_rate"] = 0.5
    job = make_job(method, **INDEPENDENT, **settings)
    outcome = bench(rows, tmp_path, tamper={("bee", step): tamper}).run(job)
    without = bench({name: r for name, r in rows.items() if name != "bee"}, tmp_path).run(job)
    assert outcome.weights.tobytes() == without.weights.tobytes()
    failures = [e for e in outcome.journal.events if e.kind == "client-failed"]
    assert {e.client for e in failures} == {"bee"}
    assert {e.reason for e in failures} == {reason}


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


def test_too_few_clients_left_is_an_error_that_names_each(tmp_path: Path) -> None:
    """Below the quorum the round fails, and the error says who did what."""
    rows = regression_rows(FOUR)
    tamper = {(name, "ridge.local_solve"): with_nan for name in ("ant", "bee", "cat")}
    with pytest.raises(QuorumNotMetError, match=r"(?s)1 of 2 clients.*ant: INVALID_TENSOR.*bee.*cat"):
        bench(rows, tmp_path, tamper=tamper).run(make_job("dkrr"))


def test_float32_on_the_wire_comes_near_the_pooled_solution(tmp_path: Path) -> None:
    """Messages rounded to float32 leave an error of their rounding."""
    federation = bench(regression_rows(FOUR), tmp_path)
    job = make_job("newton", ridge=1e-2, rounds=30, top='precision = "float32"')
    outcome = federation.run(job)
    assert distance(outcome.weights, federation, 1e-2) < 1e-5
    assert len(outcome.metrics) < 30


def test_local_leaves_no_global_model_and_measures_each_client(tmp_path: Path) -> None:
    """Every client has metrics of its own model, pooled too; the models stay in the clients' folders."""
    outcome = bench(regression_rows(FOUR), tmp_path).run(make_job("local"))
    assert outcome.model is None
    assert set(outcome.metrics[-1].clients) == set(FOUR)
    assert set(outcome.metrics[-1].pooled) == {"local"}
    assert sorted(p.parent.parent.name for p in tmp_path.glob("*/model/model.json")) == sorted(FOUR)


def test_fedavg_descends_and_fedprox_beats_the_start(tmp_path: Path) -> None:
    """The automatic learning rate is stable: test error falls from the first round to the last."""
    federation = bench(regression_rows(FOUR), tmp_path)
    for method in ("fedavg", "fedprox"):
        errors = [m.pooled["global"]["mse"] for m in federation.run(make_job(method, rounds=20)).metrics]
        assert errors[-1] < errors[0]


def test_models_are_measured_every_few_rounds_and_after_the_last(tmp_path: Path) -> None:
    """`evaluate_every` thins out metrics of the global model; the last round always has them."""
    job = make_job("fedavg", rounds=5, top="evaluate_every = 2")
    outcome = bench(regression_rows(FOUR), tmp_path).run(job)
    assert ["global" in m.pooled for m in outcome.metrics] == [False, True, False, True, True]


def test_a_federation_whose_policies_keep_metrics_back_still_gets_its_model(tmp_path: Path) -> None:
    """Without metrics from anyone the job goes on, and says so."""
    tamper = {(name, "evaluation.evaluate"): _refused for name in FOUR}
    outcome = bench(regression_rows(FOUR), tmp_path, tamper=tamper).run(make_job("dkrr"))
    assert outcome.model is not None
    assert outcome.metrics[-1].pooled == {}
    assert sum(note.startswith("no metrics") for note in outcome.notes) == 1


def test_probe_measures_the_line_and_notices_changed_numbers(tmp_path: Path) -> None:
    """Rounds have seconds and MB/s; a client that changes numbers fails the job."""
    job = JobFile.model_validate({"name": "line", "method": {"name": "probe", "rounds": 2, "payload_bytes": 8000}})
    rows = regression_rows({"ant": 5, "bee": 5})
    outcome = bench(rows, tmp_path).run(job)
    assert outcome.model is None
    assert [set(m.training) for m in outcome.metrics] == [{"seconds", "megabytes_per_second"}] * 2
    tamper = {("bee", "probe.echo"): lambda reply: type(reply)(num_rows=1, values=reply.values + 1)}
    with pytest.raises(JobError, match="not what was sent"):
        bench(rows, tmp_path, tamper=tamper).run(job)


def test_every_method_of_the_job_file_has_a_workflow() -> None:
    """The registry and the settings name the same methods."""
    assert set(METHODS) == set(WORKFLOWS)


@dataclass
class GoldenJob:
    """A client whose features and targets are given."""

    client: str
    z_train: torch.Tensor
    y_train: torch.Tensor
    device: str = "cpu"
    row_weights: None = None
    kept: dict[Any, Any] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        return len(self.z_train)

    @property
    def train_rows(self) -> torch.Tensor:
        return self.z_train

    def memo(self, key: Any, make: Any) -> Any:
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]


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
        classes=(),
        mean=np.zeros(num_features),
        deviation=np.ones(num_features),
        spec=spec,
        fingerprint=fingerprint(spec),
        num_outputs=num_outputs,
        feature_mean=np.zeros(num_features),
        target_mean=np.zeros(num_outputs),
        num_rows={name: job.num_rows for name, job in jobs.items()},
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


def _refused(reply: Any) -> Any:
    from kernfed.errors import PolicyError

    raise PolicyError(f"{type(reply).__name__} must not leave this client")


def _scaled(factor: float) -> Any:
    """Replies with every float array times a factor."""

    def change(reply: Any) -> Any:
        arrays = {n: getattr(reply, n) for n in reply.__dataclass_fields__}
        return dataclasses.replace(
            reply, **{n: a * factor for n, a in arrays.items() if isinstance(a, np.ndarray) and a.dtype.kind == "f"}
        )

    return change


@pytest.mark.parametrize("factor", [1e20, 1e290])
@pytest.mark.parametrize(
    ("method", "step", "settings"),
    [
        ("fedavg", "fedavg.local_update", {"rounds": 2}),
        ("fedprox", "fedprox.local_update", {"rounds": 2}),
        ("dkrr", "ridge.local_solve", {}),
        ("newton", "newton.start", {"rounds": 3}),
        ("newton", "newton.gradient", {"rounds": 3}),
        ("newton", "newton.step", {"rounds": 3}),
        ("newton", "newton.hessian_product", {"rounds": 3}),
    ],
)
def test_a_client_with_absurd_numbers_is_out_and_named(
    tmp_path: Path, method: str, step: str, settings: dict[str, Any], factor: float
) -> None:
    """Finite numbers far beyond all others leave their client out; the model is of the size that the others give it."""
    rows = regression_rows({"ant": 40, "bee": 30, "cat": 20})
    job = make_job(method, cohort="min_clients = 2", **settings)
    honest = bench(rows, tmp_path).run(job)
    outcome = bench(rows, tmp_path, tamper={("cat", step): _scaled(factor)}).run(job)
    failed = [e for e in outcome.journal.events if e.kind is EventKind.CLIENT_FAILED]
    assert {e.client for e in failed} == {"cat"}
    assert "check this client's data" in failed[0].message
    assert np.linalg.norm(outcome.weights) < 10 * np.linalg.norm(honest.weights)
    assert outcome.metrics[-1].pooled["global"]["mse"] < 3


@pytest.mark.parametrize(("rate", "rounds"), [(1e30, 3), (1e300, 2), (1e3, 8)])
def test_a_learning_rate_that_overflows_ends_diverged(tmp_path: Path, rate: float, rounds: int) -> None:
    """A job that moves out of the range of numbers ends DIVERGED, with the key to lower."""
    job = make_job("fedavg", learning_rate=rate, rounds=rounds, local_steps=2)
    with pytest.raises(DivergedError, match=r"lower method\.learning_rate"):
        bench(regression_rows({"ant": 40, "bee": 30, "cat": 20}), tmp_path).run(job)
