"""The default on a head: local rounds that keep rows apart, the ridge that these call for, Newton steps on all."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import ConfigError, JobError
from kernfed.federation.messages.base import Reply
from kernfed.methods.heads.messages import HeadOpened
from kernfed_simulation.federation import Rows
from kernfed_simulation.run import simulate
from kernfed_testing.in_process import bench, label_skewed_rows
from kernfed_testing.methods.head_jobs import BARE, CLASSES, clients, facts, head_job


def test_newton_steps_train_on_the_rows_kept_apart_too(tmp_path: Path) -> None:
    """The model is the minimum over all rows, under the ridge that the record names; then the job ends by itself."""
    rows = noisy_rows()
    settings: dict[str, Any] = {"columns": 40, "ridge": 1e-6, "validation_fraction": 0.3, "tolerance": 1e-6}
    job = head_job("newton", rounds=60, **settings, **BARE)
    done = bench(rows, tmp_path, CLASSES).run(job)
    assert len(done.metrics) < 60
    assert any(note.startswith("end: arrived: the pooled gradient is") for note in done.notes)
    ridge = facts(done)["ridge"]
    x, y = (np.concatenate([getattr(part, name) for part in rows.values()]) for name in ("x_train", "y_train"))
    scores = np.exp(x @ done.weights)
    residual = scores / scores.sum(axis=1, keepdims=True) - np.eye(3)[y]
    np.testing.assert_allclose(x.T @ residual / len(x) + ridge * done.weights, 0.0, atol=1e-6)


def test_local_rounds_come_first_and_end_when_they_gain_little(tmp_path: Path) -> None:
    """One upload each; a cut in them, or behind them, changes no bit; the first Newton round begins at the best."""
    job = head_job("newton", rounds=14)
    whole = clients(tmp_path).run(job)
    steps = [m.training["uploads"] for m in whole.metrics]
    num_local = sum("step_size" not in m.training for m in whole.metrics)
    assert 1 < num_local < 14
    assert steps[:num_local] == [float(i + 1) for i in range(num_local)]
    worth = [m.training["validation_loss"] for m in whole.metrics[:num_local]]
    assert all(after < 0.97 * before for before, after in itertools.pairwise(worth[:-1]))
    assert worth[-1] >= 0.97 * worth[-2]
    for stop in (num_local, num_local + 1, num_local + 2):
        rest = clients(tmp_path / str(stop)).run(job, resumed=whole.journal.before[stop])
        assert np.array_equal(rest.weights, whole.weights)


@pytest.mark.slow
def test_rows_kept_apart_call_for_the_ridge(tmp_path: Path) -> None:
    """Few rows in many columns without a ridge: the job raises it, says so, and predicts better than without."""
    rows = noisy_rows()
    settings: dict[str, Any] = {"rounds": 40, "columns": 40, "ridge": 1e-6, "validation_fraction": 0.3}
    jobs = [head_job(raise_ridge=raised, **settings) for raised in (True, False)]
    raised, kept = (bench(rows, tmp_path, CLASSES).run(job) for job in jobs)
    assert any(note.startswith("ridge ") and "in place of 1e-06" in note for note in raised.notes)
    assert not any(note.startswith("ridge ") for note in kept.notes)
    worth = [done.metrics[-1].pooled["global"]["log_loss"] for done in (raised, kept)]
    assert worth[0] < 0.5 * worth[1]
    num_local = sum("step_size" not in m.training for m in raised.metrics)
    for stop in (num_local + 1, num_local + 2, len(raised.metrics)):
        rest = bench(rows, tmp_path / str(stop), CLASSES).run(jobs[0], resumed=raised.journal.before[stop])
        assert np.array_equal(rest.weights, raised.weights)


def test_a_checkpoint_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    """It says so, and trains on nothing that it would read wrongly."""
    cut = clients(tmp_path).run(head_job("newton", rounds=4), stop_before=3)
    assert cut.journal.last is not None
    state = {name: array for name, array in cut.journal.last.state.items() if name != "phase"}
    with pytest.raises(JobError, match="earlier version of kernfed; submit the job again"):
        clients(tmp_path).run(head_job("newton", rounds=4), resumed=replace(cut.journal.last, state=state))


@pytest.mark.slow
def test_a_job_that_began_with_a_penalised_bias_goes_on_with_it(tmp_path: Path) -> None:
    """Its checkpoint says nothing of the bias: the model is, to the bit, the one of `penalise_bias = true`."""
    former, now = (head_job("newton", rounds=5, penalise_bias=b, ridge=0.1) for b in (True, False))
    whole = clients(tmp_path).run(former)
    cut = clients(tmp_path).run(former, stop_before=3)
    assert cut.journal.last is not None
    state = {name: array for name, array in cut.journal.last.state.items() if name != "free_bias"}
    rest = clients(tmp_path).run(now, resumed=replace(cut.journal.last, state=state))
    assert np.array_equal(rest.weights, whole.weights)
    assert not np.allclose(clients(tmp_path).run(now).weights, whole.weights)


def test_a_bias_to_penalise_must_be_there(tmp_path: Path) -> None:
    """Without an intercept the key would do nothing, and the job is refused."""
    with pytest.raises(ConfigError, match="intercept = false leaves no bias; remove the key"):
        clients(tmp_path).run(head_job("newton", penalise_bias=True, **BARE))


def test_a_client_that_knows_no_free_bias_is_refused(tmp_path: Path) -> None:
    """One of an earlier version does not say that it follows the request."""

    def earlier(reply: Reply) -> Reply:
        changed: dict[str, Any] = {"free_bias": False}
        return replace(reply, **changed)

    with pytest.raises(JobError, match=r"site-1: .*install the coordinator's version"):
        clients(tmp_path, tamper={("site-1", "head.open"): earlier}).run(head_job("newton", rounds=2))


@pytest.mark.parametrize(("apart", "fit"), [(60, 0), (13, 47), (12, 47), (70, 60)])
def test_a_client_that_counts_its_rows_wrongly_is_refused(tmp_path: Path, apart: int, fit: int) -> None:
    """Weights of means come from these counts."""

    def wrong(reply: Reply) -> Reply:
        changed: dict[str, Any] = {"num_validation_rows": apart, "num_fit_rows": fit}
        return replace(reply, **changed)

    with pytest.raises(JobError, match=r"site-1: .*of 60 rows it should be at most 12 and the others"):
        clients(tmp_path, tamper={("site-1", "head.open"): wrong}).run(head_job("newton", rounds=2))


@pytest.mark.slow
def test_newton_steps_leave_rows_apart_while_weights_under_fit(tmp_path: Path) -> None:
    """Local training is slow on small features: the ridge is asked for later, and no cut changes a bit."""
    job = head_job(rounds=12, frequencies=100, features="lengthscale = 4.0", ridge=1e-4)
    whole = clients(tmp_path).run(job)
    judged = ["validation_loss" in m.training for m in whole.metrics]
    newton = ["step_size" in m.training for m in whole.metrics]
    assert judged == sorted(judged, reverse=True)
    assert sum(a and b for a, b in zip(judged, newton, strict=True)) > 1
    assert not judged[-1]
    for stop in range(2, len(judged)):
        rest = clients(tmp_path / str(stop)).run(job, resumed=whole.journal.before[stop])
        assert np.array_equal(rest.weights, whole.weights)
    pooled = simulate(job, clients(tmp_path).jobs).final.pooled
    assert pooled["global"]["log_loss"] < pooled["central"]["log_loss"] + 0.05


@pytest.mark.slow
def test_a_ridge_that_is_too_strong_is_lowered(tmp_path: Path) -> None:
    """By tens while rows kept apart gain, from 50; the former rule keeps it; a cut on the way changes no bit."""
    job = head_job("newton", rounds=30, ridge=50.0)
    done = clients(tmp_path).run(job)
    former = clients(tmp_path).run(head_job("newton", rounds=30, ridge=50.0, raise_ridge="up"))
    assert any(note.startswith("ridge ") and "in place of 50" in note for note in done.notes)
    assert facts(done)["ridge"] < 0.1
    assert not any(note.startswith("ridge ") for note in former.notes)
    assert facts(former)["ridge"] == 50.0
    worth = [d.metrics[-1].pooled["global"]["log_loss"] for d in (done, former)]
    assert worth[0] < 0.5 * worth[1]
    apart = [m.round_num for m in done.journal.events if m.metrics and "step_size" in m.metrics.training][:4]
    for stop in apart:
        rest = clients(tmp_path / str(stop)).run(job, resumed=done.journal.before[stop])
        assert np.array_equal(rest.weights, done.weights)


@pytest.mark.slow
def test_the_best_ridge_is_found_from_both_sides(tmp_path: Path) -> None:
    """From a millionth, 10 and 10⁵, jobs on few noisy rows end within a tenth of each other's log-loss."""
    worth = []
    for ridge in (1e-6, 10.0, 1e5):
        settings: dict[str, Any] = {"rounds": 40, "columns": 40, "ridge": ridge, "validation_fraction": 0.3}
        done = bench(noisy_rows(), tmp_path / str(ridge), CLASSES).run(head_job(**settings))
        assert 1e-2 < facts(done)["ridge"] < 2.0
        worth.append(done.metrics[-1].pooled["global"]["log_loss"])
    assert max(worth) < 1.1 * min(worth)


