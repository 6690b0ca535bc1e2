"""Jobs whose ratios are to the mixture of all clients' training rows, on clients in this process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import ConfigError, InvalidReplyError, JobError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, draw_frequencies, make_spec
from kernfed.federation.messages.base import Kind
from kernfed.maths.triangles import pack
from kernfed.methods.reweight.label_shift import label_ratios, priors
from kernfed.methods.reweight.mixture_messages import FoldSums, PointMoments
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.reweight.state import ratios_of
from kernfed_client.methods.reweight.sums_steps import folds_of
from kernfed_server.methods.reweight.mixture import check_points, checked
from kernfed_simulation.federation import Rows
from kernfed_testing.in_process import Bench, bench
from kernfed_testing.methods.personalise import clients, notes, run, without
from kernfed_testing.methods.reweight import (
    CLASSES,
    NAMES,
    PAPER,
    finding,
    label_shifted_rows,
    reweight_job,
    sharing,
    shifted_rows,
)

pytestmark = pytest.mark.slow


def swapped_rows(size: int = 120) -> dict[str, Rows]:
    """Two clients whose test rows lie where the other one's training rows do."""
    random = np.random.default_rng(3)
    rows = {}
    for name, train, test in (("ant", -3.0, 3.0), ("bee", 3.0, -3.0)):
        parts = []
        for centre, num in ((train, size), (test, 80)):
            x = random.normal(size=(num, 2))
            x[:, 0] += centre
            parts.append((x, np.sin(2 * x[:, 0]) + x[:, 0] ** 2 + 0.3 * random.normal(size=num)))
        rows[name] = Rows(*parts[0], *parts[1])
    return rows


def mse(done: Any, model: str) -> float:
    return float(np.mean([scores[model]["mse"] for scores in done.final.clients.values()]))


def pooled_solution(model: Any, rows: dict[str, Rows], weights: dict[str, Any]) -> tuple[Any, Any]:
    """One weighted least-squares problem over all rows, centred by weighted means: weights, and means of features."""
    w = np.concatenate([weights[c] for c in weights])
    x = np.concatenate([(rows[c].x_train - model.mean) / model.deviation for c in weights])
    y = np.concatenate([rows[c].y_train for c in weights])[:, None]
    drawn = draw_frequencies(model.spec)
    z = np.sqrt(2 / 60) * np.cos(x @ drawn.omega.T + drawn.phase)
    w = w / w.sum()
    z0, y0 = w @ z, w @ y
    z, y = z - z0, y - y0
    return np.linalg.solve(z.T @ (w[:, None] * z) + 1e-2 * np.eye(60), z.T @ (w[:, None] * y)), z0


def ratios(jobs: dict[str, LocalJob], names: Any = NAMES) -> dict[str, Any]:
    """Ratio of each training row to the mixture."""
    held = {c: ratios_of(jobs[c], "mixture") for c in names}
    return {c: found.weights * found.facts.mean for c, found in held.items()}


def test_the_model_is_that_of_the_pooled_rows_with_their_ratios(tmp_path: Path) -> None:
    """One least-squares problem over all rows, each with its ratio to the mixture, centred by weighted means."""
    rows = {**shifted_rows(90), "cat": shifted_rows(40)["cat"]}
    jobs = sharing(rows, tmp_path)
    done = run(reweight_job(rounds=30, ridge=1e-2, compare=False), jobs)
    found = ratios(jobs)
    assert np.concatenate(list(found.values())).mean() == pytest.approx(1.0, abs=0.08)
    model: Any = done.model
    want, mean = pooled_solution(model, rows, found)
    np.testing.assert_allclose(model.weights, want, atol=1e-6)
    np.testing.assert_allclose(model.feature_mean, mean, atol=1e-9)


def test_rows_of_another_client_stand_for_a_clients_test_points(tmp_path: Path) -> None:
    """Swapped supports: within 3 % of the unweighted model; ratios to a client's own rows lose or do not exist."""
    done = run(reweight_job(rounds=20, deliver="weighted"), sharing(swapped_rows(), tmp_path / "mixture"))
    assert mse(done, "global") < 1.03 * mse(done, "fedavg")
    own = run(reweight_job(rounds=20, deliver="weighted", ratios=PAPER), sharing(swapped_rows(), tmp_path / "client"))
    assert mse(own, "global") > 1.1 * mse(own, "fedavg")


