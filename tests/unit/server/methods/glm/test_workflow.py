"""Generalised linear models, end to end on clients in this process: those of statsmodels on the pooled rows."""

from __future__ import annotations

import importlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import kernfed
from kernfed.arrays import Floats
from kernfed.errors import DataError, JobError, NotConvergedError
from kernfed.jobs.job_file import JobFile
from kernfed.methods.glm.finding import GlmFinding
from kernfed.models.global_model import load_model
from kernfed.tables.records import mixed
from kernfed_client.data.guards.records import Records
from kernfed_client.data.reading.partition_data import PartitionData
from kernfed_simulation.federation import Rows, from_tables
from kernfed_testing.in_process import Bench, bench, with_nan
from kernfed_testing.methods.glm import CLASSES, NAMES, finding, fitted, glm_job, rows_of, spoilt
from kernfed_testing.methods.personalise import clients

KEYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "offset": {"offset": "x2"},
    "weights": {"weights": "x2"},
    "origin": {"intercept": False},
    "robust": {"errors": "robust", "confidence": 0.9},
}


def statsmodels() -> Any:
    """The oracle; where tests count, it has to be there."""
    return importlib.import_module("statsmodels.api") if "CI" in os.environ else pytest.importorskip("statsmodels.api")


def oracle(rows: dict[str, Rows], job: JobFile, groups: Floats | None = None) -> Any:
    """The fit of all rows in one place."""
    sm, settings = statsmodels(), job.method
    x, y = (np.concatenate([getattr(r, name) for r in rows.values()]) for name in ("x_train", "y_train"))
    family, apart = settings.family, (settings.offset, settings.weights)  # type: ignore[attr-defined]  # a glm
    design = x[:, [j for j, name in enumerate(NAMES) if name not in apart]]
    if settings.intercept:  # type: ignore[attr-defined]  # a glm
        design = np.column_stack([np.ones(len(x)), design])
    families = sm.families
    kinds = {
        "gaussian": families.Gaussian(),
        "binomial": families.Binomial(),
        "poisson": families.Poisson(),
        "gamma": families.Gamma(families.links.Log()),
    }
    given = {name: x[:, 2] for name, key in (("offset", apart[0]), ("var_weights", apart[1])) if key}
    model = sm.GLM(y.astype(float), design, family=kinds[family], **given)
    if settings.errors == "robust":  # type: ignore[attr-defined]  # a glm
        by = np.arange(len(y)) if groups is None else groups
        return model.fit(tol=1e-14, maxiter=200, cov_type="cluster", cov_kwds={"groups": by})
    return model.fit(tol=1e-14, maxiter=200, use_t=family in ("gaussian", "gamma"))


def same(found: GlmFinding, want: Any) -> None:
    """Every number of the finding is that of the oracle, to 1e-8."""
    table = found.coefficients
    near: dict[str, Any] = {"rel": 1e-8, "abs": 1e-8}
    assert [c.estimate for c in table] == pytest.approx(want.params.tolist(), **near)
    assert [c.error for c in table] == pytest.approx(want.bse.tolist(), **near)
    assert [c.statistic for c in table] == pytest.approx(want.tvalues.tolist(), **near)
    assert [c.p_value for c in table] == pytest.approx(want.pvalues.tolist(), **near)
    interval = want.conf_int(alpha=1.0 - found.confidence)
    assert [[c.low, c.high] for c in table] == [pytest.approx(row, **near) for row in interval.tolist()]
    assert np.array(found.covariance) == pytest.approx(want.cov_params(), **near)
    assert found.deviance == pytest.approx(want.deviance, **near)
    assert found.pearson == pytest.approx(want.pearson_chi2, **near)
    assert found.dispersion == pytest.approx(want.scale, **near)
    assert found.log_likelihood == pytest.approx(want.llf, **near)
    assert found.aic == pytest.approx(want.aic, **near)
    assert (found.rows, found.freedom) == (want.nobs, want.df_resid)
    if found.null_deviance is not None:
        assert found.null_deviance == pytest.approx(want.null_deviance, **near)


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson", "gamma"])
def test_numbers_are_those_of_statsmodels_on_the_pooled_rows(tmp_path: Path, family: str, keys: str) -> None:
    """Coefficients, errors, tests, intervals, deviances and likelihood, in the columns' own units."""
    rows, job = rows_of(family), glm_job(family, **KEYS[keys])
    found = finding(fitted(rows, job, tmp_path))
    same(found, oracle(rows, job))
    assert found.family == family


