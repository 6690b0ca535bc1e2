"""Reweighted jobs end to end on clients in this process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kernfed.errors import JobError
from kernfed.features.spec import draw_frequencies
from kernfed.federation.messages.base import Kind
from kernfed.jobs.client_file import DatasetSection
from kernfed.methods.reweight.messages import MatchRatiosRequest, UnlabelledSample
from kernfed.methods.reweight.ratio_spec import PLAIN_COLUMNS
from kernfed.methods.reweight.ratios_section import RatiosSection
from kernfed.methods.reweight.tensors.density_ratios import limited, match
from kernfed.models.network_model import load_predictor
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.reweight import steps
from kernfed_client.methods.reweight.state import ReweightState, ratios_of
from kernfed_server.methods.reweight.fitting import shuffled_pool
from kernfed_simulation.federation import from_rows
from kernfed_testing.in_process import bench
from kernfed_testing.methods.personalise import notes, run, without
from kernfed_testing.methods.reweight import (
    NAMES,
    PAPER,
    finding,
    reweight_job,
    sharing,
    shifted_rows,
    weights,
)

pytestmark = pytest.mark.slow

TRAINERS: dict[str, dict[str, Any]] = {
    "newton": {"rounds": 6},
    "adam": {"trainer": "adam", "rounds": 5, "network": 'kind = "mlp"\nwidths = [8]'},
    "fedavg": {"trainer": "fedavg", "rounds": 4, "average_last": 2, "client_fraction": 0.6},
}


def prepared(rows: Any, state: Path, job: Any) -> dict[str, LocalJob]:
    """Clients after the whole job."""
    jobs: dict[str, LocalJob] = sharing(rows, state)
    run(job, jobs)
    return jobs


def test_ratios_are_those_of_the_library_on_the_pooled_points(tmp_path: Path) -> None:
    """Weights of each client: the library's ratios to everyone's test points, divided by the number of clients."""
    rows = shifted_rows()
    jobs = prepared(rows, tmp_path, reweight_job(ratios=PAPER))
    pool = np.concatenate([jobs[c].x_test for c in NAMES])
    pool = pool[np.lexsort(pool.T[::-1])]
    each = torch.full((len(pool),), 1 / 80, dtype=torch.float64)
    from kernfed import rng

    spec = RatiosSection(num_frequencies=60).spec(rng.seed(5, "reweight", "ratios"))
    for name in NAMES:
        x = torch.tensor(jobs[name].x_train)
        fitted = match(x, torch.tensor(pool), each, spec)
        ratios, _ = limited(fitted.ratio(x), fitted.bins, fitted.clipping(spec), 3.0)
        np.testing.assert_allclose(ratios_of(jobs[name], "all").weights, ratios.numpy() / 3, rtol=1e-9)
        assert ratios_of(jobs[name], "all").weights.mean() == pytest.approx(1.0)


def test_newton_finds_the_weighted_ridge_solution(tmp_path: Path) -> None:
    """The model is that of one least-squares problem over all rows with their weights, centred by weighted means."""
    rows, job = shifted_rows(), reweight_job(rounds=20, ridge=1e-2, compare=False, ratios=PAPER)
    jobs = sharing(rows, tmp_path)
    done = run(job, jobs)
    w = np.concatenate([weights(jobs, "all")[c] / 3 / 150 for c in NAMES])
    model: Any = done.model
    x = np.concatenate([(rows[c].x_train - model.mean) / model.deviation for c in NAMES])
    y = np.concatenate([rows[c].y_train for c in NAMES])[:, None]
    drawn = draw_frequencies(model.spec)
    z = np.sqrt(2 / 60) * np.cos(x @ drawn.omega.T + drawn.phase)
    # Means are those of each client's weighted rows, averaged over clients.
    z0, y0 = w @ z / w.sum(), w @ y / w.sum()
    z, y = z - z0, y - y0
    want = np.linalg.solve(z.T @ (w[:, None] * z) + 1e-2 * np.eye(60), z.T @ (w[:, None] * y))
    np.testing.assert_allclose(model.weights, want, atol=1e-6)
    np.testing.assert_allclose(model.feature_mean, z0, atol=1e-9)
    scores = model.predict_scores(rows["ant"].x_test)
    measured = done.final.clients["ant"]["global"]["mse"]
    assert measured == pytest.approx(float(np.square(scores[:, 0] - rows["ant"].y_test).mean()), abs=1e-9)


def test_weights_help_where_test_rows_are_elsewhere(tmp_path: Path) -> None:
    """With a model too small for everything, the weighted one is better on test rows than the plain one."""
    job = reweight_job(rounds=20, ratios=PAPER, features='kernel = "linear"')
    done = run(job, sharing(shifted_rows(300), tmp_path))
    pooled = done.final.pooled
    assert pooled["global"]["mse"] < 0.8 * pooled["fedavg"]["mse"]
    assert set(pooled) >= {"global", "fedavg", "own", "local"}
    told = finding(done)
    assert [c["client"] for c in told["clients"]] == list(NAMES)
    for client in told["clients"]:
        assert client["held_out"] > 0.1
        assert sum(client["histogram"]) == client["num_rows"] == 300
        assert 0 < client["effective_rows"] < 300
        assert client["shared"] == "80 unlabelled points"
        assert set(client["scores"]) >= {"global", "fedavg", "own"}


def test_equal_weights_give_the_same_model_as_fedavg(tmp_path: Path) -> None:
    """Test rows that are the training rows: all ratios are 1, and both models agree."""
    rows = {n: type(r)(r.x_train, r.y_train, r.x_train, r.y_train) for n, r in shifted_rows().items()}
    done = run(reweight_job(scope="own", rounds=20), sharing(rows, tmp_path))
    pooled = done.final.pooled
    assert pooled["global"]["mse"] == pytest.approx(pooled["fedavg"]["mse"], rel=0.02)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_order_of_clients_and_of_replies_does_not_matter(tmp_path: Path, trainer: str) -> None:
    """The same bits, whoever answers first and however the pool was shuffled."""
    rows, job = shifted_rows(60), reweight_job(**TRAINERS[trainer])
    outcomes = []
    for i, order in enumerate((rows, dict(reversed(rows.items())))):
        made = bench(order, tmp_path / str(i))
        for local in made.jobs.values():
            local.file = sharing(rows, tmp_path)["ant"].file
        outcomes.append(made.run(job, reverse=i == 1))
    first, second = (o.journal.last for o in outcomes)
    assert first is not None
    assert second is not None
    for name, array in first.state.items():
        assert np.array_equal(array, second.state[name]), name
    assert outcomes[0].metrics[-1] == outcomes[1].metrics[-1]


@pytest.mark.parametrize(("trainer", "stop_before"), [("newton", 3), ("newton", 9), ("adam", 2), ("fedavg", 4)])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path: Path, trainer: str, stop_before: int) -> None:
    """Coordinator killed before a round closes: the model is that of a run left in peace."""
    rows, job = shifted_rows(60), reweight_job(**TRAINERS[trainer])
    shared = sharing(rows, tmp_path)["ant"].file

    def made(folder: str) -> Any:
        found = bench(rows, tmp_path / folder)
        for local in found.jobs.values():
            local.file = shared
        return found

    whole = made("a").run(job)
    bench_b = made("b")
    stopped = bench_b.run(job, stop_before=stop_before)
    assert stopped.stopped
    resumed = bench_b.run(job, resumed=stopped.journal.checkpoints[-1])
    assert resumed.metrics[-1] == whole.metrics[-1]
    for name in ("weights", "parameters"):
        if hasattr(whole.model, name):
            assert np.array_equal(getattr(whole.model, name), getattr(resumed.model, name))


def test_a_job_says_who_refuses_and_offers_own(tmp_path: Path) -> None:
    """By default nothing is sent when one client does not share; the message names it and the ways out."""
    with pytest.raises(JobError) as caught:
        run(reweight_job(ratios=PAPER), sharing(shifted_rows(), tmp_path, refusing=("bee",)))
    text = str(caught.value)
    assert "bee: the policy lets no unlabelled samples leave" in text
    assert "ant" not in text
    assert "nothing was sent" in text
    assert 'method.scope = "own"' in text
    assert 'method.on_refusal = "leave-out"' in text


def test_a_job_goes_on_as_configured(tmp_path: Path) -> None:
    """leave-out: the pool lacks its points and its rows are weighed all the same; own: nobody's points leave."""
    rows = shifted_rows()
    out = run(reweight_job(on_refusal="leave-out", ratios=PAPER), sharing(rows, tmp_path / "a", refusing=("bee",)))
    told = {c["client"]: c for c in finding(out)["clients"]}
    assert told["bee"]["shared"] == "nothing"
    assert told["ant"]["shared"] == "80 unlabelled points"
    assert told["bee"]["total"] == pytest.approx(2.0)
    assert "160 unlabelled points of 2 clients" in notes(out)
    own = run(reweight_job(on_refusal="own", ratios=PAPER), sharing(rows, tmp_path / "b", refusing=("bee",)))
    assert finding(own)["scope"] == "own"
    assert finding(own)["asked_scope"] == "all"
    assert all(c["shared"] == "nothing" for c in finding(own)["clients"])
    assert 'goes on with scope = "own"' in notes(own)
    with pytest.raises(JobError, match="not every client shares"):
        run(reweight_job(on_refusal="leave-out", ratios=PAPER), sharing(rows, tmp_path / "c", refusing=NAMES))


