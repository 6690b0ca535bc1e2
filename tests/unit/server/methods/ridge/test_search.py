"""The ridge by rows that clients keep apart: found, told, kept, and given up where nothing can be measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import ConfigError
from kernfed.federation.messages.base import Kind, Reply
from kernfed.jobs.client_file import ClientFile, PolicySection
from kernfed.jobs.job_file import JobFile
from kernfed.methods.finding import BegunFinding
from kernfed.methods.ridge.messages import HeldOutLossRequest
from kernfed_client.daemon.policy import Policy
from kernfed_simulation.federation import Rows
from kernfed_testing.in_process import bench, label_skewed_rows, make_job, regression_rows

SIZES = {"ant": 200, "bee": 260, "cat": 240}


def noisy(sizes: dict[str, int]) -> dict[str, Rows]:
    """Rows with ten times as much noise as signal, on which the rule by rows is far too weak; test rows have none."""
    draw, found = np.random.default_rng(8), {}
    for name, rows in regression_rows(sizes).items():
        found[name] = replace(rows, y_train=rows.y_train + 10.0 * draw.normal(size=len(rows.y_train)))
    return found


def test_the_ridge_is_chosen_by_rows_kept_apart(tmp_path: Path) -> None:
    """Up on noise, down on clean targets; the model is that of a job with the number, which note and model tell."""
    for data, up in ((noisy(SIZES), True), (regression_rows(SIZES), False)):
        done = bench(data, tmp_path / str(up)).run(make_job("newton", ridge="auto"))
        assert done.model is not None
        ridge = done.model.job["method"]["ridge"]
        assert ridge > 1e-3 if up else ridge < 1e-5
        assert any(f"ridge {ridge:.6g}: predicts" in note and "rows kept apart best" in note for note in done.notes)
        numbered = bench(data, tmp_path / f"{up}2").run(make_job("newton", ridge=ridge))
        assert numbered.weights.tobytes() == done.weights.tobytes()
        by_rows = bench(data, tmp_path / f"{up}3").run(make_job("newton", ridge="by-rows"))
        mse = [d.metrics[-1].pooled for d in (done, by_rows)]
        for model in ("global", "local"):
            assert mse[0][model]["mse"] < mse[1][model]["mse"]


def test_a_cut_changes_no_bit_and_searches_once(tmp_path: Path) -> None:
    """A run that goes on has the number from its checkpoint."""
    job = make_job("newton", ridge="auto", rounds=4, tolerance=1e-12)
    data = regression_rows(SIZES)
    whole = bench(data, tmp_path).run(job)
    cut = bench(data, tmp_path).run(job, stop_before=3)
    rest = bench(data, tmp_path, tamper={("ant", "newton.held_out_loss"): _never}).run(job, resumed=cut.journal.last)
    assert rest.weights.tobytes() == whole.weights.tobytes()
    assert any(note.startswith("ridge ") and "predicts" in note for note in rest.notes)


def test_rows_that_are_right_count_too(tmp_path: Path) -> None:
    """Of several classes a note tells how many rows are wrong; a client of before tells no such number."""

    def former(reply: Reply) -> Reply:
        changed: dict[str, Any] = {"num_correct": 0}
        return replace(reply, **changed)

    rows = label_skewed_rows()
    job = make_job("newton", ridge="auto", task="classification", num_columns=6)
    tampers: list[dict[tuple[str, str], Any]] = [{}, {(name, "newton.held_out_loss"): former for name in rows}]
    for tamper in tampers:
        done = bench(rows, tmp_path / str(len(tamper)), ("red", "green", "blue"), tamper=tamper).run(job)
        told = next(note for note in done.notes if "rows kept apart best" in note)
        assert ("of them are classified wrongly" in told) == (not tamper)


def test_a_client_that_falls_out_is_searched_without(tmp_path: Path) -> None:
    """The others begin anew, and a note names the one that states more rows apart than it has."""

    def wrong(reply: Reply) -> Reply:
        changed: dict[str, Any] = {"num_apart": 10_000}
        return replace(reply, **changed)

    job = make_job("newton", ridge="auto", cohort='preflight = "quorum"')
    done = bench(regression_rows(SIZES), tmp_path, tamper={("bee", "newton.held_out_loss"): wrong}).run(job)
    assert any(note.startswith("the ridge is chosen without bee: ") for note in done.notes)
    assert any("predicts 264 rows kept apart best" in note for note in done.notes)


def test_a_ridge_that_is_not_reached_stays(tmp_path: Path) -> None:
    """Where ten directions do not reach the solution to begin with, nothing is known of it, and no other is taken."""
    rows = regression_rows({f"site-{i:02d}": 40 for i in range(25)}, shift=0.5, num_columns=8)
    job = make_job("newton", frequencies=200, num_columns=8, ridge="auto", rounds=1)
    done = bench(rows, tmp_path).run(job)
    assert any("ridge 0.0003: by the rule, for 10 directions do not reach its solution" in note for note in done.notes)


def test_without_enough_rows_the_rule_stays(tmp_path: Path) -> None:
    """A fifth of 20 rows is fewer than `min_rows`: nobody keeps any apart, and the job says so."""
    federation = bench(regression_rows({"ant": 20, "bee": 22}), tmp_path)
    for name, job in federation.jobs.items():
        job.file = ClientFile(state=tmp_path / name, policy=PolicySection(min_rows=10))
    done = federation.run(make_job("newton", ridge="auto"))
    assert any("by the rule, for no client has enough rows to keep some apart" in note for note in done.notes)


@pytest.mark.parametrize("silent", [("bee",), ("ant", "bee", "cat")])
def test_who_lets_no_losses_out_takes_part(tmp_path: Path, silent: tuple[str, ...]) -> None:
    """Rows of a client whose policy forbids `metric` are trained on; where all forbid it, the rule stays."""
    tamper = {(client, "newton.held_out_loss"): _forbidden for client in silent}
    done = bench(regression_rows(SIZES), tmp_path, tamper=tamper).run(make_job("newton", ridge="auto"))
    told = next(note for note in done.notes if note.startswith("ridge "))
    if len(silent) == len(SIZES):
        assert "by the rule, for it cannot be chosen by rows kept apart: " in told
        assert "can add it to policy.allow" in told
        numbered = make_job("newton", ridge=0.3 / sum(SIZES.values()))
    else:
        assert "predicts 264 rows kept apart best" in told
        assert "of bee none are among these, as their policies let no such errors out" in told
        assert done.model is not None
        numbered = make_job("newton", ridge=done.model.job["method"]["ridge"])
    assert done.weights.tobytes() == bench(regression_rows(SIZES), tmp_path / "again").run(numbered).weights.tobytes()


@pytest.mark.parametrize(("rows", "searched"), [(999, False), (1000, True)])
def test_the_default_searches_from_a_thousand_rows_on(tmp_path: Path, rows: int, searched: bool) -> None:
    """Below, it is the ridge by rows, and a note says from when on it would be chosen."""
    data = regression_rows({"ant": 400, "bee": rows - 400})
    done = bench(data, tmp_path).run(make_job("newton"))
    named = bench(data, tmp_path / "named").run(make_job("newton", ridge="auto" if searched else "by-rows"))
    assert done.weights.tobytes() == named.weights.tobytes()
    assert done.metrics[-1].pooled == named.metrics[-1].pooled
    assert any("from 1000 rows on, rows kept apart choose it" in note for note in done.notes) != searched
    assert any("rows kept apart best" in note for note in done.notes) == searched


@pytest.mark.parametrize("settings", [{"loss": "squared"}, {"step": "paper"}])
def test_the_default_is_by_rows_where_nothing_is_searched(tmp_path: Path, settings: dict[str, Any]) -> None:
    """A head and the paper's step have the ridge by rows, however many rows there are."""
    data = regression_rows({"ant": 500, "bee": 500})
    job = make_job("newton", rounds=1, **settings)
    default, named = (bench(data, tmp_path / str(i)).run(j) for i, j in enumerate((job, _by_rows(job))))
    assert default.weights.tobytes() == named.weights.tobytes()
    assert not any("rows kept apart choose" in note for note in default.notes)