def test_robust_errors_by_group_are_those_of_statsmodels(tmp_path: Path) -> None:
    """Rows of a patient count together, at each site apart."""
    rows, job = rows_of("poisson"), glm_job("poisson", errors="robust")
    tables, groups, before = {}, [], 0
    for name, r in rows.items():
        of_rows = np.arange(len(r.y_train)) // 3
        numbers = np.arange(1, len(of_rows) + 1)
        tables[name] = (
            PartitionData(
                r.x_train,
                None,
                r.y_train,
                0,
                numbers,
                records=Records.of_words(mixed(of_rows.astype(np.uint64)), of_rows),
            ),
            None,
        )
        groups.append(of_rows + before)
        before += len(of_rows)
    found = finding(Bench(from_tables(tables, tmp_path)).run(job))
    same(found, oracle(rows, job, np.concatenate(groups)))
    assert (found.errors, found.groups) == ("robust by group", 14 + 9 + 11)


def test_scores_far_beyond_all_others_are_told_of(tmp_path: Path) -> None:
    """They make robust errors too large, and groups of rows differ honestly: so they count, and a note says whose."""
    rows, job = rows_of("poisson"), glm_job("poisson", errors="robust")
    outcome = fitted(rows, job, tmp_path, tamper={("bee", "glm.end"): spoilt(scores=lambda a: 1000 * a)})
    assert any("bee states a square of scores by row of" in note for note in outcome.notes)
    assert not any("square of scores" in note for note in fitted(rows, job, tmp_path).notes)