def test_own_scope_asks_for_no_sample(tmp_path: Path) -> None:
    """Clients whose policy shares nothing take part."""
    done = run(reweight_job(scope="own"), sharing(shifted_rows(), tmp_path, refusing=NAMES))
    assert all(c["shared"] == "nothing" for c in finding(done)["clients"])


def test_target_scope_asks_one_client(tmp_path: Path) -> None:
    """Only the target shares; a target that refuses, or does not take part, is an error."""
    job = reweight_job(scope="target", target="cat")
    done = run(job, sharing(shifted_rows(), tmp_path / "a", refusing=("ant", "bee")))
    assert {c["client"]: c["shared"] for c in finding(done)["clients"]} == {
        "ant": "nothing",
        "bee": "nothing",
        "cat": "80 unlabelled points",
    }
    with pytest.raises(JobError, match="cat: the policy lets no"):
        run(job, sharing(shifted_rows(), tmp_path / "b", refusing=("cat",)))
    with pytest.raises(JobError, match="not among the job's clients"):
        run(reweight_job(scope="target", target="dog"), sharing(shifted_rows(), tmp_path / "c"))


def test_the_policy_caps_the_sample(tmp_path: Path) -> None:
    """`max_sample_points` holds, whatever the job asks for, and per-client means are kept."""
    rows = shifted_rows()
    jobs = sharing(rows, tmp_path)
    section = jobs["ant"].file.policy.model_copy(update={"max_sample_points": 7})
    jobs["ant"].file = jobs["ant"].file.model_copy(update={"policy": section})
    done = run(reweight_job(ratios=PAPER), jobs)
    assert {c["client"]: c["shared"] for c in finding(done)["clients"]}["ant"] == "7 unlabelled points"
    assert finding(done)["clients"][0]["total"] == pytest.approx(3.0)


