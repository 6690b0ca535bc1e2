"""The choice between the weighted and the unweighted model, by training rows that neither was fitted to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.features.spec import draw_frequencies
from kernfed.federation.messages.base import Reply
from kernfed_client.methods.reweight.state import ratios_of, rows_apart
from kernfed_server.jobs.journal import Checkpoint
from kernfed_testing.in_process import Bench, bench
from kernfed_testing.methods.personalise import notes, run
from kernfed_testing.methods.reweight import NAMES, PAPER, reweight_job, sharing, shifted_rows

pytestmark = pytest.mark.slow

NETWORK: dict[str, Any] = {"trainer": "fedavg", "rounds": 4, "network": 'kind = "mlp"\nwidths = [8]'}


def weighted_ridge(z: Any, y: Any, w: Any, ridge: float) -> Callable[[Any], Any]:
    """Predictor of the weighted ridge solution with a free intercept."""
    w = w / w.sum()
    z0, y0 = w @ z, w @ y
    a, b = z - z0, y - y0
    beta = np.linalg.solve(a.T @ (w[:, None] * a) + ridge * np.eye(z.shape[1]), a.T @ (w * b))
    return lambda rows: (rows - z0) @ beta + y0


def test_models_are_compared_on_rows_that_they_have_not_seen(tmp_path: Path) -> None:
    """Losses of both models, fitted to the other rows, on the rows kept apart, with the weights of these rows."""
    rows = shifted_rows(60)
    seen: dict[str, Any] = {}

    def keep(client: str) -> Callable[[Reply], Reply]:
        def look(reply: Reply) -> Reply:
            seen[client] = reply
            return reply

        return look

    honest = bench(rows, tmp_path)
    watched = Bench(honest.jobs, {(c, "reweight.compare_linear"): keep(c) for c in NAMES})
    done = watched.run(reweight_job(rounds=30, ridge=1e-2))
    jobs, model = watched.jobs, done.model if hasattr(done.model, "spec") else done.model.model
    drawn = draw_frequencies(model.spec)
    parts: dict[str, list[Any]] = {"z": [], "y": [], "w": [], "out": []}
    for name in NAMES:
        held, apart = ratios_of(jobs[name], "mixture"), rows_apart(jobs[name])
        assert apart.sum() == 12
        parts["z"].append(np.sqrt(2 / 60) * np.cos(jobs[name].x_train @ drawn.omega.T + drawn.phase))
        parts["y"].append(rows[name].y_train)
        parts["w"].append(held.weights * held.facts.mean)
        parts["out"].append(apart)
    z, y, w, out = (np.concatenate(parts[name]) for name in ("z", "y", "w", "out"))
    predictors = [weighted_ridge(z[~out], y[~out], weights[~out], 1e-2) for weights in (w, np.ones(len(w)))]
    for i, predict in enumerate(predictors):
        for k, name in enumerate(NAMES):
            apart = parts["out"][k]
            own = ratios_of(jobs[name], "mixture").weights[apart]
            want = (own * np.square(predict(parts["z"][k][apart]) - parts["y"][k][apart])).mean()
            assert seen[name].losses[i] == pytest.approx(want, rel=1e-4)
    for k, name in enumerate(NAMES):
        apart, x_test = parts["out"][k], np.sqrt(2 / 60) * np.cos(jobs[name].x_test @ drawn.omega.T + drawn.phase)
        at_rows, at_tests = (np.square(predictors[0](x) - predictors[1](x)) for x in (parts["z"][k][apart], x_test))
        own = ratios_of(jobs[name], "mixture").weights[apart]
        assert seen[name].apart_distance == pytest.approx((own * at_rows).mean(), rel=1e-3)
        assert (seen[name].test_distance, seen[name].num_points) == (pytest.approx(at_tests.mean(), rel=1e-3), 80)


@pytest.mark.parametrize("settings", [{"rounds": 8}, NETWORK], ids=["newton", "fedavg"])
def test_shown_test_rows_do_not_choose(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Other targets of the test rows change the metrics that are shown, and no bit of the delivered model."""
    rows = shifted_rows(60)
    other = {n: replace(r, y_test=-3.0 * r.y_test) for n, r in rows.items()}
    first, second = (run(reweight_job(**settings), sharing(g, tmp_path / str(i))) for i, g in enumerate((rows, other)))
    name = "weights" if settings.get("trainer") is None else "parameters"
    models: list[Any] = [getattr(done.left, "delivered", done.left) for done in (first, second)]
    assert np.array_equal(getattr(models[0], name), getattr(models[1], name))
    assert first.final.pooled["global"] != second.final.pooled["global"]
    assert "on training rows kept apart, weighed for the test points" in notes(first)


