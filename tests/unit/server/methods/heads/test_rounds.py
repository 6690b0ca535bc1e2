"""Methods on a head end to end, on clients in this process."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import ConfigError, DataError, JobError
from kernfed.federation.events import EventKind
from kernfed.maths.losses import Link
from kernfed.models.global_model import GlobalModel, load_model, sha256
from kernfed_server.jobs.diverged import DivergedRunError
from kernfed_simulation.federation import Rows
from kernfed_simulation.run import simulate
from kernfed_testing.in_process import bench, label_skewed_rows, with_nan
from kernfed_testing.methods.head_jobs import BARE, CLASSES, METHODS, clients, facts, head_job
from kernfed_testing.methods.ridge_clients import load_golden

EXACT: dict[str, Any] = {
    "solver_tolerance": 1e-12,
    "solver_iterations": 1000,
    "warm_start": False,
}


def golden_rows() -> tuple[dict[str, Rows], dict[str, Any]]:
    """Clients of the golden file, tested on their own training rows."""
    golden = load_golden("newton-default")
    facts = golden["head"]
    rows = {
        f"site-{i}": Rows(np.array(x), np.array(y), np.array(x), np.array(y))
        for i, (x, y) in enumerate(zip(golden["X"], facts["y"], strict=True))
    }
    return rows, facts


def test_the_default_is_that_of_the_independent_program(tmp_path: Path) -> None:
    """Through messages, steps and workflow: losses, step sizes, damping, uploads, and the model's weights."""
    rows, facts = golden_rows()
    job = head_job("newton", rounds=8, columns=8, ridge=facts["lam"], **EXACT, **BARE)
    done = bench(rows, tmp_path, CLASSES).run(job)
    for row, metrics in zip(facts["log"], done.metrics, strict=True):
        t = metrics.training
        np.testing.assert_allclose([t["uploads"], t["loss"], t["step_size"], t["damping"]], row[1:], atol=1e-9)
    np.testing.assert_allclose(done.weights, facts["W"], atol=1e-9)
    assert done.model is not None
    assert done.model.link is Link.SOFTMAX