def test_the_pool_is_shuffled_and_weighs_clients_alike() -> None:
    """Two shuffles differ, hold the same points, and give each client a sum of 1."""
    shared = {
        "ant": UnlabelledSample(points=np.arange(40.0).reshape(20, 2)),
        "bee": UnlabelledSample(points=100 + np.arange(20.0).reshape(10, 2)),
    }
    (one, w), (two, _) = shuffled_pool(shared), shuffled_pool(shared)
    assert not np.array_equal(one, two)
    assert sorted(map(tuple, one)) == sorted(map(tuple, two))
    assert w[one[:, 0] >= 100].sum() == pytest.approx(1.0)
    assert w.sum() == pytest.approx(2.0)


def test_the_order_of_the_pool_changes_no_bit(tmp_path: Path) -> None:
    """A client sorts what it gets."""
    local = prepared(shifted_rows(60), tmp_path, reweight_job(rounds=1))["ant"]
    pool = np.random.default_rng(0).normal(size=(50, 2))
    found = []
    for order in (np.arange(50), np.arange(50)[::-1]):
        request = MatchRatiosRequest(
            variant="all",
            own=False,
            points=pool[order],
            point_weights=np.full(50, 1 / 50),
            ratios=RatiosSection(num_frequencies=60).spec(3),
            features=PLAIN_COLUMNS,
            optional=False,
        )
        steps.match_ratios(local, request)
        found.append(ratios_of(local, "all").weights)
    assert np.array_equal(found[0], found[1])


def test_ratios_outlive_the_process(tmp_path: Path) -> None:
    """A daemon that was restarted reads them from its disk; none are read for other rows."""
    rows = shifted_rows(60)
    jobs = sharing(rows, tmp_path)
    for local in jobs.values():
        local.durable = True
    run(reweight_job(rounds=1), jobs)
    again = from_rows(rows, (), tmp_path)["ant"]
    again.durable = True
    again.load("default", jobs["ant"].schema)
    np.testing.assert_array_equal(ratios_of(again, "mixture").weights, ratios_of(jobs["ant"], "mixture").weights)
    assert ratios_of(again, "mixture").facts == ratios_of(jobs["ant"], "mixture").facts


def test_lost_ratios_are_found_again(tmp_path: Path) -> None:
    """A client that lost its state in round 2 has a straggler's round, then new ratios, the same ones."""
    rows = shifted_rows(60)
    jobs = sharing(rows, tmp_path)
    job = reweight_job(trainer="adam", rounds=4)
    lost: list[dict[str, Any]] = []
    seen: set[int] = set()
    gradient = steps.weights_in_use

    def forgetful(local: LocalJob) -> Any:
        held = local.memory(ReweightState)
        if local.client == "bee" and not lost and id(held) in seen:
            lost.append(dict(held.ratios))
            held.ratios.clear()
            held.in_use = None
            local.weigh(None)
        seen.add(id(held))
        return gradient(local)

    import kernfed_client.methods.reweight.training_steps as training

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "weights_in_use", forgetful)
        patch.setattr(LocalJob, "memo", lambda _self, _key, make: make())
        done = run(job, jobs)
    assert lost
    assert "bee: the density ratios were lost, and are found again" in notes(done)
    np.testing.assert_array_equal(ratios_of(jobs["bee"], "mixture").weights, lost[0]["mixture"].weights)


