"""Methods end to end, on clients in this process."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import DivergedError, JobError, QuorumNotMetError
from kernfed.federation.events import EventKind
from kernfed.jobs.job_file import JobFile
from kernfed.methods.registry import METHODS
from kernfed_server.methods.registry import WORKFLOWS
from kernfed_testing.in_process import (
    FOUR,
    INDEPENDENT,
    bench,
    make_job,
    regression_rows,
    with_nan,
    with_rows,
    with_wrong_shape,
)


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


def test_too_few_clients_left_is_an_error_that_names_each(tmp_path: Path) -> None:
    """Below the quorum the round fails, and the error says who did what."""
    rows = regression_rows(FOUR)
    tamper = {(name, "ridge.local_solve"): with_nan for name in ("ant", "bee", "cat")}
    with pytest.raises(QuorumNotMetError, match=r"(?s)1 of 2 clients.*ant: INVALID_TENSOR.*bee.*cat"):
        bench(rows, tmp_path, tamper=tamper).run(make_job("dkrr"))


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


@pytest.mark.parametrize("method", ["fedavg", "fedprox"])
def test_rounds_may_begin_at_the_one_shot_average(tmp_path: Path, method: str) -> None:
    """Where a step hardly moves, one round from the dkrr average is that average, and one from 0 is 0."""
    federation = bench(regression_rows(FOUR), tmp_path)
    still: dict[str, Any] = {"learning_rate": 1e-9} if method == "fedavg" else {"proximal": 1e6}
    found = {}
    for begin in ("zero", "dkrr"):
        model = federation.run(make_job(method, rounds=1, begin=begin, ridge=1e-3, **still)).model
        assert model is not None
        found[begin] = model.weights
    one_shot = federation.run(make_job("dkrr", ridge=1e-3)).model
    assert one_shot is not None
    np.testing.assert_allclose(found["dkrr"], one_shot.weights, rtol=1e-3)
    assert np.abs(found["zero"]).max() < 1e-3 * np.abs(found["dkrr"]).max()


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
    assert re.search("check this client's data|states a (solve|Hessian product|gradient)", failed[0].message)
    assert np.linalg.norm(outcome.weights) < 10 * np.linalg.norm(honest.weights)
    assert outcome.metrics[-1].pooled["global"]["mse"] < 3


@pytest.mark.parametrize(("rate", "rounds"), [(1e30, 3), (1e300, 2), (1e3, 8)])
def test_a_learning_rate_that_overflows_ends_diverged(tmp_path: Path, rate: float, rounds: int) -> None:
    """A job that moves out of the range of numbers ends DIVERGED, with the key to lower."""
    job = make_job("fedavg", learning_rate=rate, rounds=rounds, local_steps=2)
    with pytest.raises(DivergedError, match=r"lower method\.learning_rate"):
        bench(regression_rows({"ant": 40, "bee": 30, "cat": 20}), tmp_path).run(job)