@pytest.mark.parametrize("own", [False, True], ids=["algorithm 2", "equation 7"])
def test_one_round_of_the_paper_is_that_of_the_independent_program(tmp_path: Path, own: bool) -> None:
    """Algorithm 2 from the golden file's weights moves as its program does: here from zero, by hand; and equation (7)
    as printed, where each client solves for its own gradient.
    """
    golden = load_golden("newton")
    eye = np.eye(3)
    z = [np.array(x) for x in golden["X"]]
    y = [np.array(v) for v in golden["head"]["y"]]
    total = sum(len(v) for v in y)
    gradient = sum((a.T @ (np.full((len(a), 3), 1 / 3) - eye[b])) / total for a, b in zip(z, y, strict=True))
    curvature = np.diag(np.full(3, 1 / 3)) - 1 / 9
    step = np.zeros(9)
    for a, b in zip(z, y, strict=True):
        hessian = np.kron(a.T @ a / len(a), curvature) + 0.01 * np.eye(9)
        at = a.T @ (np.full((len(a), 3), 1 / 3) - eye[b]) / len(a) if own else np.asarray(gradient)
        step += len(b) / total * np.linalg.solve(hessian, at.reshape(-1))
    rows = {f"site-{i}": Rows(a, b, a, b) for i, (a, b) in enumerate(zip(z, y, strict=True))}
    settings: dict[str, Any] = {"damping": 0.01, "step_size": 0.1, "solver": "exact", **BARE}
    settings |= {"gradient": "own"} if own else {}
    job = head_job("newton-paper", rounds=1, columns=3, ridge=1e-12, **settings)
    done = bench(rows, tmp_path, CLASSES).run(job)
    np.testing.assert_allclose(done.weights.reshape(-1), -0.1 * step, atol=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_order_of_clients_and_replies_does_not_matter(tmp_path: Path, method: str) -> None:
    """The same bits, whoever answers first."""
    rows, job = label_skewed_rows(), head_job(method, rounds=3)
    first = bench(rows, tmp_path, CLASSES).run(job)
    second = bench(dict(reversed(rows.items())), tmp_path, CLASSES).run(job, reverse=True)
    assert first.journal.last is not None
    assert second.journal.last is not None
    for name, array in first.journal.last.state.items():
        told = name == "run.agreed.head"  # what clients told of themselves: the memory that is free, for one
        assert told or np.array_equal(array, second.journal.last.state[name]), name


@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_stops_goes_on_to_the_same_bits(tmp_path: Path, method: str) -> None:
    """Killed before a checkpoint and resumed from the last, with new clients, as after a restart of all."""
    job = head_job(method, rounds=4, client_fraction=0.5)
    whole = clients(tmp_path).run(job)
    cut = clients(tmp_path).run(job, stop_before=3)
    assert cut.stopped
    rest = clients(tmp_path).run(job, resumed=cut.journal.last)
    assert np.array_equal(rest.weights, whole.weights)
    assert [m.training["uploads"] for m in rest.metrics] == [m.training["uploads"] for m in whole.metrics[2:]]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns(tmp_path: Path, method: str) -> None:
    """After a few rounds the head knows all classes, and is nearly as good as one of all rows in one place."""
    done = simulate(head_job(method, rounds=15), clients(tmp_path).jobs)
    assert done.error is None
    pooled = done.final.pooled
    assert pooled["global"]["accuracy"] >= pooled["central"]["accuracy"] - 0.1
    assert pooled["global"]["log_loss"] < 0.75 * np.log(3)


def test_the_default_reaches_the_pooled_head(tmp_path: Path) -> None:
    """Without validation rows, the loss comes down to that of all rows in one place."""
    job = head_job("newton", rounds=40, validation_fraction=0.0, ridge=0.01)
    done = simulate(job, clients(tmp_path).jobs)
    assert done.final.pooled["global"]["log_loss"] == pytest.approx(done.final.pooled["central"]["log_loss"], abs=1e-3)
    losses = [e.event.metrics.training["loss"] for e in done.events if e.event.metrics is not None]
    assert all(after <= before for before, after in itertools.pairwise(losses))


def test_a_model_survives_its_file_and_gives_probabilities(tmp_path: Path) -> None:
    """Softmax and logistic models predict from disk as before, with rows of probabilities."""
    done = clients(tmp_path).run(head_job(rounds=3))
    assert done.model is not None
    done.model.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    x = label_skewed_rows()["site-0"].x_test
    scores = again.predict_scores(x)
    np.testing.assert_array_equal(scores, done.model.predict_scores(x))
    np.testing.assert_allclose(scores.sum(axis=1), 1.0)
    assert set(again.predict(x)) <= set(CLASSES)
    linear = replace(done.model, link=Link.IDENTITY)
    linear.save(tmp_path / "linear")
    assert sha256(tmp_path / "linear") != sha256(tmp_path / "model")
    with pytest.raises(ConfigError, match="link logistic"):
        replace(done.model, link=Link.LOGISTIC)


def test_a_binary_head_is_logistic(tmp_path: Path) -> None:
    """One output, whose probability decides at one half; the squared loss gives a linear one."""
    rows = {name: Rows(r.x_train, r.y_train % 2, r.x_test, r.y_test % 2) for name, r in label_skewed_rows().items()}
    texts: dict[str, Any] = {"task": "binary", "data": "classes = ['a', 'b']"}
    for loss, link in (("cross-entropy", Link.LOGISTIC), ("squared", Link.IDENTITY)):
        done = bench(rows, tmp_path, ("a", "b")).run(head_job(rounds=5, loss=loss, solver="cg", **texts))
        assert done.model is not None
        assert done.model.link is link
        x = rows["site-0"].x_test
        scores = done.model.predict_scores(x)[:, 0]
        assert list(done.model.predict(x)) == ["b" if s >= 0.5 else "a" for s in scores]


def test_the_record_explains_the_solver(tmp_path: Path) -> None:
    """Notes and finding say which solver runs and why, and where damping comes from."""
    done = clients(tmp_path).run(head_job(rounds=1, warm_start=False))
    assert any(note.startswith("solver exact: an exact step factors a matrix of") for note in done.notes)
    assert any("mean of the diagonal" in note for note in done.notes)
    found = facts(done)
    assert (found["solver"], found["features"], found["outputs"]) == ("exact", 7, 3)


def test_exact_beyond_the_memory_rule_is_refused(tmp_path: Path) -> None:
    """The client says how much it would take and what to use instead; auto takes another solver."""
    settings: dict[str, Any] = {"max_solver_bytes": 1 << 20, "warm_start": False}
    settings |= {"frequencies": 200, "features": "lengthscale = 2.0"}
    rows = label_skewed_rows(size=240)
    with pytest.raises(JobError, match=r"exact Newton step on 201 features.*use solver = \"cg\""):
        bench(rows, tmp_path, CLASSES).run(head_job(rounds=2, solver="exact", **settings))
    done = bench(rows, tmp_path, CLASSES).run(head_job(rounds=2, **settings))
    assert any(note.startswith("solver cg:") and "more than the 1 MiB" in note for note in done.notes)


def test_few_rows_are_warned_of_before_round_1(tmp_path: Path) -> None:
    """With fewer rows than features and little damping the job says so, and what helps."""
    rows = label_skewed_rows(size=12)
    features: dict[str, Any] = {"frequencies": 60, "features": "lengthscale = 2.0"}
    notes = bench(rows, tmp_path, CLASSES).run(head_job("newton-paper", rounds=1, damping=1e-4, **features)).notes
    assert any("fewer rows (from 12) than the 61 features" in note and "line_search" in note for note in notes)
    notes = bench(rows, tmp_path, CLASSES).run(head_job("newton", rounds=1, **features)).notes
    assert not any("fewer rows" in note for note in notes)


def test_what_is_set_is_not_recommended(tmp_path: Path) -> None:
    """With the paper's step, damping by the clients' curvature and a line search, only the step is left to change."""
    features: dict[str, Any] = {"frequencies": 60, "features": "lengthscale = 2.0", "line_search": True}
    job = head_job("newton-paper", rounds=1, damping="auto", **features)
    (found,) = (n for n in bench(label_skewed_rows(size=12), tmp_path, CLASSES).run(job).notes if "fewer rows" in n)
    assert found.endswith('then use step = "auto"')


@pytest.mark.parametrize(
    ("method", "settings", "words"),
    [
        (
            "newton",
            {"warm_start": False, "rounds": 2, "tolerance": 1e-9},
            "end: not arrived: all 2 rounds are used up, and 1e-09 is asked for; the pooled gradient is",
        ),
        ("newton", {"rounds": 1}, "end: not arrived: all 1 rounds went into local training"),
        (
            "newton-paper",
            {"rounds": 2},
            "end: not arrived: all 2 rounds are used, and the last round moved the weights by",
        ),
        ("fedavg", {"rounds": 2}, "end: not arrived: all 2 rounds are used, and the last round moved the weights by"),
        ("fednew", {"rounds": 2}, "end: not arrived: all 2 rounds are used, and the last round moved the weights by"),
    ],
)
def test_rounds_that_are_used_up_are_told(tmp_path: Path, method: str, settings: dict[str, Any], words: str) -> None:
    """A note, and the record, say that the job did not arrive; one that arrives says so."""
    done = clients(tmp_path).run(head_job(method, **settings))
    assert any(note.startswith(words) and "; raise method.rounds" in note for note in done.notes)
    assert facts(done)["arrived"] is False


def test_a_job_that_arrives_says_so(tmp_path: Path) -> None:
    """The record has the gradient over the first one, below the tolerance."""
    found = facts(clients(tmp_path).run(head_job("newton", rounds=40, warm_start=False)))
    assert found["arrived"] is True
    assert found["distance"] <= 1e-3


def test_solves_that_are_cut_short_are_told_once(tmp_path: Path) -> None:
    """With the client that is worst, its residual, and why."""
    settings: dict[str, Any] = {"solver": "cg", "solver_iterations": 1, "solver_tolerance": 1e-9, "warm_start": False}
    notes = clients(tmp_path).run(head_job("newton", rounds=4, **settings)).notes
    (found,) = (note for note in notes if note.startswith("cg stops short"))
    assert "of 4 clients, worst at site-" in found
    assert "after 1 iterations, as solver_iterations is reached" in found


def test_divergence_is_found_and_says_what_to_change(tmp_path: Path) -> None:
    """Algorithm 2 with step 1 and hardly any damping on clients of one class: stopped, with the last good model."""
    job = head_job("newton-paper", rounds=30, damping=1e-6, ridge=1e-6, step_size=1.0, solver="exact")
    with pytest.raises(DivergedRunError, match="line_search = true, or a step_size below 1") as caught:
        clients(tmp_path).run(job)
    assert isinstance(caught.value.model, GlobalModel)
    assert caught.value.model.link is Link.SOFTMAX
    searched = head_job(
        "newton-paper", rounds=10, damping=1e-6, ridge=1e-6, step_size=1.0, solver="exact", line_search=True
    )
    losses = [m.training["loss"] for m in clients(tmp_path).run(searched).metrics]
    assert losses[-1] < losses[0]


def test_models_that_grow_are_named_once_they_do_harm(tmp_path: Path) -> None:
    """One of three clients multiplies its weights by 3 more each round: where the model is of no use, it is named."""
    job = head_job("fedavg", rounds=2, loss="squared")
    rows, grown = label_skewed_rows(3), itertools.count(1)
    assert not [n for n in bench(rows, tmp_path / "honest", CLASSES).run(job).notes if "sent numbers" in n]

    def grow(reply: Any) -> Any:
        return replace(reply, weights=reply.weights * 3.0 ** next(grown))

    done = bench(rows, tmp_path / "grown", CLASSES, tamper={("site-1", "head.descent"): grow}).run(job)
    (named,) = [n for n in done.notes if "sent numbers" in n]
    assert "site-1 sent numbers " in named
    assert "times as large as any other client (HeadWeights.weights of head.descent)" in named


def test_uploads_count_the_share_of_clients_asked(tmp_path: Path) -> None:
    """A round of half the clients is half an upload each; gradients of the default come in shifts from all."""
    done = clients(tmp_path).run(head_job("fedavg", rounds=4, client_fraction=0.5))
    assert [m.training["uploads"] for m in done.metrics] == [0.5, 1.0, 1.5, 2.0]
    done = clients(tmp_path).run(head_job("newton", rounds=1, client_fraction=0.5))
    assert done.metrics[0].training["uploads"] == 1.0  # local training
    done = clients(tmp_path).run(head_job("newton", rounds=1, client_fraction=0.5, warm_start=False))
    assert done.metrics[0].training["uploads"] == 2.5  # gradient, half a Newton trip, probe


def test_a_client_that_fails_leaves_the_pooled_problem(tmp_path: Path) -> None:
    """Its fault is noted; the others go on, and the loss that follows is theirs."""
    bad: Mapping[tuple[str, str], Any] = {("site-1", "head.gradient"): with_nan}
    job = head_job("newton", rounds=6, warm_start=False, cohort="min_fraction = 0.5")
    done = clients(tmp_path, tamper=bad, from_round=3).run(job)
    assert any("site-1 is out of the pooled problem" in note for note in done.notes)
    assert len(done.metrics) == 6
    losses = [m.training["loss"] for m in done.metrics]
    assert losses[-1] <= losses[2]


def test_a_false_newton_step_never_raises_the_loss(tmp_path: Path) -> None:
    """A client whose steps are a hundred times too long costs probes and no more."""

    def inflated(reply: Any) -> Any:
        return replace(reply, newton_step=100.0 * reply.newton_step)

    done = clients(tmp_path, tamper={("site-2", "head.newton_step"): inflated}).run(
        head_job(rounds=6, warm_start=False)
    )
    losses = [m.training["loss"] for m in done.metrics]
    assert all(after <= before for before, after in itertools.pairwise(losses))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"method": "newton", "loss": "ridge", "damping": 0.1},
            'damping: belongs to loss = "cross-entropy" or "squared"',
        ),
        ({"method": "fedavg", "loss": "cross-entropy", "local_steps": 3}, 'local_steps: belongs to loss = "ridge"'),
        ({"method": "newton", "task": "regression", "data": ""}, "needs classes"),
        ({"method": "newton", "solver": "cholesky"}, "method"),
    ],
)
def test_keys_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    """With the key and the remedy."""
    with pytest.raises(ConfigError, match=message):
        head_job(**settings)