def test_warnings_reach_the_operator(tmp_path: Path) -> None:
    """Few effective rows and test points without training rows are said in words; disjoint supports stop the job."""
    rows = shifted_rows(150)
    rows["bee"].x_test[:30] += 60.0
    done = run(reweight_job(scope="own"), sharing(rows, tmp_path / "a"))
    assert re.search(r"bee: \d+ % of the test points lie where it has no training row", notes(done))
    rows["bee"].x_test[:] += 300.0
    with pytest.raises(JobError, match="do not overlap"):
        run(reweight_job(scope="own"), sharing(rows, tmp_path / "b"))


@pytest.mark.parametrize("trainer", ["newton", "fedavg"])
def test_the_model_that_test_rows_prefer_is_delivered(tmp_path: Path, trainer: str) -> None:
    """Weights for points far from the test rows lose: the unweighted model is the job's, the other lies beside it."""
    rows = shifted_rows(60)
    jobs = sharing(rows, tmp_path)
    for name, local in jobs.items():
        wrong = tmp_path / f"{name}.csv"
        points = np.random.default_rng(0).normal([-1.0, 0.0], 0.2, (40, 2))
        wrong.write_text("x0,x1\n" + "\n".join(f"{a},{b}" for a, b in points.tolist()) + "\n")
        section = DatasetSection.model_validate({"train": {"path": str(wrong)}, "unlabelled": {"path": str(wrong)}})
        local.file = local.file.model_copy(update={"datasets": {"default": section}})
    kept = {**TRAINERS[trainer], "rounds": 20, "ratios": f'{PAPER}num_frequencies = 200\nclip = "none"'}
    done = run(reweight_job(**kept, deliver="better-on-test"), jobs, tmp_path / "out")
    assert "the weighted model is worse than the unweighted one: mean squared error" in notes(done)
    assert done.final.pooled["global"] == done.final.pooled["fedavg"] != done.final.pooled["weighted"]
    for name, model in (("", "global"), ("weighted-", "weighted")):
        folder = tmp_path / f"as {model}"
        folder.mkdir()
        for file in ("model.json", "model.safetensors"):
            (folder / file).write_bytes((tmp_path / "out" / f"{name}{file}").read_bytes())
        scores = load_predictor(folder).predict_scores(rows["ant"].x_test)
        mse = np.square(scores[:, 0] - rows["ant"].y_test).mean()
        assert mse == pytest.approx(done.final.clients["ant"][model]["mse"], rel=1e-6)
    all_the_same = run(reweight_job(**kept, deliver="weighted"), jobs)
    assert all_the_same.final.pooled["global"] == done.final.pooled["weighted"]
    assert "The weighted one is the job's model all the same" in notes(all_the_same)


def test_a_comparison_that_cannot_be_made_does_not_refuse_the_job(tmp_path: Path) -> None:
    """Own ratios that do not exist at one client leave out the model that is compared with, and the job says so."""
    rows = shifted_rows(60)
    rows["ant"].x_test[:] += 40.0
    one = {n: type(r)(r.x_train, r.y_train, r.x_test[:1], r.y_test[:1]) for n, r in shifted_rows(60).items()}
    one = {**shifted_rows(60), "bee": one["bee"]}
    for given, client in ((rows, "ant"), (one, "bee")):
        done = run(reweight_job(), sharing(given, tmp_path / client))
        assert set(done.final.pooled) - {"weighted"} == {"global", "fedavg", "local"}
        assert re.search(f"to compare with, is left out, .*{client}: ", notes(done))
        with pytest.raises(JobError, match=client):
            run(reweight_job(scope="own"), sharing(given, tmp_path / f"{client} own"))


def test_a_policy_without_gradients_refuses_the_trainer(tmp_path: Path) -> None:
    """What the trainer sends is the policy's business too."""
    jobs = sharing(shifted_rows(60), tmp_path)
    for local in jobs.values():
        section = local.file.policy.model_copy(update=without(Kind.GRADIENT))
        local.file = local.file.model_copy(update={"policy": section})
    with pytest.raises(JobError, match="gradient, which must not leave"):
        run(reweight_job(trainer="adam", scope="own", rounds=1), jobs)