@pytest.mark.parametrize("settings", [{"rounds": 8}, NETWORK], ids=["newton", "fedavg"])
@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_the_model_of_less_risk_is_delivered(tmp_path: Path, settings: dict[str, Any], factor: float) -> None:
    """Clients whose rows kept apart tell clearly: that model is the job's, the other lies beside it.

    The models differ five times as much on the test points, which a note says where the weighted one is delivered.
    """
    step = "reweight.compare_linear" if "trainer" not in settings else "reweight.compare_networks"

    def clear(reply: Any) -> Any:
        losses = np.array([factor, 1.0]) * max(reply.losses[1], 1e-3)
        far = {"apart_distance": 1.0, "test_distance": 5.0, "num_points": 80}
        return replace(reply, losses=losses, square=float(np.square(losses[0] - losses[1])), **far)

    rows = shifted_rows(60)
    honest = bench(rows, tmp_path)
    done = Bench(honest.jobs, {(c, step): clear for c in NAMES}).run(reweight_job(**settings))
    last = done.metrics[-1].pooled
    plain = factor > 1
    assert (last["global"] == last["fedavg"]) == plain
    assert ("weighted" in last) == plain
    told = next(n for n in done.notes if "kept apart, weighed" in n)
    assert any("say little of the test points" in n and " 5 times" in n for n in done.notes) == (not plain)
    assert f"the {'unweighted' if plain else 'weighted'} one, fitted again to all rows, is the job's model" in told


def test_copies_of_a_row_go_together(tmp_path: Path) -> None:
    """None of them is kept apart while another one is fitted."""
    rows = {
        n: replace(r, x_train=np.repeat(r.x_train, 3, 0), y_train=np.repeat(r.y_train, 3))
        for n, r in shifted_rows(30).items()
    }
    jobs = sharing(rows, tmp_path)
    run(reweight_job(rounds=2), jobs)
    for name in NAMES:
        apart = rows_apart(jobs[name]).reshape(-1, 3)
        assert (apart.all(axis=1) == apart.any(axis=1)).all()
        assert 12 <= apart.sum() <= 18


def test_absurd_losses_do_not_choose(tmp_path: Path) -> None:
    """A client whose losses cannot be is left out of the choice, and named; the others' rows choose."""
    rows = shifted_rows(60)
    honest, job = bench(rows, tmp_path), reweight_job(rounds=8, cohort='preflight = "quorum"')
    for i, change in enumerate(
        (
            lambda r: replace(r, losses=np.array([1e30, 0.0]), square=1e60),
            lambda r: replace(r, losses=np.array([5.0, 0.0]), square=0.0),
            lambda r: replace(r, num_apart=10**9),
        )
    ):
        done = Bench(honest.jobs, {("cat", "reweight.compare_linear"): change}).run(job)
        told = next(n for n in done.notes if "kept apart, weighed" in n)
        assert "e+" not in told, i
        assert any(e.client == "cat" or "cat" in (e.message or "") for e in done.journal.events)


@pytest.mark.parametrize(("settings", "stop_before"), [({"rounds": 6}, 3), ({"rounds": 6}, 9), (NETWORK, 3)])
def test_a_stored_run_goes_on_by_the_rules_it_began_with(
    tmp_path: Path, settings: dict[str, Any], stop_before: int
) -> None:
    """A checkpoint of before there were mixtures and rows kept apart: the model is that of these rules, bit for bit."""
    rows = shifted_rows(60)
    shared = sharing(rows, tmp_path)["ant"].file

    def made(folder: str) -> Bench:
        found = bench(rows, tmp_path / folder)
        for local in found.jobs.values():
            local.file = shared
        return found

    before = reweight_job(ratios=PAPER, deliver="better-on-test", **settings)
    whole = made("a").run(before)
    second = made("b")
    stopped = second.run(before, stop_before=stop_before)
    last = stopped.journal.checkpoints[-1]
    stored = Checkpoint(last.round_num, {n: a for n, a in last.state.items() if n not in ("mixture", "choice")})
    resumed = second.run(reweight_job(**settings), resumed=stored)
    assert resumed.metrics[-1] == whole.metrics[-1]
    for name in ("weights", "parameters"):
        pair = [getattr(getattr(m, "delivered", m), name, None) for m in (whole.model, resumed.model)]
        if pair[0] is not None:
            assert np.array_equal(np.asarray(pair[0]), np.asarray(pair[1]))


def test_a_job_that_ends_in_a_later_life_says_how_it_compares(tmp_path: Path) -> None:
    """The coordinator dies behind the last round: the next one tells the same end, with who is worse off than alone."""
    rows = shifted_rows(60)
    whole = bench(rows, tmp_path / "a").run(reweight_job())
    again = bench(rows, tmp_path / "b").run(reweight_job(), resumed=whole.journal.last)
    ends = [[note for note in outcome.notes if note.startswith("end: ")] for outcome in (whole, again)]
    assert ends[0] == ends[1]
    assert "model alone" in ends[0][-1]
