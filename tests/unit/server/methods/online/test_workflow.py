"""Online jobs in one process: learning, baselines, budget, crashes of either side, clients that come and go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kernfed.errors import ConfigError, DivergedError, JobError
from kernfed.federation.events import EventKind
from kernfed.federation.in_process import InProcessExchange
from kernfed.federation.messages.data import LearningTask
from kernfed.methods.online.dictionary import predictions
from kernfed.methods.online.messages import OnlineStep, OnlineStepRequest, SharedStep
from kernfed.methods.online.own_model import own_features
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.online.state import ClientState
from kernfed_client.models.kept_models import load_kept_model
from kernfed_client.steps.registry import STEPS
from kernfed_server.jobs.journal import MemoryJournal
from kernfed_server.methods.online.rounds import METRICS_WITHOUT
from kernfed_testing.methods.online_clients import (
    SMALL,
    ComingAndGoing,
    StopError,
    StoppingJournal,
    StreamClients,
    clients,
    finding,
    stream_job,
    stream_rows,
)
from kernfed_testing.methods.online_parameters import predicted, read_parameters


def kept_state(job: LocalJob) -> ClientState:
    """The state that a client keeps of its streams."""
    found: Any = job.memo("online client", lambda: None)
    state: ClientState = found.state
    return state


def states(made: StreamClients) -> dict[str, Any]:
    """What each client holds at the end: how far it read, its tallies, its weights."""
    found = {}
    for name, job in made.jobs.items():
        state = kept_state(job)
        found[name] = (dict(state.position), state.learner.tally, state.learner.weights().tobytes())
    return found


def test_every_row_is_predicted_once_and_learned_once(tmp_path: Path) -> None:
    """A job without a number of rounds ends with the streams, having counted each row of each client once."""
    made = clients(tmp_path)
    model, journal = made.run(stream_job(**SMALL))
    found = finding(journal)
    assert {name: c["rows"] for name, c in found["clients"].items()} == {"c0": 40, "c1": 40, "c2": 40}
    assert model.round_num == 40
    assert all(c["regret"] <= c["regret_bound"] for c in found["clients"].values())


def test_learning_helps(tmp_path: Path) -> None:
    """The error of later predictions is far below that of the mean of the targets."""
    made = clients(tmp_path, num_rows=400)
    _, journal = made.run(stream_job(**{**SMALL, "metrics_every": 100}))
    recent = [
        e.metrics.pooled["recent"]["mse"]
        for e in journal.events
        if e.kind is EventKind.ROUND_CLOSED and e.metrics is not None and "recent" in e.metrics.pooled
    ]
    variance = np.var(np.concatenate([y for _, y in made.rows.values()]))
    assert recent[-1] < 0.15 * variance
    assert recent[-1] < recent[0]


@pytest.mark.parametrize("method", ["ofskl", "ofmkl-avg", "vm-kofl", "em-kofl", "perfedavg"])
def test_baselines_run_on_the_same_streams(tmp_path: Path, method: str) -> None:
    """Each baseline learns all rows and beats a prediction of zero."""
    settings: dict[str, Any] = {"metrics_every": 20}
    if method in ("ofmkl-avg", "vm-kofl", "em-kofl"):
        settings |= {"num_kernels": 5, "num_frequencies": 8}
    made = clients(tmp_path)
    _, journal = made.run(stream_job(method, **settings))
    found = finding(journal)
    assert all(c["rows"] == 40 for c in found["clients"].values())
    zero = {name: float(np.square(y).mean()) for name, (_, y) in made.rows.items()}
    assert all(c["mse"] < zero[name] for name, c in found["clients"].items())
    told = [e.message for e in journal.events if "streams have ended, after 120 rows" in e.message]
    assert [m for m in told if m.endswith("no bound on the regret is known")]


class CountingExchange(InProcessExchange):
    """Notes how many parameters each client was sent per round."""

    def __init__(self, made: StreamClients) -> None:
        super().__init__(STEPS, made.jobs)
        self.sent: list[dict[str, int]] = []
        self.replies: list[OnlineStep] = []

    async def ask(self, call: Any) -> Any:
        found = await super().ask(call)
        if isinstance(call.request, OnlineStepRequest):
            self.sent.append({c: len(call.request_of(c).kernels) for c in call.clients})
            self.replies += [r for r in found.values() if isinstance(r, OnlineStep)]
        return found


def test_only_kernels_that_moved_travel(tmp_path: Path) -> None:
    """The first request brings all kernels; a later one those that some client sent in the round before."""
    made = clients(tmp_path)
    exchange = CountingExchange(made)
    made.run(stream_job(**SMALL), exchange=exchange)
    assert exchange.sent[0] == {"c0": 11, "c1": 11, "c2": 11}
    assert all(0 < n <= 11 for sent in exchange.sent[1:] for n in sent.values())
    assert np.mean([n for sent in exchange.sent[1:] for n in sent.values()]) < 9.5
    assert all(len(reply.kernels) <= 4 for reply in exchange.replies)


@pytest.mark.parametrize(("unit", "budget"), [("parameters", 200), ("bytes", 1500)])
def test_answers_keep_within_the_budget(tmp_path: Path, unit: str, budget: int) -> None:
    """M and D are chosen so that an answer stays below the budget, and what was sent is reported."""
    made = clients(tmp_path)
    exchange = CountingExchange(made)
    _, journal = made.run(stream_job(num_kernels=11, budget=budget, budget_unit=unit), exchange=exchange)
    found = finding(journal)
    assert found["kernels_per_round"] == 6
    largest = max(reply.gradient.size for reply in exchange.replies)
    used = largest if unit == "parameters" else 8 * largest + 6
    assert 0.7 * budget < used <= budget
    assert found["bytes_up"] <= 8 * largest + 6


def test_a_policy_that_asks_for_more_rows_gets_them(tmp_path: Path) -> None:
    """With min_rows = 8 every answer stands for 8 rows, and too few rows at the end are not told of."""
    made = clients(tmp_path, num_rows=43, min_rows=8)
    exchange = CountingExchange(made)
    _, journal = made.run(stream_job(**SMALL), exchange=exchange)
    assert {reply.num_samples for reply in exchange.replies} == {8, 0}
    assert all(c["rows"] == 40 for c in finding(journal)["clients"].values())
    assert any("min_rows" in e.message for e in journal.events if e.kind is EventKind.NOTE)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, MemoryJournal, Any]:
    """Model, journal and clients' states of a job that explores, and that nothing disturbs."""
    made = clients(tmp_path_factory.mktemp("calm"))
    model, journal = made.run(stream_job(**SMALL, exploration=0.5))
    return model, journal, states(made)


