"""Tests of `kernfed_server.jobs.verdict`: a job's end says whether it arrived, how far it is, and where it loses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.federation.events import EventKind, RoundMetrics
from kernfed.federation.messages.data import LearningTask
from kernfed.methods.ending import EndFinding
from kernfed.methods.registry import METHODS
from kernfed_server.jobs.arrival import Arrival, settling
from kernfed_server.jobs.verdict import ALONE, comparison, comparison_words, diverged, end_of, worse_than_mean
from kernfed_simulation.federation import Rows
from kernfed_simulation.run import simulate
from kernfed_testing.in_process import Outcome, bench, make_job, regression_rows
from kernfed_testing.methods.variants import job_of, sites


def end(outcome: Outcome) -> EndFinding:
    """The finding of a job's end."""
    found = [e.finding for e in outcome.journal.events if e.kind is EventKind.FINDING and e.message == EndFinding.name]
    assert len(found) == 1
    assert found[0] is not None
    finding = EndFinding.from_json(found[0])
    assert [n for n in outcome.notes if n.startswith("end: ")] == [f"end: {finding.words}"]
    return finding


def test_clients_that_lose_are_named() -> None:
    """Those whose own model is better by a hundredth and more; nothing is said where nothing was measured."""
    pairs = {"ant": (0.4, 0.15), "bee": (0.1, 0.2), "cat": (0.2, 0.199)}
    clients = {c: {"global": {"mse": a}, "local": {"mse": b}} for c, (a, b) in pairs.items()}
    found = comparison(RoundMetrics(clients=clients), LearningTask.REGRESSION, ALONE[0])
    assert found is not None
    assert (found.num_clients, found.num_better, [w.client for w in found.worse]) == (3, 1, ["ant"])
    assert "worse at 1 of 3 clients: ant (0.4 against 0.15)" in comparison_words(found)
    assert comparison(RoundMetrics(), LearningTask.REGRESSION, ALONE[0]) is None
    same = {"ant": {"global": {"mse": 1.0}, "local": {"mse": 1.0}}}
    assert comparison(RoundMetrics(clients=same), LearningTask.REGRESSION, ALONE[0]) is None
    assert end_of(RoundMetrics(), None, LearningTask.REGRESSION) is None


def test_a_distance_that_is_no_number_is_left_out() -> None:
    """Findings are JSON, which knows no infinity."""
    found = end_of(RoundMetrics(), Arrival("far", False, float("inf"), "way"), LearningTask.REGRESSION)
    assert found is not None
    assert (found.arrived, found.distance, found.words) == (False, None, "not arrived: far")


def test_a_job_says_that_the_global_model_loses(tmp_path: Path) -> None:
    """Two clients with opposite slopes: each alone is right, the pooled model is not."""
    random = np.random.default_rng(5)

    def made(num: int, sign: float) -> tuple[Any, Any]:
        x = random.normal(size=(num, 3))
        return x, sign * x.sum(axis=1)

    rows = {name: Rows(*made(40, s), *made(20, s)) for name, s in (("ant", 1.0), ("bee", -1.0))}
    for name, model in (("newton", "global"), ("personalise", "personal")):
        settings: dict[str, Any] = {"weights": "paper"} if name == "personalise" else {}
        outcome = bench(rows, tmp_path / name).run(make_job(name, features='kernel = "linear"', **settings))
        found = {c.model: c for c in end(outcome).comparisons if c.against == "local"}
        assert model in found
        if name == "newton":
            assert [w.client for w in found["global"].worse] == ["ant", "bee"]


def test_used_up_rounds_are_told(tmp_path: Path) -> None:
    """A job that stops before its tolerance says so, with how far it is; one that arrives does not."""
    rows = regression_rows({"ant": 15, "bee": 15, "cat": 15})
    for step in ("auto", "paper"):
        job = make_job("newton", frequencies=60, rounds=2, ridge=1e-2 if step == "auto" else 10.0, step=step)
        found = end(bench(rows, tmp_path / step).run(job))
        assert found.words.startswith("not arrived: all 2 rounds are used up"), step
        assert found.arrived is False
        assert found.distance is not None
    arrived = end(bench(rows, tmp_path / "arrived").run(make_job("newton", ridge=1.0, rounds=60)))
    assert arrived.arrived is True
    assert arrived.words.startswith("arrived: the relative distance to the pooled solution is at most")