def test_a_model_too_small_for_everything_gains(tmp_path: Path) -> None:
    """On shifted test rows the weighted linear model is better by a fifth at least, with nothing but sums sent."""
    rows = shifted_rows(300)
    policies: dict[str, Any] = dict.fromkeys(rows, without(Kind.UNLABELLED_SAMPLE))
    done = run(reweight_job(rounds=20, features='kernel = "linear"'), clients(rows, tmp_path, **policies))
    assert mse(done, "global") < 0.8 * mse(done, "fedavg")
    told = finding(done)
    assert {c["shared"] for c in told["clients"]} == {"sums over its rows and 80 test points"}
    assert all(c["held_out"] > 0.1 and c["total"] == 1.0 for c in told["clients"])
    assert "one ratio for all clients, of test points to the mixture of their training rows" in notes(done)


def test_a_class_that_one_client_holds_counts_for_all(tmp_path: Path) -> None:
    """Each row's weight is the share of its class among test rows over that among all training rows."""
    rows = label_shifted_rows()
    keep = rows["bee"].y_train != 2
    rows["bee"] = replace(rows["bee"], x_train=rows["bee"].x_train[keep], y_train=rows["bee"].y_train[keep])
    jobs = sharing(rows, tmp_path, CLASSES)
    run(reweight_job(task="classification", ratios='source = "labels"', rounds=2, compare=False), jobs)
    te = priors([np.bincount(rows[c].y_test, minlength=3) for c in NAMES]).mean(axis=0)
    tr = priors(np.sum([np.bincount(rows[c].y_train, minlength=3) for c in NAMES], axis=0))
    for name, each in ratios(jobs).items():
        np.testing.assert_allclose(each, label_ratios(te[None], tr)[rows[name].y_train], rtol=1e-9)


def test_a_pooled_classifier_tells_the_test_classes(tmp_path: Path) -> None:
    """Clients that lack classes: the shares are nearer to the truth than those of own classifiers; none falls back."""
    rows = label_shifted_rows(150)
    for i, name in enumerate(NAMES):  # each client has two of the three classes
        keep = rows[name].y_train != (i + 1) % 3
        rows[name] = replace(rows[name], x_train=rows[name].x_train[keep], y_train=rows[name].y_train[keep])
    te = priors([np.bincount(rows[c].y_test, minlength=3) for c in NAMES]).mean(axis=0)
    tr = priors(np.sum([np.bincount(rows[c].y_train, minlength=3) for c in NAMES], axis=0))
    off = {}
    for classifier in ("pooled", "own"):
        jobs = sharing(rows, tmp_path / classifier, CLASSES)
        keys = f'source = "black-box"\nclassifier = "{classifier}"'
        done = run(reweight_job(task="classification", ratios=keys, rounds=2, compare=False), jobs)
        found = np.zeros(3)
        for name, each in ratios(jobs).items():
            found[rows[name].y_train] = each
        off[classifier] = np.abs(found * tr - te).sum() / 2
        if classifier == "pooled":
            assert "smallest singular value of the pooled classifier's confusion matrix" in notes(done)
            assert "its test classes are taken" not in notes(done)
    assert off["pooled"] < 0.08
    assert off["pooled"] < 0.5 * off["own"]


def test_who_shares_no_sums_is_named(tmp_path: Path) -> None:
    """stop: nothing is sent; leave-out: its rows count for nothing in the weighted model; own: own ratios for all."""
    rows = shifted_rows(80)
    refusing: dict[str, Any] = {"bee": without(Kind.SUFFICIENT_STATISTIC)}
    with pytest.raises(JobError, match=r"needs sums over rows.*\n.*bee: the policy lets no sums over rows leave"):
        run(reweight_job(), clients(rows, tmp_path / "a", **refusing))
    jobs = clients(rows, tmp_path / "b", **refusing)
    out = run(reweight_job(on_refusal="leave-out", rounds=30, ridge=1e-2, compare=False), jobs)
    assert "bee: the policy lets no sums over rows leave" in notes(out)
    told = {c["client"]: c for c in finding(out)["clients"]}
    assert told["bee"]["shared"] == "nothing"
    model: Any = out.model
    want, _ = pooled_solution(model, rows, ratios(jobs, ("ant", "cat")))
    np.testing.assert_allclose(model.weights, want, atol=1e-5)
    own = run(reweight_job(on_refusal="own"), clients(rows, tmp_path / "e", **refusing))
    assert finding(own)["scope"] == "own"


