"""Distillation end to end on clients in this process: as the maths says, whatever happens on the way."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from kernfed.errors import ConfigError, JobError
from kernfed.federation.events import EventKind
from kernfed.jobs.client_file import ClientFile, PolicySection
from kernfed.jobs.job_file import parse_job
from kernfed.methods.distill.consensus import fixed_point
from kernfed.methods.distill.consensus_file import ARRAYS_FILE, PublicConsensus
from kernfed.methods.distill.settings import DistillSettings
from kernfed.methods.distill.tensors.distillation import DistilledRidge
from kernfed.methods.shares import SharesFinding
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.distill.steps import keep_public
from kernfed_client.models.kept_models import load_kept_model
from kernfed_server.jobs.execute import execute
from kernfed_server.jobs.journal import Checkpoint
from kernfed_server.jobs.run import Run
from kernfed_simulation.federation import Rows, from_rows
from kernfed_simulation.run import simulate
from kernfed_testing.in_process import Bench, RecordingJournal, with_nan
from kernfed_testing.methods.distill import made_job, made_rows, own_states, run
from kernfed_testing.methods.distill_oracles import RIDGE, SPEC, affine_maps, by_hand, tensor


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"deregularise": "paper"}, {}),
        ({"deregularise": False}, {"deregularise": False}),
        ({"rounds": 1}, {}),
        ({"deregularise": "paper", "alpha": 0.6}, {"alpha": 0.6}),
        ({"deregularise": "paper", "client_fraction": 0.5}, {"fraction": 0.5, "exponent": 0.501}),
        (
            {"deregularise": "paper", "client_fraction": 0.5, "uploads": "stale", "memory_exponent": 1.0},
            {"fraction": 0.5, "exponent": 1.0, "stale": True},
        ),
        ({"deregularise": "paper", "memory_exponent": 0.7}, {"exponent": 0.7}),
        ({"deregularise": "paper", "undone_ridge": 1e-3}, {"undone": 1e-3}),
        (
            {"deregularise": "paper", "client_fraction": 0.5, "participation": {"site-1": 0.2}},
            {"fraction": 0.5, "exponent": 0.501, "participation": {"site-1": 0.2}},
        ),
        (
            {"deregularise": "paper", "client_fraction": 0.5, "remember": "predictions"},
            {"fraction": 0.5, "remember": True},
        ),
        (
            {"deregularise": "paper", "client_fraction": 0.25, "uploads": "stale", "remember": "predictions"},
            {"fraction": 0.25, "stale": True, "remember": True},
        ),
    ],
    ids=[
        "deregularised",
        "plain",
        "one-shot",
        "alpha",
        "drawn",
        "stale",
        "memory",
        "undone",
        "unequal",
        "remembered",
        "stale, remembered",
    ],
)
def test_the_federation_runs_the_algorithms(tmp_path: Path, settings: dict[str, Any], options: dict[str, Any]) -> None:
    """Algorithms 1 to 3, in each form, give the consensus that the library gives by hand."""
    rows = made_rows()
    job, _, files = made_job(tmp_path, **settings)
    found = run(job, files, Bench(from_rows(rows, (), tmp_path)))
    assert isinstance(found.left, PublicConsensus)
    assert isinstance(job.method, DistillSettings)
    expected = by_hand(rows, found.left.points, job.method.rounds, **options)
    np.testing.assert_allclose(found.values, expected, rtol=0, atol=1e-12)


def test_clients_keep_what_the_last_plain_step_gives(tmp_path: Path) -> None:
    """The kept model is that distilled from the last consensus, and better than the client's own rows gave."""
    rows = made_rows()
    job, text, files = made_job(tmp_path, rounds=40, keep="distilled")
    done = simulate(job, from_rows(rows, (), tmp_path / "state"), text=text, files=files, out=tmp_path / "out")
    assert done.error is None
    assert isinstance(done.left, PublicConsensus)
    for name, r in rows.items():
        kept = load_kept_model(tmp_path / "state" / name / "model")
        x, y = tensor(r.x_train), tensor(r.y_train)[:, None]
        factored = DistilledRidge(SPEC, x, y, tensor(done.left.points), RIDGE, 0.25)
        expected = factored.model(tensor(done.left.values))(tensor(r.x_test))
        frame = pd.DataFrame(r.x_test, columns=["x0", "x1", "x2"])
        np.testing.assert_allclose(kept.predict_scores(frame), expected.numpy(), rtol=0, atol=1e-12)
    assert done.final.pooled["personal"]["mse"] < 0.8 * done.final.pooled["local"]["mse"]
    assert done.final.pooled["personal"]["mse"] < 1.5 * done.final.pooled["central"]["mse"]
    finding = json.loads((tmp_path / "out" / "findings.json").read_text())["distillation"]
    assert [c["client"] for c in finding["clients"]] == sorted(rows)
    assert all(c["last"] < c["first"] for c in finding["clients"])
    left = load_file(tmp_path / "out" / ARRAYS_FILE)
    points, values = left["points"], left["consensus"]
    assert (points == done.left.points).all()
    assert (values == done.left.values).all()
    table = (tmp_path / "out" / "consensus.csv").read_text().splitlines()
    assert table[0] == "x0,x1,x2,prediction"
    assert float(table[1].split(",")[-1]) == values[0, 0]


