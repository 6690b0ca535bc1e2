"""Ridge and lengthscale of a job: chosen by rows that are left out, with the say of clients bounded, and kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import WireError
from kernfed.features.kernels import KernelSpec, PointKernel
from kernfed.federation.events import EventKind
from kernfed.federation.messages.base import Reply, Stated
from kernfed.jobs.client_file import ClientFile, PolicySection
from kernfed.methods.distill.messages import LeftOutErrors, LeftOutErrorsRequest
from kernfed_client.methods.distill.tuning import leave_out
from kernfed_server.jobs.state import State
from kernfed_server.methods.distill.tuning import FACTORS, PENALTIES, least, resumed
from kernfed_simulation.federation import Rows, from_rows
from kernfed_simulation.run import simulate
from kernfed_testing.in_process import Bench
from kernfed_testing.methods.distill import made_job, made_rows, run

OPEN: dict[str, Any] = {"kernel": "gaussian", "lengthscale": "auto", "ridge": "auto", "intercept": True, "rounds": 30}
PLAIN: dict[str, Any] = {**OPEN, "lengthscale": "median", "ridge": 1e-3}


def wavy_rows(seed: int = 0) -> dict[str, Rows]:
    """Three clients of 40, 60 and 25 rows of a function that bends more than a median lengthscale does."""
    random = np.random.default_rng(seed)
    rows = {}
    for name, num, centre in (("a", 40, (-0.8, 0.5, 0.0)), ("b", 60, (0.6, 0.6, 0.0)), ("c", 25, (0.2, -1.0, 0.0))):
        x = random.normal(size=(num + 200, 3)) * (1.1, 1.1, 0.1) + centre
        y = 106 + 10 * np.sin(1.7 * x[:, 0] + 0.5) * np.cos(1.7 * x[:, 1]) + 5 * np.tanh(x[:, 0] + x[:, 1])
        y += random.normal(size=len(x))
        rows[name] = Rows(x[:num], y[:num], x[num:], y[num:])
    return rows


def test_what_is_chosen_is_better_told_and_kept(tmp_path: Path) -> None:
    """Errors fall to below half at each kind of model, and note and finding say what was chosen."""
    points = np.random.default_rng(5).normal(size=(60, 3)) * (1.4, 1.4, 0.1)
    found = {}
    for name, settings in (("chosen", OPEN), ("plain", PLAIN)):
        (tmp_path / name).mkdir()
        job, text, files = made_job(tmp_path / name, points=points, top="evaluate_every = 30", **settings)
        out = tmp_path / name / "out"
        done = simulate(job, from_rows(wavy_rows(), (), tmp_path / name / "s"), text=text, files=files, out=out)
        assert done.error is None
        finding = json.loads((out / "findings.json").read_text())["distillation"]
        notes = [e.event.message for e in done.events if e.event.kind is EventKind.NOTE]
        found[name] = done.final.pooled, finding, [note for note in notes if note.startswith("ridge")]
    chosen, plain = found["chosen"], found["plain"]
    for model in ("personal", "central"):
        assert chosen[0][model]["mse"] < 0.5 * plain[0][model]["mse"]
    assert chosen[0]["personal"]["mse"] < chosen[0]["local"]["mse"]
    assert plain[1]["ridge"] == 1e-3
    assert plain[2] == []
    scale, median = chosen[1]["lengthscales"][0], plain[1]["lengthscales"][0]
    assert any(scale == pytest.approx(factor * median, rel=1e-12) for factor in FACTORS[1:])
    assert any(chosen[1]["ridge"] * 125 == pytest.approx(penalty, rel=1e-12) for penalty in PENALTIES)
    (note,) = chosen[2]
    assert note.startswith(f"ridge {chosen[1]['ridge']:.3g} and lengthscale {scale:.4g}, ")


def test_one_of_both_may_be_given(tmp_path: Path) -> None:
    """A ridge that is given stays, and so does a lengthscale."""
    rows = made_rows(3, 20)
    job, text, files = made_job(tmp_path, **{**OPEN, "ridge": 0.02, "rounds": 2})
    done = simulate(job, from_rows(rows, (), tmp_path / "s"), text=text, files=files, out=tmp_path / "a")
    assert json.loads((tmp_path / "a" / "findings.json").read_text())["distillation"]["ridge"] == 0.02
    job, text, files = made_job(tmp_path, **{**OPEN, "lengthscale": 0.9, "rounds": 2})
    done = simulate(job, from_rows(rows, (), tmp_path / "s"), text=text, files=files, out=tmp_path / "b")
    assert done.error is None
    assert json.loads((tmp_path / "b" / "findings.json").read_text())["distillation"]["lengthscales"] == [0.9]


def test_clients_may_have_no_say(tmp_path: Path) -> None:
    """One whose policy forbids it, or that has too few rows, does not choose; without any the plain rule holds."""
    rows = made_rows(3, 20)
    few = rows["site-2"]
    rows["site-2"] = replace(few, x_train=few.x_train[:2], y_train=few.y_train[:2])
    job, text, files = made_job(tmp_path, **{**OPEN, "rounds": 2})
    jobs = from_rows(rows, (), tmp_path / "s")
    silent = PolicySection(min_rows=1, allow=["summary", "mean_embedding", "prediction"])
    jobs["site-0"].file = ClientFile(state=tmp_path / "s" / "site-0", policy=silent)
    done = simulate(job, jobs, text=text, files=files, out=tmp_path / "out")
    assert done.error is None
    assert all((local.folder / "model" / "model.json").is_file() for local in jobs.values())
    notes = [e.event.message for e in done.events if e.event.kind is EventKind.NOTE]
    assert any(note.startswith("ridge") and "site-0, site-2 had no say" in note for note in notes)
    for name, local in jobs.items():
        local.file = ClientFile(state=tmp_path / "s" / name, policy=silent)
    done = simulate(job, jobs, text=text, files=files, out=tmp_path / "out")
    assert done.error is None
    notes = [e.event.message for e in done.events if e.event.kind is EventKind.NOTE]
    assert any(note.startswith("ridge 0.001 and the median lengthscale, for they cannot be chosen") for note in notes)


def errors_of(values: Any, used: int = 10) -> LeftOutErrors:
    return LeftOutErrors(num_rows=used, num_used=used, squared_errors=np.array(values, dtype=np.float64))


def test_the_least_sum_is_taken_and_ties_go_to_the_first() -> None:
    """Rounding does not choose between equal errors."""
    replies = {"a": errors_of([[3.0, 2.0], [5.0, 1.0]]), "b": errors_of([[1.0, 1.0 + 1e-14], [4.0, 2.0 - 1e-14]])}
    assert least(replies, None) == (0, 1)
    assert least({"a": errors_of([[9.0, 8.0, 8.0 * (1 - 1e-15)]])}, None) == (0, 1)


def test_no_client_alone_rules_out_a_choice() -> None:
    """Absurd errors count no more than twice those of the mean, by the deviation of all targets."""
    honest = {name: errors_of([[9.0, 2000.0, 500.0]]) for name in ("a", "b", "c", "d")}
    foe = errors_of([[1e90, 0.0, 0.0]])
    assert least({**honest, "e": foe}, np.array([3.0])) == (0, 0)
    assert least({**honest, "e": foe}, None) == (0, 2)


def test_wrong_counts_and_negative_errors_contradict_themselves() -> None:
    """Such a reply is refused, whoever sends it."""
    assert list(errors_of([[1.0]]).contradictions(Stated())) == []
    assert list(replace(errors_of([[1.0]]), num_used=11).contradictions(Stated()))
    assert list(errors_of([[-1.0]]).contradictions(Stated()))


def test_grids_of_the_coordinator_are_checked(tmp_path: Path) -> None:
    """No client computes for ever, or with a penalty of 0."""
    job, _, files = made_job(tmp_path, rounds=1)
    jobs = from_rows(made_rows(2), (), tmp_path / "s")
    assert simulate(job, jobs, files=files).error is None
    kernel = KernelSpec(PointKernel.GAUSSIAN, (1.0,), False)
    good = LeftOutErrorsRequest(
        num_outputs=1, kernel=kernel, free_intercept=True, factors=np.ones(1), penalties=np.ones(2), seed=1
    )
    found = leave_out(jobs["site-0"], good)
    assert found.squared_errors.shape == (1, 2)
    assert found.num_used == 12
    for wrong in (
        replace(good, penalties=np.zeros(2)),
        replace(good, factors=np.ones(101)),
        replace(good, factors=np.ones(0)),
    ):
        with pytest.raises(WireError, match="a grid of"):
            leave_out(jobs["site-0"], wrong)


def test_a_resumed_run_keeps_its_choice(tmp_path: Path) -> None:
    """Even if clients would choose otherwise now: the choice is in the checkpoint."""
    rows = made_rows(3, 20)
    job, _, files = made_job(tmp_path, **{**OPEN, "rounds": 5})
    peaceful = run(job, files, Bench(from_rows(rows, (), tmp_path)))
    stopped = run(job, files, Bench(from_rows(rows, (), tmp_path)), stop_before=3)

    def turned(reply: Reply) -> Reply:
        assert isinstance(reply, LeftOutErrors)
        return replace(reply, squared_errors=10.0 - reply.squared_errors)

    tamper = {(name, "distill.leave_out"): turned for name in rows}
    again = run(job, files, Bench(from_rows(rows, (), tmp_path), tamper=tamper), resumed=stopped.journal.last)
    assert (again.values == peaceful.values).all()
    assert again.journal.last is not None
    kept = resumed(State(again.journal.last.state))
    assert kept is not None
    assert kept.pooled_penalty