def test_a_fold_stands_for_enough_rows(tmp_path: Path) -> None:
    """Folds hold `policy.min_rows` rows or none, copies lie in one, and few test points are not summed over."""
    rows = shifted_rows(37)
    rows["bee"] = replace(rows["bee"], x_test=rows["bee"].x_test[:4], y_test=rows["bee"].y_test[:4])
    jobs = sharing(rows, tmp_path)
    for local in jobs.values():
        local.file = local.file.model_copy(update={"policy": local.file.policy.model_copy(update={"min_rows": 10})})
    done = run(reweight_job(rounds=3), jobs)
    assert "bee: fewer test points than policy.min_rows" in notes(done)
    local = jobs["ant"]
    repeated = np.repeat(local.x_train[:12], 3, axis=0)
    for points in (local.x_train, repeated):
        fold = folds_of(local, points, 5, 1, "rows", None)
        sizes = np.bincount(fold, minlength=5)
        assert sizes[sizes > 0].min() >= 10
    assert all(len(set(fold[3 * i : 3 * i + 3])) == 1 for i in range(12))


def test_a_client_that_is_lost_leaves_the_mixture(tmp_path: Path) -> None:
    """It falls out when weights are first used: the ratios are those of a job without it."""
    rows = shifted_rows(60)
    job = reweight_job(rounds=4, cohort='preflight = "quorum"')
    made = bench(
        rows, tmp_path / "a", tamper={("cat", "reweight.use_ratios"): lambda reply: replace(reply, num_rows=5)}
    )
    done = made.run(job)
    assert any("cat" in note and "ratios are found anew" in note for note in done.notes)
    assert done.cohort.clients == ("ant", "bee")
    state = done.journal.last
    assert state is not None


def test_a_job_that_went_on_with_own_ratios_does_so_after_a_restart(tmp_path: Path) -> None:
    """The client that refused is gone by then; the model that was begun is ended, not another one."""
    rows = shifted_rows(60)
    refusing: dict[str, Any] = {"bee": without(Kind.SUFFICIENT_STATISTIC)}
    job = reweight_job(on_refusal="own", compare=False, rounds=6, cohort='preflight = "quorum"')
    first = Bench(clients(rows, tmp_path, **refusing)).run(job, stop_before=3)
    left = {name: rows[name] for name in ("ant", "cat")}
    done = Bench(clients(left, tmp_path)).run(job, resumed=first.journal.last)
    told = [e.finding for e in done.journal.events if e.message == "reweight" and e.finding is not None]
    assert told[-1]["scope"] == "own"
    assert not done.cohort.faults


@pytest.mark.parametrize(
    ("step", "change"),
    [
        ("reweight.fold_sums", lambda r: replace(r, second_moments=r.second_moments * 1e40)),
        ("reweight.fold_sums", lambda r: replace(r, point_sums=r.point_sums + 1e30)),
        ("reweight.fold_sums", lambda r: replace(r, fold_rows=r.fold_rows + 1)),
        ("reweight.look_up", lambda r: replace(r, median_distance=1e90)),
        ("reweight.use_ratios", lambda r: replace(r, mean=1e50)),
        ("reweight.use_ratios", lambda r: replace(r, total=1e-30)),
        ("reweight.use_ratios", lambda r: replace(r, histogram=r.histogram * 3)),
    ],
)
def test_absurd_numbers_leave_their_client_out(tmp_path: Path, step: str, change: Any) -> None:
    """A client that states what cannot be is named and left out; the others' job ends well, with a model of use."""
    rows = shifted_rows(60)
    honest = bench(rows, tmp_path / "a")
    hostile = Bench(honest.jobs, {("cat", step): change})
    done = hostile.run(reweight_job(rounds=12, cohort='preflight = "quorum"'))
    assert done.cohort.clients == ("ant", "bee")
    assert any("cat" in note for note in done.notes)
    last = done.metrics[-1].clients
    assert all(last[client]["global"]["mse"] < 2.0 for client in ("ant", "bee"))