ENDS: list[tuple[str, dict[str, Any], bool | None, str]] = [
    ("fedavg", {"rounds": 3}, False, "not arrived: all 3 rounds are used, and the last round moved the weights by"),
    ("fedprox", {"rounds": 3, "proximal": 1.0}, False, "not arrived: all 3 rounds are used, and the last round"),
    ("fedprox", {"rounds": 40, "ridge": 1.0}, False, "not arrived: the last round moved the weights by 0"),
    (
        "fedavg",
        {"rounds": 60, "ridge": 0.3, "local_steps": 1},
        True,
        "arrived: the relative distance to the pooled solution is at most",
    ),
    ("fedavg", {"rounds": 3, "batch_size": 8}, False, "not arrived: all 3 rounds are used, and the last round"),
    ("dkrr", {}, None, "one round, as the method has: the mean of the clients' own solutions"),
    ("local", {}, True, "arrived: each client has solved for the model of its own rows"),
    ("personalise", {}, True, "arrived: "),
    ("reweight", {"scope": "own"}, True, "arrived: the relative distance to the pooled solution is at most"),
]


@pytest.mark.parametrize(("name", "settings", "arrived", "words"), [told for told in ENDS if told[0] in METHODS])
def test_every_method_says_how_it_ended(
    name: str, settings: dict[str, Any], arrived: bool | None, words: str, tmp_path: Path
) -> None:
    """Whether it arrived by its own rule, and how far it is."""
    rows = regression_rows({"ant": 40, "bee": 40})
    found = end(bench(rows, tmp_path).run(make_job(name, frequencies=20, **settings)))
    assert found.arrived is arrived
    assert found.words.startswith(words)


def test_movements_by_rounding_and_by_chance() -> None:
    """Rounding is no movement; small movements of drawn rows are told, and claim nothing."""
    found = settling([1e-3, 3e-16, 9e-16], 5, whole=True)
    assert found.arrived is True
    assert found.words.endswith("which is rounding")
    found = settling([1e-3, 5e-4], 5, whole=False)
    assert found.arrived is None
    assert found.words.startswith("the last round moved the weights by 0.05 % of their size")
    assert settling([0.1, 5e-3], 5, whole=False).arrived is False


@pytest.mark.parametrize(("steps", "pooled"), [(1, True), (5, False)])
def test_fedavg_says_what_its_limit_is(tmp_path: Path, steps: int, pooled: bool) -> None:
    """With one step on all rows it is the pooled solution, with several that of averaged local models."""
    rows = regression_rows({"ant": 40, "bee": 40})
    found = end(bench(rows, tmp_path).run(make_job("fedavg", frequencies=20, rounds=4, local_steps=steps)))
    assert ("not the pooled solution" in found.words) is not pooled


def test_a_resumed_job_tells_the_end_of_its_last_round(tmp_path: Path) -> None:
    """A coordinator that dies behind the last round knows in its next life how the job ended."""
    rows = regression_rows({"ant": 40, "bee": 40})
    for name, settings in (("newton", {"ridge": 1.0}), ("fedavg", {"rounds": 4})):
        job = make_job(name, frequencies=20, **settings)
        whole = bench(rows, tmp_path / name).run(job)
        again = bench(rows, tmp_path / f"{name}-again").run(job, resumed=whole.journal.checkpoints[-1])
        assert end(again) == end(whole)
        middle = bench(rows, tmp_path / f"{name}-middle").run(job, resumed=whole.journal.checkpoints[-3])
        assert end(middle) == end(whole)


