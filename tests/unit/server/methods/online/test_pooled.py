"""Online jobs on pooled statistics, in one process: learning, policies, hostile clients, crashes, jobs of before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kernfed.errors import ConfigError
from kernfed.federation.events import EventKind
from kernfed.federation.in_process import InProcessExchange
from kernfed.methods.online.own_model import OwnModel, own_features
from kernfed.methods.online.pooled_messages import PooledStep, PooledStepRequest
from kernfed.methods.online.pooled_ridge import CommonRidges
from kernfed_client.models.kept_models import load_kept_model
from kernfed_client.steps.registry import STEPS
from kernfed_server.jobs.journal import Checkpoint, MemoryJournal
from kernfed_server.jobs.start.agreement import Agreement
from kernfed_server.jobs.state import State, json_array, json_of
from kernfed_testing.methods.online_clients import (
    StopError,
    StoppingJournal,
    StreamClients,
    clients,
    finding,
    stream_job,
    stream_rows,
)
from kernfed_testing.methods.online_parameters import predicted, read_parameters

SETTINGS: dict[str, Any] = {"num_frequencies": 6, "metrics_every": 10}


def hard_rows(num_rows: int, seed: int) -> tuple[Any, Any]:
    """Rows of a function that takes more of them than one client has."""
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, size=(num_rows, 2))
    return x, 0.5 + 0.4 * np.sin(5.0 * x[:, 0]) * np.cos(4.0 * x[:, 1])


def notes(journal: MemoryJournal) -> list[str]:
    return [e.message for e in journal.events if e.kind is EventKind.NOTE]


def pooled_errors(journal: MemoryJournal) -> dict[str, float]:
    """Mean squared error of each model at the end."""
    closed = [e.metrics for e in journal.events if e.kind is EventKind.ROUND_CLOSED and e.metrics and e.metrics.pooled]
    return {model: scores["mse"] for model, scores in closed[-1].pooled.items()}


class Listening(InProcessExchange):
    """Keeps what clients answered, and may change it."""

    def __init__(self, made: StreamClients, changed: Any = None) -> None:
        super().__init__(STEPS, made.jobs)
        self.replies: list[PooledStep] = []
        self.changed = changed

    async def ask(self, call: Any) -> Any:
        found = dict(await super().ask(call))
        if isinstance(call.request, PooledStepRequest):
            if self.changed is not None:
                found = {c: self.changed(c, reply) for c, reply in found.items()}
            self.replies += [r for r in found.values() if isinstance(r, PooledStep)]
        return found


def test_statistics_are_shared_by_default(tmp_path: Path) -> None:
    """Every row is counted once, taking part pays with ten rows a round, and nobody is behind what it reaches alone."""
    made = StreamClients(tmp_path, {f"c{i}": hard_rows(80, i) for i in range(6)}, min_rows=10)
    exchange = Listening(made)
    model, journal = made.run(stream_job(metrics_every=1000), exchange=exchange)
    found = finding(journal)
    assert found["share"] == "statistics"
    assert {name: c["rows"] for name, c in found["clients"].items()} == dict.fromkeys(made.rows, 80)
    assert all(c["regret"] <= c["regret_bound"] for c in found["clients"].values())
    errors = pooled_errors(journal)
    assert errors["personal"] < 0.95 * errors["local"]
    assert {reply.factor.shape for reply in exchange.replies if reply.num_samples} == {(3, 10 * 82 - 45)}
    x, y = hard_rows(200, seed=9)
    assert np.square(predicted(model, x) - y).mean() < 0.5 * y.var()
    model.save(tmp_path / "left")
    np.testing.assert_array_equal(predicted(read_parameters(tmp_path / "left"), x), predicted(model, x))


def test_gradients_give_way_and_come_back(tmp_path: Path) -> None:
    """A key of gradients, a policy that forbids statistics, and share = "gradients" each mean gradients."""
    for settings in ({"share": "gradients"}, {"num_kernels": 11}, {"experts": "kernels"}, {"rates": "paper"}):
        job = stream_job(**settings)
        assert job.method.value_in_effect("share") == "gradients"
    made = clients(tmp_path, num_rows=5, cautious=["c1"])
    _, journal = made.run(stream_job())
    assert finding(journal)["share"] == "gradients"
    assert any('lacks "sufficient_statistic" or "metric" at c1' in text for text in notes(journal))
    with pytest.raises(ConfigError, match=r"c1: policy\.allow lacks"):
        clients(tmp_path / "b", num_rows=5, cautious=["c1"]).run(stream_job(share="statistics"))
    with pytest.raises(ConfigError, match='num_kernels: belongs to no lengthscales, share = "gradients"'):
        stream_job(share="statistics", num_kernels=11)


def test_an_answer_keeps_within_a_budget(tmp_path: Path) -> None:
    """Fewer frequencies are chosen for a smaller budget, and one that is too small is refused with a remedy."""
    made = clients(tmp_path, min_rows=10)
    exchange = Listening(made)
    _, journal = made.run(stream_job(budget=1000), exchange=exchange)
    largest = max(reply.factor.size for reply in exchange.replies)
    assert 800 < largest <= 1000
    assert finding(journal)["num_frequencies"] < 40
    with pytest.raises(ConfigError, match=r'too small for statistics of 10 rows.*share = "gradients"'):
        clients(tmp_path / "b", min_rows=10).run(stream_job(budget=20))


def doubled(client: str, reply: PooledStep) -> PooledStep:
    return replace(reply, factor=2.0 * reply.factor) if client == "c1" else reply


def grown(client: str, reply: PooledStep) -> PooledStep:
    return replace(reply, factor=1e60 * reply.factor) if client == "c1" else reply


def shorter(client: str, reply: PooledStep) -> PooledStep:
    return replace(reply, factor=reply.factor[:, :-1]) if client == "c1" else reply


def far_targets(client: str, reply: PooledStep) -> PooledStep:
    """With one row the target is the last number of each kernel."""
    factor = reply.factor.copy()
    factor[:, -1] = 1e6
    return replace(reply, factor=factor) if client == "c1" else reply


@pytest.mark.parametrize("lie", [doubled, grown, shorter, far_targets])
def test_statistics_that_cannot_be_do_not_count(tmp_path: Path, lie: Any) -> None:
    """A client that sends finite but impossible numbers is named once; the parameters are those of the others."""
    job = stream_job(**SETTINGS, target_range=[0.0, 1.0], row_norm=1.0, data="standardise = false")
    made = clients(tmp_path / "lied")
    model, journal = made.run(job, exchange=Listening(made, lie))
    named = [text for text in notes(journal) if text.startswith("c1 sent statistics that its rows cannot have")]
    assert len(named) == 1
    rest = clients(tmp_path / "rest")
    del rest.jobs["c1"]
    want, _ = rest.run(job)
    np.testing.assert_array_equal(model.theta, want.theta)


def test_a_client_counts_no_more_rows_than_it_can_have_taken(tmp_path: Path) -> None:
    """Statistics of a million rows from a client of forty do not count, and it is named."""

    def boast(client: str, reply: PooledStep) -> PooledStep:
        factor = 100.0 * np.random.default_rng(0).normal(size=(3, 104))
        return replace(reply, num_samples=10**6, factor=factor) if client == "c1" and reply.num_samples else reply

    job = stream_job(**SETTINGS, target_range=[0.0, 1.0], row_norm=1.0, data="standardise = false")
    made = clients(tmp_path / "boasted")
    model, journal = made.run(job, exchange=Listening(made, boast))
    named = [text for text in notes(journal) if text.startswith("c1 states 1,000,000 rows of one round")]
    assert len(named) == 1
    rest = clients(tmp_path / "rest")
    del rest.jobs["c1"]
    want, _ = rest.run(job)
    np.testing.assert_array_equal(model.theta, want.theta)
    assert finding(journal)["rows"] == 80


@pytest.mark.parametrize("fall_back", [1, 2], ids=["lost the open round", "lost a closed round too"])
@pytest.mark.parametrize("killed", [(), ("c0", "c1", "c2")], ids=["", "all clients"])
def test_a_crash_changes_no_bit(tmp_path: Path, fall_back: int, killed: tuple[str, ...]) -> None:
    """Coordinator and clients are killed in mid-stream: the model and every prediction are as without it."""
    job = stream_job(**SETTINGS)
    calm = clients(tmp_path / "calm", num_rows=20)
    want, calm_journal = calm.run(job)
    made = clients(tmp_path / "killed", num_rows=20)
    journal = StoppingJournal(stop_at=9)
    with pytest.raises(StopError):
        made.run(job, journal=journal)
    for name in killed:
        made.restart(name)
    model, after = made.run(job, resumed=journal.kept[9 - fall_back])
    assert model.theta.tobytes() == want.theta.tobytes()
    assert finding(after)["clients"] == finding(calm_journal)["clients"]


def test_a_job_of_before_goes_on_with_gradients(tmp_path: Path) -> None:
    """A checkpoint that does not say what is shared is of gradients, whatever is the default now."""
    made = clients(tmp_path, num_rows=20)
    journal = StoppingJournal(stop_at=9)
    with pytest.raises(StopError):
        made.run(stream_job(share="gradients"), journal=journal)
    kept = State(journal.kept[8].state)
    agreement = Agreement.of_checkpoint(kept)
    assert agreement is not None
    opened = json_of(kept["run.agreed.streams"])
    assert opened.pop("pooled_frequencies") == 0
    facts = {"classes": [], "backbone": "", "num_rows": dict(agreement.num_rows), **opened}
    former = {name: array for name, array in kept.items() if not name.startswith(("run.agreement.", "run.agreed."))}
    former |= {
        "agreed.mean": agreement.mean,
        "agreed.deviation": agreement.deviation,
        "agreed.facts": json_array(facts),
    }
    _, after = made.run(stream_job(), resumed=Checkpoint(8, former))
    assert finding(after)["share"] == "gradients"
    assert {c["rows"] for c in finding(after)["clients"].values()} == {20}


@pytest.mark.parametrize(
    ("share", "experts", "gated", "bounded"),
    [
        ("statistics", "own", False, True),
        ("statistics", "evidence", False, False),
        ("statistics", "gated", True, False),
        ("gradients", "own", True, False),
    ],
)
def test_a_job_says_how_clients_go_over_to_the_others(
    tmp_path: Path, share: str, experts: str, gated: bool, bounded: bool
) -> None:
    """With statistics clients follow the rule that the key names, and tell what it asks; with gradients `gated`."""
    made = clients(tmp_path, num_rows=20)
    listening = Listening(made)
    made.run(stream_job(num_frequencies=4, share=share, experts=experts), exchange=listening)
    client: Any = made.jobs["c0"].memo("online client", lambda: None)
    own = client.state.learner.own
    assert own.gated is gated
    assert (own.leeway is not None) is bounded
    told = [r.evidence for r in listening.replies]
    assert (len(set(told)) > 1) is (share == "statistics" and not bounded)


def test_rules_of_statistics_are_refused_with_gradients() -> None:
    """A rule that gradients follow anyway, or cannot follow, is refused in words."""
    with pytest.raises(ConfigError, match="is what gradients, which share chooses, do anyway"):
        stream_job(share="gradients", experts="gated")
    with pytest.raises(ConfigError, match='experts = "evidence" needs what num_kernels rules out; leave one out'):
        stream_job(num_kernels=11, experts="evidence")


def test_the_kept_model_is_that_which_predicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a client keeps predicts a row as its learner does, however far the others count."""
    for share in (0.0, 0.4, 1.0):
        monkeypatch.setattr(OwnModel, "share_of", lambda *_, share=share: share)
        made = clients(tmp_path / str(share), num_rows=20)
        made.run(stream_job(**SETTINGS, target_range=[0.0, 1.0], row_norm=1.0, data="standardise = false"))
        x, _ = stream_rows(5, seed=9)
        kept = load_kept_model(made.folder / "c0" / "model")
        scores = kept.predict_scores(pd.DataFrame(x, columns=["x0", "x1"]))[:, 0]
        client: Any = made.jobs["c0"].memo("online client", lambda: None)
        state = client.state
        assert state.learner.own.share == share
        for row, score in zip(x, scores, strict=True):
            z = own_features(client.own_features.of_row(row))
            f = CommonRidges(state.theta, np.ones(2)).predict(z)
            assert score == pytest.approx(state.learner.predict(client.rules, f, None, z), abs=1e-9)
        head = (made.folder / "c0" / "online" / "weights.csv").read_text().splitlines()[0]
        assert head.endswith("weight_2_keep_0.99")