@pytest.mark.parametrize("fall_back", [1, 2], ids=["lost the open round", "lost a closed round too"])
@pytest.mark.parametrize("killed", [(), ("c1",), ("c0", "c1", "c2")], ids=["", "one client", "all clients"])
def test_a_crash_changes_no_bit(
    tmp_path: Path, calm: tuple[Any, MemoryJournal, Any], fall_back: int, killed: tuple[str, ...]
) -> None:
    """Coordinator and clients are killed in mid-stream: the model and every client's state are as without it."""
    job = stream_job(**SMALL, exploration=0.5)
    want, _, of_clients = calm
    made = clients(tmp_path)
    journal = StoppingJournal(stop_at=17)
    with pytest.raises(StopError):
        made.run(job, journal=journal)
    for name in killed:
        made.restart(name)
    model, _ = made.run(job, resumed=journal.kept[17 - fall_back])
    assert model.theta.tobytes() == want.theta.tobytes()
    assert states(made) == of_clients


def test_the_bytes_of_an_answer_outlast_a_restart(tmp_path: Path, calm: tuple[Any, MemoryJournal, Any]) -> None:
    """A coordinator that starts again goes on counting, and does not count from there on alone."""
    job = stream_job(**SMALL, exploration=0.5)
    made = clients(tmp_path)
    journal = StoppingJournal(stop_at=17)
    with pytest.raises(StopError):
        made.run(job, journal=journal)
    _, again = made.run(job, resumed=journal.kept[16])
    for way in ("bytes_up", "bytes_down"):
        assert finding(again)[way] == finding(calm[1])[way] > 0