@pytest.mark.parametrize(("family", "keys"), [("poisson", "offset"), ("binomial", "plain"), ("gamma", "weights")])
def test_the_model_predicts_means(tmp_path: Path, family: str, keys: str) -> None:
    """From rows in their own units, with the offset and without weights; saved and loaded."""
    rows, job = rows_of(family), glm_job(family, **KEYS[keys])
    outcome = fitted(rows, job, tmp_path)
    outcome.model.save(tmp_path / "left", durable=False)
    model = load_model(tmp_path / "left")
    names = NAMES[:2] if keys == "weights" else NAMES
    assert model.feature_names == tuple(names)
    x = np.concatenate([r.x_train for r in rows.values()])
    scores = model.predict_scores(x[:, : len(names)])[:, 0]
    assert scores == pytest.approx(oracle(rows, job).fittedvalues, rel=1e-8)
    lines = (tmp_path / "left" / "coefficients-table.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines[1:3]] == ["(intercept)", "x0"]


def test_order_of_clients_does_not_matter_and_a_killed_run_goes_on(tmp_path: Path) -> None:
    """The same bits, stopped in any round."""
    rows, job = rows_of("poisson"), glm_job("poisson")
    first = fitted(rows, job, tmp_path)
    second = bench(dict(reversed(rows.items())), tmp_path).run(job, reverse=True)
    assert finding(first) == finding(second)
    for stop in (1, 3, finding(first).iterations):
        stopped = bench(rows, tmp_path).run(job, stop_before=stop)
        again = bench(rows, tmp_path).run(job, resumed=stopped.journal.last)
        assert finding(again) == finding(first)
    over = bench(rows, tmp_path).run(job, resumed=first.journal.last)
    assert over.model.others["coefficients"] == first.model.others["coefficients"]


@pytest.mark.parametrize(
    ("step", "tamper"),
    [
        ("glm.start", spoilt(numerator=lambda _: float("nan"))),
        ("glm.sums", with_nan),
        ("glm.sums", spoilt(hessian=lambda a: -a)),
        ("glm.sums", spoilt(hessian=lambda a: a + np.triu(a, 1))),
        ("glm.sums", spoilt(deviance=lambda d: -d - 1)),
        ("glm.sums", spoilt(num_rows=lambda n: n + 1)),
        ("glm.start", spoilt(numerator=lambda a: 1000 * a)),
        ("glm.start", spoilt(numerator=lambda a: a * 0 - 1e30)),
        ("glm.start", spoilt(weight=lambda a: 1000 * a)),
        ("glm.sums", spoilt(hessian=lambda a: 1000 * a)),
        ("glm.sums", spoilt(deviance=lambda d: 1000 * d)),
        ("glm.sums", spoilt(pearson=lambda p: 1000 * p)),
    ],
)
def test_a_client_that_answers_wrongly_is_out_of_the_problem(tmp_path: Path, step: str, tamper: Any) -> None:
    """The model is that of the others' rows, and a note says so."""
    rows, job = rows_of("gaussian"), glm_job("gaussian")
    outcome = fitted(rows, job, tmp_path, tamper={("bee", step): tamper})
    others = {name: r for name, r in rows.items() if name != "bee"}
    found, want = finding(outcome), finding(fitted(others, job, tmp_path))
    assert [c.estimate for c in found.coefficients] == pytest.approx([c.estimate for c in want.coefficients], rel=1e-9)
    assert found.rows == 73
    assert found.null_deviance in (None, pytest.approx(want.null_deviance, rel=1e-9))
    assert any("bee is out of the pooled problem" in note for note in outcome.notes)


def test_a_client_that_is_lost_at_the_end_fails_the_job(tmp_path: Path) -> None:
    """Standard errors of other rows than the coefficients' would be wrong in silence."""
    with pytest.raises(DataError, match="a client was lost while standard errors"):
        fitted(
            rows_of("gaussian"),
            glm_job("gaussian"),
            tmp_path,
            tamper={("bee", "glm.end"): spoilt(information=lambda a: -a)},
        )


def test_separation_is_told_and_names_the_column(tmp_path: Path) -> None:
    """Classes that a column tells apart have no coefficients."""
    rows = {name: replace(r, y_train=(r.x_train[:, 1] > 1000.0).astype(int)) for name, r in rows_of("binomial").items()}
    with pytest.raises(NotConvergedError, match=r"coefficients of x1 grow without end.*separation"):
        fitted(rows, glm_job("binomial"), tmp_path)


def test_separation_is_told_before_a_client_refuses(tmp_path: Path) -> None:
    """A site with min_rows of 10 is still in the problem when the coordinator names the column."""
    rows = {
        name: replace(r, y_train=(r.x_train[:, 0] > 1.0).astype(int))
        for name, r in rows_of("binomial", sizes={"ant": 100, "bee": 100}).items()
    }
    jobs = clients(rows, tmp_path, CLASSES["binomial"], ant={"min_rows": 10}, bee={"min_rows": 10})
    with pytest.raises(NotConvergedError, match=r"coefficients of x0 grow without end.*separation"):
        Bench(jobs).run(glm_job("binomial"))


def test_a_level_without_counts_is_told(tmp_path: Path) -> None:
    """A Poisson model of a group in which nothing was counted has none either."""
    rows = {}
    for name, r in rows_of("poisson").items():
        mark = (np.arange(len(r.y_train)) % 4 == 0).astype(float)
        rows[name] = replace(r, x_train=np.column_stack([r.x_train[:, :2], mark]), y_train=r.y_train * (1 - mark))
    with pytest.raises(NotConvergedError, match=r"coefficients of x2 grow without end.*rows of count 0"):
        fitted(rows, glm_job("poisson"), tmp_path)


def test_columns_that_add_up_are_told(tmp_path: Path) -> None:
    """So are those that are the same in every row."""
    rows = {
        name: replace(r, x_train=np.column_stack([r.x_train[:, :2], 1.0 - r.x_train[:, 0]]))
        for name, r in rows_of("gaussian").items()
    }
    with pytest.raises(DataError, match=r"columns x0, x2 add up"):
        fitted(rows, glm_job("gaussian"), tmp_path)
    rows = {
        name: replace(r, x_train=np.column_stack([r.x_train[:, :2], np.ones(len(r.y_train))]))
        for name, r in rows_of("gaussian").items()
    }
    with pytest.raises(DataError, match=r"column x2 is 0, or the same in every row"):
        fitted(rows, glm_job("gaussian"), tmp_path)


def test_few_rows_are_told(tmp_path: Path) -> None:
    """Of the rarer class where there are two; as many as coefficients are refused."""
    rows = rows_of("binomial", sizes={"ant": 20, "bee": 22})
    notes = fitted(rows, glm_job("binomial"), tmp_path).notes
    assert any("rows of the rarer class for 4 coefficients" in note for note in notes)
    with pytest.raises(DataError, match="4 rows for 4 coefficients"):
        fitted(rows_of("gaussian", sizes={"ant": 2, "bee": 2}), glm_job("gaussian"), tmp_path)


def test_rounds_that_are_used_up_are_told(tmp_path: Path) -> None:
    """The result is there, and said to be no maximum."""
    outcome = fitted(rows_of("gamma"), glm_job("gamma", rounds=2), tmp_path)
    assert finding(outcome).iterations == 2
    assert any("end: not arrived: all 2 rounds are used up" in note for note in outcome.notes)


@pytest.mark.parametrize(
    ("family", "of", "told"),
    [
        ("poisson", "gaussian", "column 'y' holds numbers that are no counts"),
        ("gamma", "gaussian", "column 'y' holds numbers that are not above 0"),
    ],
)
def test_targets_that_cannot_be_of_the_family_are_refused(tmp_path: Path, family: str, of: str, told: str) -> None:
    """One sentence says which column and what to do."""
    with pytest.raises(JobError, match=f"{told}.*choose another one"):
        fitted(rows_of(of), glm_job(family), tmp_path)


def test_weights_have_to_be_above_0(tmp_path: Path) -> None:
    """A weight of 0 or below is none."""
    with pytest.raises(JobError, match="column 'x0' holds weights that are not above 0"):
        fitted(rows_of("gaussian"), glm_job("gaussian", weights="x0"), tmp_path)


@pytest.mark.parametrize(
    ("family", "task", "method", "told"),
    [
        ("auto", "classification", {}, 'family = "gaussian" is for a target of numbers'),
        ("poisson", "binary", {}, 'family = "poisson" is for a target of numbers'),
        ("binomial", "regression", {}, 'family = "binomial" is for a target of two classes'),
        ("gaussian", "regression", {"offset": "z"}, "method.offset names column 'z', which data.features lacks"),
        ("gaussian", "regression", {"offset": "x0", "weights": "x0"}, "are both 'x0'"),
    ],
)
def test_a_job_that_contradicts_itself_is_refused(family: str, task: str, method: dict[str, Any], told: str) -> None:
    """Before anybody is asked, with the key and the remedy."""
    with pytest.raises(ValueError, match=told):
        JobFile.model_validate(
            {
                "name": "g",
                "method": {"name": "glm", "family": family, **method},
                "data": {"task": task, "target": "y", "features": NAMES},
            }
        )


def wards() -> dict[str, pd.DataFrame]:
    """Two sites with a column of three wards and one of ages."""
    random, found = np.random.default_rng(7), {}
    for name, size in (("ant", 60), ("bee", 50)):
        ward, age = random.choice(["burns", "eyes", "heart"], size), random.normal(50, 9, size)
        mean = np.exp(0.2 + 0.5 * (ward == "eyes") - 0.4 * (ward == "heart") + 0.01 * (age - 50))
        found[name] = pd.DataFrame({"ward": ward, "age": age, "stays": random.poisson(mean)})
    return found


@pytest.mark.parametrize("intercept", [True, False])
def test_a_category_is_that_of_statsmodels(intercept: bool) -> None:
    """With an intercept the first level has no coefficient, without one each has its own; the model knows both."""
    sm = statsmodels()
    data = {"target": "stays", "task": "regression", "features": ["ward", "age"], "columns": {"ward": "category"}}
    job = kernfed.Job(name="wards", method=kernfed.Glm(family="poisson", intercept=intercept), data=data)
    left = kernfed.simulate(job, wards(), progress=False)
    rows = pd.concat(wards().values())
    levels = ["eyes", "heart"] if intercept else ["burns", "eyes", "heart"]
    design = np.column_stack(
        [*([np.ones(len(rows))] if intercept else []), *(rows["ward"] == level for level in levels), rows["age"]]
    ).astype(float)
    want = sm.GLM(rows["stays"], design, family=sm.families.Poisson()).fit(tol=1e-12)
    told = left.findings["glm"]["coefficients"]
    named = ["(intercept)"] if intercept else []
    assert [c["name"] for c in told] == [*named, *(f"ward={level}" for level in levels), "age"]
    assert [c["estimate"] for c in told] == pytest.approx(want.params.tolist(), rel=1e-8, abs=1e-8)
    assert [c["error"] for c in told] == pytest.approx(want.bse.tolist(), rel=1e-8, abs=1e-8)
    assert left.model().predict(rows) == pytest.approx(want.fittedvalues.to_numpy(), rel=1e-8)