@pytest.mark.parametrize(
    ("source", "step", "change"),
    [
        ("labels", "reweight.class_counts", lambda r: replace(r, counts=r.counts * 10**6)),
        ("labels", "reweight.class_prior", lambda r: replace(r, prior=r.prior * 1e30)),
        ("black-box", "reweight.classify", lambda r: replace(r, confusion=r.confusion * 10**9)),
        ("black-box", "reweight.classify", lambda r: replace(r, predicted=r.predicted - 10**6)),
        ("black-box", "reweight.fold_sums", lambda r: replace(r, second_moments=-r.second_moments)),
        ("black-box", "reweight.fold_sums", lambda r: replace(r, target_moments=1e3 * r.target_moments)),
    ],
)
def test_absurd_counts_leave_their_client_out(tmp_path: Path, source: str, step: str, change: Any) -> None:
    """Counts and shares that cannot be: their client is named and left out, and the others' job ends well."""
    honest = bench(label_shifted_rows(90), tmp_path, CLASSES)
    job = reweight_job(task="classification", ratios=f'source = "{source}"', rounds=6, cohort='preflight = "quorum"')
    done = Bench(honest.jobs, {("cat", step): change}).run(job)
    assert done.cohort.clients == ("ant", "bee")
    assert any("cat" in note for note in done.notes)
    last = done.metrics[-1].clients
    assert all(last[client]["global"]["accuracy"] > 0.5 for client in ("ant", "bee"))


def test_keys_that_mixtures_have_not_are_refused() -> None:
    """With the key and what to do; keys of bins ask for ratios to a client's own rows."""

    def mixes(**settings: Any) -> bool:
        method: Any = reweight_job(**settings).method
        return bool(method.ratios.mixes)

    assert mixes()
    for given in ({"ratios": "num_clusters = 10"}, {"scope": "own"}, {"client_weights": "effective"}):
        assert not mixes(**given)
    for keys, settings, text in (
        ('denominator = "mixture"\nnum_clusters = 10', {}, "num_clusters: belongs to"),
        ('denominator = "mixture"\nmodel = "mlp"', {}, 'model = "linear" and divergence = "lsif" alone'),
        ('denominator = "mixture"\nclip = "bound"', {}, "cuts at the ratios of bins"),
        ('denominator = "mixture"', {"scope": "own"}, 'is for scope = "all"'),
        ('denominator = "mixture"', {"client_weights": "effective"}, 'client_weights = "rows" or "equal"'),
        ('source = "black-box"\nclassifier = "pooled"', {"scope": "own"}, 'with scope = "own" nothing leaves'),
    ):
        with pytest.raises(ConfigError, match=text):
            reweight_job(ratios=keys, **settings)


def test_ratios_are_cut_where_asked(tmp_path: Path) -> None:
    """A number is the highest ratio to the mixture, whose mean is 1."""
    jobs: dict[str, LocalJob] = sharing(shifted_rows(90), tmp_path)
    done = run(reweight_job(rounds=2, ratios="clip = 1.5"), jobs)
    assert sum(c["num_cut"] for c in finding(done)["clients"]) > 5
    assert max(each.max() for each in ratios(jobs).values()) <= 1.5 + 1e-9


SPEC = make_spec(Kernel.GAUSSIAN, FeatureForm.COSINE, 2, 1.0, 3, 7)


def fold_sums() -> FoldSums:
    """Three rows and a test point in the first of two folds; all features are 0."""
    second = np.zeros((2, 10))
    second[0, 0] = 3.0
    return FoldSums(
        num_rows=3,
        fold_rows=np.array([3, 0]),
        second_moments=second,
        target_moments=np.zeros((2, 4, 2)),
        fold_points=np.array([1, 0]),
        point_sums=np.array([[1.0, 0, 0, 0], [0.0, 0, 0, 0]]),
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"fold_rows": np.array([2.5, 0.5]), "second_moments": np.zeros((2, 10))},
        {"fold_points": np.array([1.5, 0.5])},
        {"target_moments": np.full((2, 4, 2), 5.0)},
    ],
)
def test_folds_of_broken_numbers_are_refused(changes: dict[str, Any]) -> None:
    """Parts of rows would add up to none, and nothing can be divided by that."""
    good = fold_sums()
    checked(SPEC)("ant", good)
    with pytest.raises(InvalidReplyError):
        checked(SPEC)("ant", replace(good, **changes))


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e3 / 7, -1e-5 / 3])
def test_a_column_that_is_the_same_in_all_rows_is_no_contradiction(value: float) -> None:
    """The square of its sum is its rows times the sum of squares, but for rounding; twice the sum is refused."""
    for num in range(3, 40):
        x = np.stack([np.full(num, value), np.linspace(0.0, 1.0, num)], axis=1)
        reply = PointMoments(num_rows=num, num_points=num, sums=x.sum(axis=0), second_moments=pack(x.T @ x))
        check_points(reply, 2)
    with pytest.raises(InvalidReplyError, match="not of 39 points"):
        check_points(replace(reply, sums=2 * reply.sums), 2)