def test_who_is_away_when_all_are_measured_is_named(tmp_path: Path) -> None:
    """Metrics of some of the clients say so, once; shares of some of them are not told as those of all."""
    made = clients(tmp_path)
    exchange = ComingAndGoing(made, {"c1": range(5, 1000)})
    _, journal = made.run(stream_job(**SMALL, rounds=20, cohort="min_fraction = 0.3"), exchange=exchange)
    notes = [e.message for e in journal.events if e.kind is EventKind.NOTE]
    assert [note for note in notes if METRICS_WITHOUT in note] == [f"c1 {METRICS_WITHOUT}"]


def test_a_run_that_finds_nothing_left_names_the_round_that_it_ended_in(tmp_path: Path) -> None:
    """The coordinator died between the last round and the end: the model is that of this round."""
    made, journal = clients(tmp_path), MemoryJournal()
    made.run(stream_job(**SMALL), journal=journal)
    model, _ = made.run(stream_job(**SMALL), resumed=journal.last)
    assert journal.last is not None
    assert model.round_num == journal.last.round_num >= 40


def test_clients_that_were_away_catch_up(tmp_path: Path) -> None:
    """Who is away is not waited for; who is back gets all that moved since, and goes on at its own row."""
    made = clients(tmp_path)
    exchange = ComingAndGoing(made, {"c1": range(5, 15), "c2": range(10, 12)})
    model, journal = made.run(stream_job(**SMALL, cohort="min_fraction = 0.3"), exchange=exchange)
    assert {name: c["rows"] for name, c in finding(journal)["clients"].items()} == {"c0": 40, "c1": 40, "c2": 40}
    assert model.round_num == 50


def test_the_personal_model_predicts(tmp_path: Path) -> None:
    """What a client keeps predicts rows near their targets; the coordinator's parameters can be read back."""
    made = clients(tmp_path, num_rows=300)
    model, _ = made.run(stream_job(**SMALL, experts="kernels"))
    x, y = stream_rows(100, seed=9)
    own = load_kept_model(tmp_path / "c0" / "model")
    scores = own.predict_scores(pd.DataFrame(x, columns=["x0", "x1"]))[:, 0]
    assert np.square(scores - y).mean() < 0.2 * y.var()
    model.save(tmp_path / "left")
    read = read_parameters(tmp_path / "left")
    np.testing.assert_array_equal(read.theta, model.theta)
    state = kept_state(made.jobs["c0"])
    # The coordinator's parameters have moved once more than those that the client was sent last.
    np.testing.assert_allclose(predicted(read, x, state.learner.weights()), scores, rtol=0, atol=1e-3)
    lines = (tmp_path / "c0" / "online" / "weights.csv").read_text().splitlines()
    assert len(lines) == 1 + 30
    assert abs(sum(float(w) for w in lines[-1].split(",")[3:]) - 1.0) < 1e-4


def test_a_client_sees_whether_taking_part_pays(tmp_path: Path) -> None:
    """What it reaches alone is measured beside its model, which is not far behind; common parameters are as before."""
    made = clients(tmp_path / "own", num_rows=120)
    model, journal = made.run(stream_job(**SMALL))
    plain, _ = clients(tmp_path / "plain", num_rows=120).run(stream_job(**SMALL, experts="kernels"))
    np.testing.assert_array_equal(model.theta, plain.theta)
    last = [e for e in journal.events if e.kind is EventKind.ROUND_CLOSED and e.metrics and e.metrics.pooled][-1]
    assert last.metrics is not None
    assert last.metrics.pooled["personal"]["mse"] < 1.15 * last.metrics.pooled["local"]["mse"]
    assert set(last.metrics.clients["c0"]) == {"personal", "local", "recent"}