def test_a_run_of_the_former_default_goes_on_by_rows(tmp_path: Path) -> None:
    """A checkpoint of a release that searched nothing by default keeps the ridge by rows, and the job says so."""
    data = regression_rows({"ant": 500, "bee": 500})
    job = make_job("newton", rounds=4, tolerance=1e-12)
    cut = bench(data, tmp_path).run(_by_rows(job), stop_before=3).journal.last
    assert cut is not None
    before = replace(cut, state={**cut.state, "run.rules": np.array([4])})
    rest = bench(data, tmp_path / "rest").run(job, resumed=before)
    assert rest.weights.tobytes() == bench(data, tmp_path / "whole").run(_by_rows(job)).weights.tobytes()
    begun = [e.finding for e in rest.journal.events if e.message == BegunFinding.name]
    assert begun == [{"values": {"method.ridge": "by-rows"}}]


@pytest.mark.parametrize("settings", [{"loss": "squared"}, {"step": "paper"}])
def test_auto_is_refused_where_nothing_is_searched(settings: dict[str, Any]) -> None:
    """A head has a search of its own, and the paper's step has none."""
    with pytest.raises(ConfigError, match=r'ridge = "auto" belongs to loss = "ridge" with step = "auto"'):
        make_job("newton", ridge="auto", **settings)


def _by_rows(job: JobFile) -> JobFile:
    return job.model_copy(update={"method": job.method.model_copy(update={"ridge": "by-rows"})})


def _forbidden(_reply: Reply) -> Reply:
    Policy(PolicySection(allow=tuple(kind for kind in Kind if kind is not Kind.METRIC))).check(
        HeldOutLossRequest, "ann", "newton", 100
    )
    raise AssertionError("the policy lets it out")


def _never(reply: Reply) -> Reply:
    raise AssertionError(f"asked again: {reply}")