@pytest.mark.parametrize("settings", [{}, {"client_fraction": 0.5, "uploads": "stale"}], ids=["all", "stale"])
def test_a_resumed_run_gives_the_same_bits(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Killed before a checkpoint and taken up by clients that know nothing any more: the same consensus."""
    rows = made_rows()
    job, _, files = made_job(tmp_path, **settings)
    peaceful = run(job, files, Bench(from_rows(rows, (), tmp_path)))
    stopped = run(job, files, Bench(from_rows(rows, (), tmp_path)), stop_before=4)
    again = run(job, files, Bench(from_rows(rows, (), tmp_path)), resumed=stopped.journal.last)
    assert (again.values == peaceful.values).all()
    over = run(job, files, Bench(from_rows(rows, (), tmp_path)), resumed=again.journal.last)
    assert (over.values == peaceful.values).all()


def test_the_order_of_answers_changes_no_bit(tmp_path: Path) -> None:
    """Replies in the opposite order give the same consensus."""
    job, _, files = made_job(tmp_path)
    rows = made_rows()
    first, second = (run(job, files, Bench(from_rows(rows, (), tmp_path)), reverse=r) for r in (False, True))
    assert (first.values == second.values).all()


def test_a_client_that_answers_wrongly_is_left_out_of_the_round(tmp_path: Path) -> None:
    """NaN from one client: the others' consensus, as if it had not been there."""
    rows = made_rows()
    job, _, files = made_job(tmp_path, alpha=0.25, deregularise="paper")
    bench = Bench(from_rows(rows, (), tmp_path), tamper={("site-2", "distill.distil"): with_nan})
    found = run(job, files, bench)
    assert isinstance(found.left, PublicConsensus)
    others = {n: r for n, r in rows.items() if n != "site-2"}
    np.testing.assert_allclose(found.values, by_hand(others, found.left.points, 6, alpha=0.25), atol=1e-12)
    assert {e.client for e in found.journal.events if e.kind is EventKind.CLIENT_FAILED} == {"site-2"}


def test_the_public_set_is_sent_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that have it from an earlier job are not sent it again; a damaged copy counts as none."""
    sent: list[str] = []

    def counted(job: LocalJob, request: Any) -> Any:
        sent.append(job.client)
        return keep_public(job, request)

    monkeypatch.setattr("kernfed_client.steps.registry.STEPS", {**_steps(), _request(): counted})
    monkeypatch.setattr("kernfed_testing.in_process.STEPS", {**_steps(), _request(): counted})
    job, _, files = made_job(tmp_path, rounds=1)
    jobs = own_states(made_rows(), tmp_path)
    run(job, files, Bench(jobs))
    assert sent == sorted(jobs)
    run(job, files, Bench(jobs))
    assert sent == sorted(jobs)
    (copy,) = (tmp_path / "site-1" / "public").glob("*.safetensors")
    copy.write_bytes(b"damaged")
    run(job, files, Bench(jobs))
    assert sent[len(jobs) :] == ["site-1"]


def _steps() -> dict[Any, Any]:
    from kernfed_client.steps.registry import STEPS

    return dict(STEPS)


def _request() -> Any:
    from kernfed.methods.distill.messages import KeepPublicSetRequest

    return KeepPublicSetRequest


def test_a_client_that_lost_everything_comes_back(tmp_path: Path) -> None:
    """State and public set gone in the middle of a job: it is sent both again, and misses no round."""
    rows = made_rows()
    job, _, files = made_job(tmp_path, rounds=5)
    jobs = own_states(rows, tmp_path)
    bench = Bench(jobs)
    lost: list[int] = []

    class Losing(RecordingJournal):
        async def checkpoint(self, checkpoint: Checkpoint) -> None:
            if checkpoint.round_num == 2 and not lost:
                lost.append(2)
                for path in (tmp_path / "site-1" / "public").glob("*"):
                    path.unlink()
                jobs["site-1"]._described = None
                jobs["site-1"]._forget_scales()
            await super().checkpoint(checkpoint)

    journal = Losing()
    cohort = bench.cohort(job, journal.event)
    asyncio.run(execute(job, cohort, Run(cohort, journal), read_file=files.__getitem__))
    lost_there = [
        e
        for e in journal.events
        if e.kind is EventKind.NOTE and "was lost or cut short, and is prepared again" in e.message
    ]
    assert [(e.round_num, e.step, e.message.split(":")[0]) for e in lost_there] == [(3, "distill.distil", "site-1")]
    assert not [e for e in journal.events if e.kind is EventKind.CLIENT_FAILED]
    answered = {
        e.round_num
        for e in journal.events
        if e.kind is EventKind.CLIENT_ANSWERED and e.client == "site-1" and e.step == "distill.distil"
    }
    assert answered == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("task", ["binary", "classification"])
def test_classes_are_distilled_as_scores(tmp_path: Path, task: str) -> None:
    """One output for two classes, one per class for more; the artifact names the class."""
    random = np.random.default_rng(4)
    num = 2 if task == "binary" else 3
    centres = random.random((num, 3))
    rows = {}
    for i in range(3):
        y = random.integers(num, size=45)
        y[:num] = np.arange(num)
        x = centres[y] + 0.15 * random.normal(size=(45, 3))
        rows[f"site-{i}"] = Rows(x[:20], y[:20], x[20:], y[20:])
    classes = ("no", "yes") if task == "binary" else ("a", "b", "c")
    job, text, files = made_job(tmp_path, task=task, kernel="gaussian", lengthscale=0.3, ridge=1e-2)
    done = simulate(job, from_rows(rows, classes, tmp_path / "s"), text=text, files=files, out=tmp_path / "out")
    assert done.error is None
    assert isinstance(done.left, PublicConsensus)
    assert done.left.values.shape == (30, 1 if task == "binary" else 3)
    assert done.final.pooled["personal"]["accuracy"] >= done.final.pooled["local"]["accuracy"] - 0.05
    assert (tmp_path / "out" / "consensus.csv").read_text().splitlines()[1].split(",")[3] in classes


def test_one_client_may_learn_from_itself(tmp_path: Path) -> None:
    """A cohort of one runs with alpha 1/2, and says so."""
    job, _, files = made_job(tmp_path, deregularise="paper")
    rows = made_rows(1)
    found = run(job, files, Bench(from_rows(rows, (), tmp_path)))
    assert any("alpha is 0.5" in note for note in found.notes)
    assert isinstance(found.left, PublicConsensus)
    np.testing.assert_allclose(found.values, by_hand(rows, found.left.points, 6, alpha=0.5), atol=1e-12)


def test_repeated_public_points_are_noted(tmp_path: Path) -> None:
    """The job says on how many dimensions it de-regularises."""
    points = np.random.default_rng(2).random((10, 3))
    job, _, files = made_job(tmp_path, points=np.vstack([points, points[:4]]), deregularise="paper")
    found = run(job, files, Bench(from_rows(made_rows(), (), tmp_path)))
    assert any("14 public points is singular" in note and "10 dimensions" in note for note in found.notes)
    np.testing.assert_allclose(found.values[:4], found.values[10:], atol=1e-9)


def test_it_stops_where_it_has_arrived(tmp_path: Path) -> None:
    """With a tolerance the job ends early, at the limit; without enough rounds it says that it still moves."""
    rows = made_rows()
    settings: dict[str, Any] = {"rounds": 2000, "tolerance": 1e-5, "deregularise": False}
    job, _, files = made_job(tmp_path, top="evaluate_every = 2000", **settings)
    found = run(job, files, Bench(from_rows(rows, (), tmp_path)))
    assert found.journal.last is not None
    assert found.journal.last.round_num < 1000
    assert any(note.startswith("end: arrived: in round") for note in found.notes)
    assert isinstance(found.left, PublicConsensus)
    limit = by_hand(rows, found.left.points, 2000, deregularise=False)
    assert np.linalg.norm(found.values - limit) < 1e-4 * np.linalg.norm(limit)
    job, _, files = made_job(tmp_path, rounds=8)
    assert any(
        note.startswith("end: not arrived: still moving")
        for note in run(job, files, Bench(from_rows(rows, (), tmp_path))).notes
    )


def test_policy_decides_over_predictions(tmp_path: Path) -> None:
    """A client that lets no prediction out has nothing sent; no metrics are no obstacle."""
    job, text, files = made_job(tmp_path)
    jobs = own_states(made_rows(), tmp_path)
    for local in jobs.values():
        local.file = local.file.model_copy(
            update={"policy": PolicySection(min_rows=1, allow=["summary", "prediction"])}
        )
    done = simulate(job, jobs, text=text, files=files)
    assert done.error is None
    assert isinstance(done.left, PublicConsensus)
    for local in jobs.values():
        local.file = local.file.model_copy(update={"policy": PolicySection(min_rows=1, allow=["summary", "metric"])})
    refused = simulate(job, jobs, text=text, files=files)
    assert refused.error is not None
    assert "prediction" in str(refused.error)


def test_clients_may_differ_in_kernel_and_say_nothing(tmp_path: Path) -> None:
    """A client with its own kernel and ridge takes part; the job's messages do not tell."""
    job, text, files = made_job(tmp_path, rounds=10, keep="distilled")
    jobs = own_states(made_rows(), tmp_path)
    own = {"models": {"default": {"kind": "kernel-ridge", "kernel": "laplace", "lengthscale": 0.5, "ridge": 0.01}}}
    jobs["site-0"].file = ClientFile.model_validate({"state": tmp_path / "site-0", "policy": {"min_rows": 1}, **own})
    done = simulate(job, jobs, text=text, files=files)
    assert done.error is None
    assert done.final.pooled["personal"]["mse"] < done.final.pooled["local"]["mse"]
    kept = load_kept_model(tmp_path / "site-0" / "model")
    assert kept.details["kernel"] == "laplace"  # type: ignore[attr-defined]  # a private model


def test_too_large_for_a_client_is_refused_before_round_1(tmp_path: Path) -> None:
    """The estimate, the limit and the advice reach the operator; nothing was trained."""
    job, text, files = made_job(tmp_path, num_points=2000)
    jobs = own_states(made_rows(), tmp_path)
    jobs["site-3"].file = jobs["site-3"].file.model_copy(update={"max_memory_bytes": 64 << 20})
    done = simulate(job, jobs, text=text, files=files)
    assert isinstance(done.error, JobError)
    assert "site-3" in str(done.error)
    assert "GiB" in str(done.error)


def test_files_that_are_not_there_are_refused(tmp_path: Path) -> None:
    """A job without its public set does not start."""
    job, _, _ = made_job(tmp_path)
    with pytest.raises(ConfigError, match="kernfed job submit"):
        run(job.model_copy(update={"files": {}}), {}, Bench(from_rows(made_rows(), (), tmp_path)))


@pytest.mark.parametrize(
    ("line", "words"),
    [("alpha = 0.0", "would not count"), ("alpha = 1.0", "method local"), ("memory_exponent = 1.5", "from 0 to 1")],
)
def test_settings_at_their_ends_are_refused_with_reasons(line: str, words: str) -> None:
    """The job file tells what the end would mean."""
    data = '[data]\ntask = "regression"\ntarget = "y"\nfeatures = ["a"]\n'
    text = f'name = "x"\n[method]\nname = "distill"\npublic = "p.csv"\n{line}\n{data}'
    with pytest.raises(ConfigError, match=words):
        parse_job(text)
    with pytest.raises(ConfigError, match=r"remove the \[features\] section"):
        parse_job(text.replace(line, "") + "[features]\nnum_frequencies = 5\n")
    with pytest.raises(ConfigError, match="no other key names"):
        parse_job(text.replace(line, "") + f'[files]\n"q.csv" = "{"0" * 64}"\n')


def test_a_client_that_is_drawn_more_often_moves_the_limit(tmp_path: Path) -> None:
    """The consensus tends to the fixed point of the mean in which each client counts as often as it is drawn."""
    rows = made_rows(2)
    weights = {"site-1": 1 / 19}
    job, _, files = made_job(
        tmp_path,
        deregularise=False,
        rounds=300,
        alpha=0.5,
        client_fraction=0.5,
        participation=weights,
        memory_exponent=0.6,
    )
    found = run(job, files, Bench(from_rows(rows, (), tmp_path)))
    assert isinstance(found.left, PublicConsensus)
    pairs = affine_maps(rows, found.left.points)
    limit, alike = fixed_point([pairs[0]] * 19 + [pairs[1]]), fixed_point(pairs)
    np.testing.assert_allclose(fixed_point(pairs, shares=[0.95, 0.05]), limit, atol=1e-9)
    assert np.abs(found.values - limit).max() < 0.5 * np.abs(alike - limit).max()


def test_clients_count_as_often_as_they_are_drawn(tmp_path: Path) -> None:
    """The record of who stands behind the model says so, and a note names the client that is in nearly every draw."""
    job, _, files = made_job(tmp_path, rounds=2, client_fraction=0.25, participation={"site-1": 57.0})
    done = run(job, files, Bench(from_rows(made_rows(), (), tmp_path)))
    found = [e.finding for e in done.journal.events if e.message == SharesFinding.name and e.finding is not None]
    shares = SharesFinding.from_json(found[0])
    assert shares.by == "how often they are drawn"
    assert [c.share for c in shares.clients] == pytest.approx([1 / 60, 57 / 60, 1 / 60, 1 / 60])
    assert any(note.startswith("site-1 has 95 % of the weight, by how often they are drawn") for note in done.notes)


def test_a_client_of_no_such_name_is_told(tmp_path: Path) -> None:
    """Before anything is asked."""
    job, _, files = made_job(tmp_path, client_fraction=0.5, participation={"gnu": 2.0})
    with pytest.raises(ConfigError, match=r"participation names gnu, and the clients of this job are site-0"):
        run(job, files, Bench(from_rows(made_rows(), (), tmp_path)))