def test_the_kept_model_is_that_which_predicts(tmp_path: Path) -> None:
    """With all experts, what a client keeps predicts a row as its learner does."""
    made = clients(tmp_path, num_rows=60)
    made.run(stream_job(**SMALL, target_range=[0.0, 1.0], row_norm=1.0, data="standardise = false"))
    x, _ = stream_rows(5, seed=9)
    scores = load_kept_model(tmp_path / "c0" / "model").predict_scores(pd.DataFrame(x, columns=["x0", "x1"]))[:, 0]
    client: Any = made.jobs["c0"].memo("online client", lambda: None)
    for row, score in zip(x, scores, strict=True):
        f = predictions(client._features.of_row(row), client.state.theta)
        own = own_features(client.own_features.of_row(row))
        assert score == pytest.approx(client.state.learner.predict(client.rules, f, None, own), abs=1e-9)


def test_the_papers_rates(tmp_path: Path) -> None:
    """The fixed rates are 1/sqrt(rounds) by the length of the streams, and the regret keeps below Theorem 1's bound."""
    made = clients(tmp_path)
    wide: dict[str, Any] = {
        "lengthscales": [1.0, 3.0, 10.0],
        "num_frequencies": 8,
    }  # narrow kernels leave [0, 1] between rows
    _, journal = made.run(stream_job(**wide, rates="paper"))
    want = np.log(3) * np.sqrt(40) + 40 / np.sqrt(40) / 2
    for c in finding(journal)["clients"].values():
        assert c["regret_bound"] == pytest.approx(want)
        assert c["regret"] <= c["regret_bound"]


def notes(journal: MemoryJournal) -> list[str]:
    return [e.message for e in journal.events if e.kind is EventKind.NOTE]


def measured_rounds(journal: MemoryJournal) -> list[tuple[int, float]]:
    """Rounds with metrics, and the pooled error there."""
    closed = [e for e in journal.events if e.kind is EventKind.ROUND_CLOSED and e.metrics and e.metrics.pooled]
    return [(e.round_num, e.metrics.pooled["personal"]["mse"]) for e in closed if e.metrics]


@pytest.mark.parametrize(("num_rows", "min_rows", "rounds"), [(8, 1, [8]), (25, 1, [10, 20, 25]), (25, 10, [3])])
def test_the_end_of_a_stream_is_measured(tmp_path: Path, num_rows: int, min_rows: int, rounds: list[int]) -> None:
    """Whatever metrics_every is, and where rows are left over that are fewer than a policy wants."""
    made = clients(tmp_path, num_rows=num_rows, min_rows=min_rows)
    _, journal = made.run(stream_job(**SMALL))
    measured = measured_rounds(journal)
    assert [round_num for round_num, _ in measured] == rounds
    of_clients = [c["mse"] for c in finding(journal)["clients"].values()]
    assert measured[-1][1] == pytest.approx(np.mean(of_clients))


def test_absurd_targets_of_one_client_leave_the_others_alone(tmp_path: Path) -> None:
    """One target of 1e60 and one of 9999 are counted, and no model is much worse for it."""
    clean, spoiled = clients(tmp_path / "clean"), clients(tmp_path / "spoiled")
    for target, at in ((1e60, 10), (9999.0, 11)):
        spoiled.rows["c1"][1][at] = target
    spoiled.restart("c1")
    job = stream_job(**SMALL, target_range=[0.0, 1.0], row_norm=1.5)
    before, after = (finding(made.run(job)[1])["clients"] for made in (clean, spoiled))
    assert [c["rows"] for c in after.values()] == [40, 38, 40]
    assert all(after[name]["mse"] < 1.3 * before[name]["mse"] for name in before)


@pytest.mark.parametrize("value", [1e3, 1e9])
def test_an_absurd_value_of_a_column_moves_no_scale(tmp_path: Path, value: float) -> None:
    """The row is left out and counted, and all models are as good as without it."""
    clean, spoiled = clients(tmp_path / "clean"), clients(tmp_path / "spoiled")
    spoiled.rows["c1"][0][10, 0] = value
    spoiled.restart("c1")
    job = stream_job(**SMALL)
    before, after = (finding(made.run(job)[1])["clients"] for made in (clean, spoiled))
    assert [c["rows"] for c in after.values()] == [40, 39, 40]
    assert all(after[name]["mse"] < 1.1 * before[name]["mse"] for name in before)


class Lying(InProcessExchange):
    """One client sends gradients of a size that no rows have."""

    async def ask(self, call: Any) -> Any:
        found = dict(await super().ask(call))
        reply = found.get("c1")
        if isinstance(reply, OnlineStep | SharedStep):
            found["c1"] = replace(reply, gradient=1e9 * np.ones_like(reply.gradient))
        return found