def test_heads_need_a_loss_that_fits_at_the_client(tmp_path: Path) -> None:
    """A request for a loss that the task has not is refused by the client."""
    from kernfed.methods.heads.messages import HeadLoss, OpenHeadRequest
    from kernfed_client.methods.heads.steps import open_head

    done = clients(tmp_path)
    done.run(head_job(rounds=1))
    job = done.jobs["site-0"]
    with pytest.raises(DataError, match="does not fit"):
        open_head(
            job,
            OpenHeadRequest(
                loss=HeadLoss.LOGISTIC, bias=True, validation_fraction=0.0, seed=1, num_features=7, num_outputs=3
            ),
        )


@pytest.mark.parametrize(
    ("method", "rounds", "arrived"), [("fednew", 40, True), ("fedavg", 4, False), ("fedprox", 4, False)]
)
def test_a_head_says_how_far_its_loss_is_above_the_least(
    tmp_path: Path, method: str, rounds: int, arrived: bool
) -> None:
    """By the pooled gradient at the end, which is asked of all clients once."""
    outcome = clients(tmp_path).run(head_job(method, rounds=rounds, ridge=0.01, client_fraction=1.0))
    found = next(e.finding for e in outcome.journal.events if e.message == "end")
    assert found is not None
    assert found["arrived"] is arrived
    assert "the norm of the pooled gradient is" in found["words"]
    if arrived:
        assert found["measure"] == "part of the pooled loss that is above its least, at most"
        assert found["distance"] < 1e-3
    asked = [e for e in outcome.journal.events if e.kind is EventKind.CLIENT_ANSWERED and e.step == "head.gradient"]
    assert [e.round_num for e in asked] == [rounds] * len(clients(tmp_path).jobs)
