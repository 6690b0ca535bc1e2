"""Statistics of columns, end to end on clients in this process: those of pandas on the pooled rows."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kernfed.federation.messages.base import Kind
from kernfed.jobs.job_file import JobFile
from kernfed.methods.describe.finding import ColumnFacts, DescribeFinding
from kernfed.methods.describe.messages import ValueCounts
from kernfed_simulation.federation import Rows
from kernfed_simulation.run import simulate
from kernfed_testing.in_process import bench, with_nan, with_rows, with_wrong_shape
from kernfed_testing.methods.personalise import clients, without

SIZES = {"ant": 40, "bee": 25, "cat": 33}
NAMES = ["x0", "x1", "x2", "y"]
LEVELS = [0.05, 0.25, 0.5, 0.75, 0.95]
NO_ROWS = np.zeros((0, 3)), np.zeros(0)


def describe_job(data: dict[str, Any] | None = None, **method: Any) -> JobFile:
    """A job on the columns of `rows_of`."""
    columns = {"task": "regression", "target": "y", "features": NAMES[:3], **(data or {})}
    return JobFile.model_validate({"name": "d", "method": {"name": "describe", **method}, "data": columns})


def rows_of(sizes: dict[str, int] | None = None, seed: int = 4) -> dict[str, Rows]:
    """Sites that differ: a number, a number with a large offset, a value of 0, 1 and 2, and a target."""
    random = np.random.default_rng(seed)
    found = {}
    for i, (name, size) in enumerate((sizes or SIZES).items()):
        x = np.column_stack(
            [random.normal(size=size) + i, 1e6 + random.random(size), random.integers(3, size=size).astype(float)]
        )
        found[name] = Rows(x, x[:, 0] + random.normal(size=size), *NO_ROWS)
    return found


def pooled(rows: dict[str, Rows]) -> pd.DataFrame:
    """All rows in one place."""
    parts = [np.column_stack([r.x_train, r.y_train]) for r in rows.values()]
    return pd.DataFrame(np.concatenate(parts), columns=NAMES)


def facts(found: tuple[ColumnFacts, ...]) -> dict[str, ColumnFacts]:
    """By column."""
    return {column.column: column for column in found}


def test_statistics_are_those_of_pandas_on_the_pooled_rows(tmp_path: Path) -> None:
    """All but histograms and quantiles of numbers is exact; these are too where each group is one row."""
    rows = rows_of()
    found: DescribeFinding = bench(rows, tmp_path).run(describe_job()).model.finding
    for frame, told in (
        (pooled(rows), found.pooled),
        *((pooled({name: rows[name]}), found.clients[name]) for name in rows),
    ):
        for name, column in facts(told).items():
            want = frame[name]
            assert column.rows == len(want)
            assert column.mean == pytest.approx(want.mean(), rel=1e-12)
            assert column.deviation == pytest.approx(want.std(), rel=1e-9)
            assert (column.smallest, column.greatest) == (want.min(), want.max())
            assert column.quantiles == pytest.approx(want.quantile(LEVELS).tolist(), rel=1e-9)
            cells = np.clip(want, column.edges[0], column.edges[-1])
            assert list(column.histogram) == np.histogram(cells, np.array(column.edges))[0].tolist()
    assert found.correlations == pytest.approx(pooled(rows).corr().to_numpy(), abs=1e-9)
    assert facts(found.pooled)["x2"].values == {
        f"{value:g}": count for value, count in pooled(rows)["x2"].value_counts().sort_index().items()
    }
    assert facts(found.pooled)["x0"].values == {}


def test_quantiles_of_many_rows_are_near(tmp_path: Path) -> None:
    """Of 3 x 2,000 rows in 100 groups each, a quantile is within a hundredth of a deviation of the right one."""
    rows = rows_of(dict.fromkeys(SIZES, 2000))
    found = bench(rows, tmp_path).run(describe_job()).model.finding
    want = pooled(rows)["x0"]
    assert facts(found.pooled)["x0"].quantiles == pytest.approx(want.quantile(LEVELS).tolist(), abs=0.01 * want.std())


def test_classes_are_counted(tmp_path: Path) -> None:
    """A target with classes has no mean, and takes part in no correlation."""
    rows = {
        name: Rows(r.x_train, (r.y_train > 1).astype(int), NO_ROWS[0], np.zeros(0, int))
        for name, r in rows_of().items()
    }
    job = describe_job(data={"task": "binary", "classes": ["no", "yes"]})
    found = bench(rows, tmp_path, ("no", "yes")).run(job).model.finding
    sick = sum(int(r.y_train.sum()) for r in rows.values())
    assert found.pooled[-1] == ColumnFacts("y", 98, values={"no": 98 - sick, "yes": sick})
    assert found.correlated == ("x0", "x1", "x2")


def test_no_row_is_held_out_and_none_moves(tmp_path: Path) -> None:
    """A row of 1e9 in a column of numbers near 0 counts as it is, where the policy asks for no more than one row."""
    rows = rows_of()
    rows["bee"].x_train[3, 0] = 1e9
    found = bench(rows, tmp_path).run(describe_job()).model.finding
    assert facts(found.pooled)["x0"].greatest == 1e9
    assert facts(found.pooled)["x0"].mean == pytest.approx(pooled(rows)["x0"].mean(), rel=1e-12)


def test_order_of_clients_does_not_matter_and_a_killed_run_goes_on(tmp_path: Path) -> None:
    """The same bits; a run that is resumed behind its round asks nobody again."""
    rows, job = rows_of(), describe_job()
    first = bench(rows, tmp_path).run(job)
    second = bench(dict(reversed(rows.items())), tmp_path).run(job, reverse=True)
    assert json.dumps(first.model.finding.to_json()) == json.dumps(second.model.finding.to_json())
    stopped = bench(rows, tmp_path).run(job, stop_before=1)
    assert stopped.stopped
    again = bench(rows, tmp_path).run(job, resumed=stopped.journal.last)
    assert again.model.finding == first.model.finding
    over = bench(rows, tmp_path).run(job, resumed=first.journal.last)
    assert over.model.finding == first.model.finding
    assert over.journal.checkpoints == []


def spoilt(**changes: Any) -> Any:
    """A reply with other numbers."""
    return lambda reply: replace(reply, **{name: change(getattr(reply, name)) for name, change in changes.items()})


WRONG: dict[str, tuple[Any, str]] = {
    "nan": (with_nan, "NaN"),
    "shape": (with_wrong_shape, "shape"),
    "rows": (with_rows(7), "states? 7 rows|is 7"),
    "groups": (spoilt(group_rows=lambda a: a + 1), "in groups"),
    "order": (spoilt(group_means=lambda a: -a), "not in their order"),
    "mean": (spoilt(mean=lambda a: a + 1), "not that of its groups"),
    "deviation": (spoilt(deviation=lambda a: a * 1e-3), "below that of the means"),
    "spread": (spoilt(deviation=lambda a: a * 1000), "beyond all that rows"),
    "smallest": (spoilt(smallest=lambda a: a * 0 - 1e30), "smallest or greatest value"),
    "greatest": (spoilt(greatest=lambda a: a * 1000 + 1e7), "smallest or greatest value"),
    "counted": (
        spoilt(value_counts=lambda a: (*a[:2], replace(a[2], values=tuple(1000 * v for v in a[2].values)), a[3])),
        "below its smallest ones, or above",
    ),
    "negative": (spoilt(deviation=lambda a: -a), "below 0"),
    "gaps": (spoilt(gaps=lambda _: (1, 2)), "gaps of 2 columns"),
    "classes": (spoilt(class_counts=lambda _: (40,)), "40 of all classes"),
    "columns": (spoilt(value_counts=lambda a: a[1:]), "the values of 3 columns"),
    "values": (
        spoilt(value_counts=lambda a: (*a[:3], ValueCounts(values=(1.0,), counts=(9,), others=0))),
        "of all values",
    ),
    "unequal": (spoilt(value_counts=lambda a: (*a[:3], ValueCounts(values=(1.0,), counts=(), others=0))), "not one"),
    "many": (
        spoilt(
            value_counts=lambda a: (
                *a[:3],
                ValueCounts(values=tuple(i / 100.0 for i in range(25)), counts=(1,) * 25, others=0),
            )
        ),
        "more than 20 values",
    ),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_client_that_answers_wrongly_is_left_out_and_named(tmp_path: Path, fault: str) -> None:
    """Statistics are of the others, who are told apart in a note."""
    tamper, why = WRONG[fault]
    rows, job = rows_of(), describe_job()
    outcome = bench(rows, tmp_path, tamper={("bee", "describe.columns"): tamper}).run(job)
    assert set(outcome.model.finding.clients) == {"ant", "cat"}
    assert outcome.model.finding.pooled[0].rows == 73
    (failed,) = [e for e in outcome.journal.events if e.kind == "client-failed"]
    assert failed.client == "bee"
    assert re.search(why, failed.message)
    assert any("without bee" in note for note in outcome.notes)


@pytest.mark.parametrize("change", [lambda r: r * 2, lambda r: r + np.triu(0.1 * np.ones_like(r), 1)])
def test_correlations_that_none_are_leave_their_client_out_of_them(tmp_path: Path, change: Any) -> None:
    """Its columns count all the same."""
    rows, job = rows_of(), describe_job()
    tamper = {("bee", "describe.pairs"): spoilt(correlations=change)}
    outcome = bench(rows, tmp_path, tamper=tamper).run(job)
    assert outcome.model.finding.correlations_of == ("ant", "cat")
    assert set(outcome.model.finding.clients) == set(SIZES)


def test_a_client_may_keep_its_correlations_back(tmp_path: Path) -> None:
    """A policy without sufficient statistics leaves the rest; where nobody tells them a note says so."""
    rows, job = rows_of(), describe_job()
    one = clients(rows, tmp_path / "one", bee=without(Kind.SUFFICIENT_STATISTIC))
    done = simulate(job, one, out=tmp_path / "out")
    assert done.error is None
    told = json.loads((tmp_path / "out" / "describe.json").read_text())
    assert told["correlations_of"] == ["ant", "cat"]
    assert set(told["clients"]) == set(SIZES)
    keeping = without(Kind.SUFFICIENT_STATISTIC)
    every = clients(rows, tmp_path / "all", ant=keeping, bee=keeping, cat=keeping)
    done = simulate(job, every)
    assert done.error is None
    assert any("no correlations" in e.event.message for e in done.events)


def test_correlations_may_be_left_alone(tmp_path: Path) -> None:
    """Nobody is asked for them."""
    outcome = bench(rows_of(), tmp_path).run(describe_job(correlations=False))
    assert outcome.model.finding.correlations == ()
    assert not [e for e in outcome.journal.events if e.step == "describe.pairs"]