@pytest.mark.slow
def test_baselines_choose_their_ridge_as_the_job_does(tmp_path: Path) -> None:
    """Under a ridge that is a million times too strong, own and pooled heads are as good as from a right one."""
    worth = {}
    for ridge, chosen in ((0.01, True), (1e4, True), (1e4, False)):
        job = head_job("newton", rounds=12, ridge=ridge, raise_ridge=chosen)
        pooled = simulate(job, clients(tmp_path / f"{ridge}{chosen}").jobs).final.pooled
        worth[ridge, chosen] = {name: pooled[name]["log_loss"] for name in ("local", "central")}
    for name in ("local", "central"):
        assert worth[1e4, True][name] < 1.3 * worth[0.01, True][name]
    assert worth[1e4, False]["central"] > 2.0 * worth[1e4, True]["central"]


def test_a_head_alone_knows_nothing_of_the_others(tmp_path: Path) -> None:
    """What `local` says of a client stays to the bit when another one measures in other units."""
    rows = label_skewed_rows()
    other = replace(rows["site-3"], x_train=1000.0 * rows["site-3"].x_train)
    job = head_job("newton", rounds=1)
    found = [
        bench(r, tmp_path / str(i), CLASSES).run(job).metrics[0].clients["site-0"]
        for i, r in enumerate((rows, rows | {"site-3": other}))
    ]
    assert found[0]["local"] == found[1]["local"]
    assert found[0]["global"] != found[1]["global"]