@pytest.mark.parametrize("method", ["online", "ofskl", "ofmkl-avg", "vm-kofl"])
def test_gradients_that_cannot_be_do_not_count(tmp_path: Path, method: str) -> None:
    """They are finite; their client is named once, and the parameters are those of the others."""
    settings: dict[str, Any] = {"num_kernels": 5, "num_frequencies": 4} if method != "ofskl" else {}
    job = stream_job(method, **settings, target_range=[0.0, 1.0], row_norm=1.0, data="standardise = false")
    made, rest = clients(tmp_path / "lied", num_rows=10), clients(tmp_path / "rest", num_rows=10)
    model, journal = made.run(job, exchange=Lying(STEPS, made.jobs))
    assert len([text for text in notes(journal) if text.startswith("c1 sent gradients that its rows cannot")]) == 1
    del rest.jobs["c1"]
    want, _ = rest.run(job)
    np.testing.assert_array_equal(model.theta, want.theta)


def test_rows_that_were_left_out_are_noted(tmp_path: Path) -> None:
    """The note names the client, the number of rows and what to do."""
    made = clients(tmp_path)
    made.rows["c1"][1][10] = 9999.0
    made.restart("c1")
    _, journal = made.run(stream_job(**SMALL, target_range=[0.0, 1.0]))
    assert any(text.startswith("c1 left out 1 row of its stream so far: they lie") for text in notes(journal))


def test_a_range_that_one_client_alone_stretches_does_not_count(tmp_path: Path) -> None:
    """With ranges from the training rows a code of 9999 at one client is named, and stays out of the range."""
    made = clients(tmp_path)
    made.rows["c1"][1][10] = 9999.0
    made.restart("c1")
    _, journal = made.run(stream_job(**SMALL))
    assert any(text.startswith("c1: training targets from") for text in notes(journal))
    assert all(c["mse"] < 0.2 for c in finding(journal)["clients"].values())


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("em-kofl", {"learning_rate": 1e6, "num_kernels": 5, "num_frequencies": 8}),
        ("perfedavg", {"learning_rate": 1e6}),
        ("perfedavg", {"adaptation_rate": 1e6}),
    ],
)
def test_rates_that_overflow_end_as_diverged(tmp_path: Path, method: str, settings: dict[str, Any]) -> None:
    """The error names the keys, and no number gets as far as to overflow."""
    with pytest.raises(DivergedError, match=r"method\.learning_rate.*method\.adaptation_rate"):
        clients(tmp_path).run(stream_job(method, **settings))


def test_what_a_stream_cannot_be_used_for_is_said() -> None:
    """A budget that is too small, a feature map, and a task with many classes are refused with a remedy."""
    with pytest.raises(ConfigError, match="too small for 26 kernels"):
        stream_job(budget=40, share="gradients")
    with pytest.raises(ConfigError, match="too small for statistics of 1 rows"):
        stream_job(budget=4)
    with pytest.raises(ConfigError, match="raise it or lower"):
        stream_job(kernels_per_round=51, num_frequencies=100)
    with pytest.raises(ConfigError, match=r"remove the \[features\] section"):
        stream_job(data="[features]\nnum_frequencies = 3")


def test_many_classes_are_refused(tmp_path: Path) -> None:
    """A job with a class column of three is told to ask for a number or one of two classes."""
    job = stream_job()
    data = job.data.model_copy(update={"task": LearningTask.CLASSIFICATION}) if job.data else None
    with pytest.raises((ConfigError, JobError)):
        clients(tmp_path).run(job.model_copy(update={"data": data}))


def test_float32_on_the_wire(tmp_path: Path) -> None:
    """A job in float32 learns as well, to about its precision."""
    job = stream_job(**SMALL)
    wide, _ = clients(tmp_path / "wide").run(job)
    narrow, _ = clients(tmp_path / "narrow").run(job.model_copy(update={"precision": "float32"}))
    np.testing.assert_allclose(narrow.theta, wide.theta, atol=1e-4)