def test_a_diverged_run_shows_the_model_that_is_left(tmp_path: Path) -> None:
    """The metrics shown last are those of the model that is saved, not of the diverged one."""
    rows = regression_rows({f"c{i}": 15 for i in range(6)})
    job = make_job("newton", frequencies=100, ridge=1e-5, step="paper", rounds=20)
    done = simulate(job, bench(rows, tmp_path).jobs)
    assert done.error is not None
    assert done.error.reason == "DIVERGED"
    assert done.model is not None
    shown = done.final.clients["c0"]["global"]["mse"]
    of_model = np.square(done.model.predict(rows["c0"].x_test) - rows["c0"].y_test).mean()
    assert shown == pytest.approx(of_model, rel=1e-6)
    notes = [e.event.message for e in done.events if e.event.kind is EventKind.NOTE]
    assert "the metrics shown last are of what the job leaves, from before it diverged" in notes
    assert notes[-1].startswith(
        "end: not arrived: the run diverged, and the job leaves the last good model; the global"
    )


def test_a_model_worse_than_the_mean_of_the_targets_is_told() -> None:
    """An r² far below 0 is told with its model; one near 0 is what a model has that learned nothing."""
    assert "global model predicts worse" in worse_than_mean(RoundMetrics(pooled={"global": {"r2": -4e5}}))
    assert "(r² -0.5 " in worse_than_mean(RoundMetrics(pooled={"global": {"mse": 2.0}, "personal": {"r2": -0.5}}))
    assert "scores of 0 " in worse_than_mean(RoundMetrics(pooled={"global": {"mse": 3.0, "accuracy": 0.3}}))
    for pooled in ({}, {"global": {"r2": -0.05}}, {"local": {"r2": -9.0}}, {"global": {"accuracy": 0.2, "mse": 0.9}}):
        assert not worse_than_mean(RoundMetrics(pooled=pooled))


def test_a_run_diverged_whose_model_is_far_off_at_every_client() -> None:
    """One client with test rows of another kind makes no run diverge; one whose scores tell nothing does not count."""
    far, near = {"global": {"r2": -1e5, "mse": 9.0}}, {"global": {"r2": 0.5, "mse": 0.1}}
    assert diverged(RoundMetrics(far, {"ant": far, "bee": far, "cat": {"global": {"mse": 9.0}}, "dog": {}}))
    assert diverged(RoundMetrics({"personal": {"r2": -1e5}}, {"ant": {"personal": {"accuracy": 0.5, "mse": 200.0}}}))
    assert not diverged(RoundMetrics(far, {"ant": far, "bee": near}))
    assert not diverged(RoundMetrics(near, {"ant": far, "bee": far}))
    assert not diverged(RoundMetrics(far, {}))


@pytest.mark.skipif("fedsophia" not in METHODS, reason="no heads are installed")
def test_steps_that_lead_far_off_end_the_job_as_diverged(tmp_path: Path) -> None:
    """Steps that are cut to a length stay within the range of numbers; a model of no use is no success all the same."""
    rows = regression_rows({"ant": 40, "bee": 40})
    job = make_job("fedsophia", frequencies=20, loss="squared", rounds=2, learning_rate=1000.0)
    done = simulate(job, bench(rows, tmp_path).jobs)
    assert done.error is not None
    assert done.error.reason == "DIVERGED"
    assert "global model predicts worse than the mean of the targets" in str(done.error)
    assert "lower method.learning_rate" in str(done.error)


@pytest.mark.skipif("probe" not in METHODS, reason="it is not installed")
def test_a_probe_says_that_all_came_back(tmp_path: Path) -> None:
    """A method without data has an end too."""
    job, _ = job_of({"name": "probe", "rounds": 2, "payload_bytes": 80}, tmp_path)
    done = simulate(job, sites(tmp_path / "clients", refusing=False))
    notes = [e.event.message for e in done.events if e.event.kind is EventKind.NOTE]
    assert notes[-1] == "end: every number came back as it was sent, in each of 2 rounds"