@pytest.mark.slow
def test_few_rows_keep_more_of_them_apart(tmp_path: Path) -> None:
    """A fifth of few, a twentieth of many, as the job says where it does, and none without local training."""
    opened: list[HeadOpened] = []

    def kept(reply: Reply) -> Reply:
        assert isinstance(reply, HeadOpened)
        opened.append(reply)
        return reply

    for size, settings in (
        (60, {}),
        (600, {}),
        (60, {"validation_fraction": 0.5}),
        (60, {"warm_start": False}),
    ):
        tamper = {("site-0", "head.open"): kept}
        bench(label_skewed_rows(size=size), tmp_path, CLASSES, tamper=tamper).run(
            head_job("newton", rounds=1, **settings)
        )
    assert [reply.num_validation_rows for reply in opened] == [12, 30, 30, 0]


def noisy_rows() -> dict[str, Rows]:
    """Four clients of 30 rows in 40 columns, three of which tell the class, not surely."""
    draw = np.random.default_rng(3)
    rows = {}
    for i in range(4):
        x = draw.normal(size=(60, 40))
        y = np.argmax(x[:, :3] + 0.7 * draw.normal(size=(60, 3)), axis=1)
        rows[f"site-{i}"] = Rows(x[:30], y[:30], x[30:], y[30:])
    return rows
