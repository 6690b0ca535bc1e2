"""Rules that stand for numbers: found once, kept by restarts, told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernfed.federation.events import EventKind
from kernfed.methods.finding import BegunFinding
from kernfed_simulation.federation import from_rows
from kernfed_simulation.run import simulate
from kernfed_testing.in_process import bench, make_job, regression_rows

SIZES = {"ant": 300, "bee": 400, "cat": 300}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["newton", "dkrr", "fedavg", "fedprox"])
def test_the_rule_is_the_number_of_all_rows(tmp_path: Path, method: str) -> None:
    """A job by the rule leaves the model of a job with that number; its note and its model tell it."""
    rows = regression_rows(SIZES)
    by_rows, by_number = (
        bench(rows, tmp_path).run(job)
        for job in (make_job(method, ridge="by-rows"), make_job(method, ridge=0.3 / 1000))
    )
    assert by_rows.weights.tobytes() == by_number.weights.tobytes()
    assert by_rows.model is not None
    assert by_rows.model.job["method"]["ridge"] == 0.3 / 1000
    assert any("ridge 0.0003: by the rule for 1000 training rows" in note for note in by_rows.notes)
    assert not any("by the rule" in note for note in by_number.notes)


def test_a_client_alone_has_the_ridge_of_its_own_rows(tmp_path: Path) -> None:
    """`local` of a job by the rule is the model of a job of that client only."""
    rows = regression_rows(SIZES)
    together = bench(rows, tmp_path / "all").run(make_job("newton", rounds=1, ridge="by-rows"))
    for name in rows:
        single = bench({name: rows[name]}, tmp_path / name).run(make_job("newton", rounds=10, ridge="by-rows"))
        alone = single.metrics[-1].clients[name]["global"]["mse"]
        assert together.metrics[-1].clients[name]["local"]["mse"] == pytest.approx(alone, rel=1e-6)


def test_a_restart_keeps_the_number_though_a_client_is_gone(tmp_path: Path) -> None:
    """The number is of the rows with which the job began; a job that began before the rule keeps its ridge."""
    rows = regression_rows(SIZES)
    job = make_job("fedavg", rounds=4, cohort='preflight = "quorum"')
    first = bench(rows, tmp_path).run(job, stop_before=3)
    last = first.journal.last
    assert last is not None
    assert last.state["run.rule.ridge"] == pytest.approx(3e-4)
    left = {name: rows[name] for name in ("ant", "bee")}
    again = bench(left, tmp_path).run(job, resumed=last)
    assert any("ridge 0.0003:" in note for note in again.notes)
    former = replace(last, state={k: v for k, v in last.state.items() if k != "run.rule.ridge"})
    stored = bench(rows, tmp_path).run(job, resumed=former)
    numbered = bench(rows, tmp_path).run(make_job("fedavg", rounds=4, ridge=1e-3), resumed=former)
    assert stored.weights.tobytes() == numbered.weights.tobytes()
    assert not any("anew" in note for note in again.notes)
    earlier = replace(last, state={k: v for k, v in last.state.items() if not k.startswith("run.agreement.")})
    anew = bench(left, tmp_path).run(job, resumed=earlier)  # of a release whose checkpoints did not hold the agreement
    assert any("ridge 0.0003: by the rule for the rows with which the job began" in note for note in anew.notes)
    assert any("ridge 0.001: the job began before there was a rule" in note for note in stored.notes)
    assert not any("by the rule" in note for note in stored.notes)


@pytest.mark.parametrize(("rules", "split"), [(0, "row-by-row"), (2, "copies-together"), (3, "by-content"), (4, None)])
def test_a_job_of_before_says_how_it_holds_rows_out(tmp_path: Path, rules: int, split: str | None) -> None:
    """A run goes on by the split of the release that began it, and publishes that in place of today's default."""
    rows = regression_rows(SIZES)
    job = make_job("fedavg", rounds=3)
    last = bench(rows, tmp_path).run(job, stop_before=2).journal.last
    assert last is not None
    before = replace(last, state={**last.state, "run.rules": np.array([rules])})
    resumed = bench(rows, tmp_path).run(job, resumed=before)
    begun = [e.finding for e in resumed.journal.events if e.message == BegunFinding.name]
    assert begun == ([] if split is None else [{"values": {"data.split": split}}])
    for found in begun:
        assert found is not None
        told = BegunFinding.from_json(found).put_into(job.plan())
        assert told == {**job.plan(), "data": {**job.plan()["data"], "split": split}}


def test_the_record_names_rule_and_number(tmp_path: Path) -> None:
    """`job.json` has the rule among its settings, and the number beside it; the report shows both."""
    rows = regression_rows(SIZES)
    job = make_job("dkrr")
    done = simulate(job, from_rows(rows, (), tmp_path / "state"), out=tmp_path / "out")
    told = json.loads((tmp_path / "out" / "job.json").read_text())
    assert told["settings"]["method"]["ridge"] == "by-rows"
    assert told["resolved"] == {"method.ridge": 0.3 / 1000}
    assert any(e.event.kind is EventKind.FINDING for e in done.events)
    pooled = done.final.pooled
    assert np.isfinite(pooled["central"]["mse"])
    by_number = simulate(make_job("dkrr", ridge=0.3 / 1000), from_rows(rows, (), tmp_path / "two"))
    assert by_number.final.pooled["central"] == pooled["central"]
