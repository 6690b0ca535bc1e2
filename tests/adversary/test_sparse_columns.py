"""Columns in which few rows stand out, by which an operator would find these rows through legal jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from kernfed.arrays import Floats
from kernfed.features.kernels import Kernel
from kernfed.federation.messages.data import DataDescription, FeaturesMapped, StandardiseRequest
from kernfed.jobs.job_file import JobFile, data_schema
from kernfed.jobs.job_sections import FeaturesSection
from kernfed.methods.personalise.embedding_messages import ClientEmbedding, EmbedRequest
from kernfed_testing.hostile.adversary import (
    COLUMNS,
    ON,
    Target,
    Told,
    moment_job,
    rows,
)
from kernfed_testing.hostile.sparse import SPARSE_OFF, sparse_guards


def polynomial_job(columns: Sequence[str], target: str = "y") -> JobFile:
    """A job that leaves Σ φ(x) y / n, where φ holds 1, the columns and their products."""
    data = {"features": list(columns), "target": target}
    job = moment_job(data=data)
    return job.model_copy(update={"features": FeaturesSection(kernel=Kernel.POLYNOMIAL2, intercept=False)})


def of_products(told: Told, *places: int) -> Floats:
    """Σ u_i u_j y over the training rows, with u = (1, x), for each i of `places` (and all j), (len(places), 1 + d)."""
    weights = told.weights.ravel() * len(told.train)
    d = int(np.sqrt(2 * len(weights)))  # features of u of d numbers
    found, start = np.zeros((d, d)), 0
    for i in range(d):
        found[i, i:] = found[i:, i] = weights[start : start + d - i] / np.where(np.arange(i, d) == i, 1.0, np.sqrt(2.0))
        start += d - i
    return found[list(places)]


def of_row(table: Mapping[str, Sequence[object]], row: int) -> Floats:
    """(1, x) y of a row, where x are the three columns."""
    x = [1.0, *(float(str(table[name][row])) for name in COLUMNS)]
    return np.array(x) * float(str(table["y"][row]))


@sparse_guards
def test_a_column_in_which_one_row_differs(tmp_path: Path, policy: str) -> None:
    """A column that is not 0 in one row alone: its products with the others are those of this row."""
    mark = [0.0] * 60
    mark[17] = 1.0
    table = rows(mark=mark)
    told = Target(tmp_path, table, policy).ask(polynomial_job([*COLUMNS, "mark"]))
    [found] = of_products(told, 4)
    if policy == SPARSE_OFF:
        np.testing.assert_allclose(found[:4], of_row(table, 17), atol=1e-9)
    else:
        assert not found.any()
        assert told.of(DataDescription)[0].sparse_columns == ("mark",)


@sparse_guards
def test_a_category_that_one_row_has(tmp_path: Path, policy: str) -> None:
    """Columns of the other levels: what all rows have of them, less what they add up to, is left by this row."""
    levels = np.repeat([0, 1, 2, 3], [20, 20, 19, 1])
    table = rows(**{f"l{i}": (levels == i).astype(float).tolist() for i in range(3)})
    told = Target(tmp_path, table, policy).ask(polynomial_job([*COLUMNS, "l0", "l1", "l2"]))
    constant, *of_levels = of_products(told, 0, 4, 5, 6)
    found = (constant - sum(of_levels))[:4]
    assert (np.abs(found - of_row(table, 59)).max() < 1e-9) == (policy == SPARSE_OFF)
    if policy == ON:
        np.testing.assert_allclose(found, 0, atol=1e-9)


@sparse_guards
def test_a_column_that_differs_from_another_in_one_row(tmp_path: Path, policy: str) -> None:
    """The difference of two columns is not 0 in this row alone."""
    table = rows()
    again = [float(str(value)) for value in table["x0"]]
    again[5] += 1.0
    told = Target(tmp_path, {**table, "again": again}, policy).ask(polynomial_job([*COLUMNS, "again"]))
    first, second = of_products(told, 1, 4)
    found = (second - first)[:4]
    assert (np.abs(found - of_row(table, 5)).max() < 1e-9) == (policy == SPARSE_OFF)
    if policy == ON:
        np.testing.assert_allclose(found, 0, atol=1e-9)


@sparse_guards
def test_a_product_that_one_row_has(tmp_path: Path, policy: str) -> None:
    """Two columns that are not 0 in twenty rows each, and share one: sums over their product are over this row."""
    table = rows(a=[1.0] * 20 + [0.0] * 40, b=[0.0] * 19 + [1.0] * 20 + [0.0] * 21)
    told = Target(tmp_path, table, policy).ask(polynomial_job([*COLUMNS, "a", "b"]))
    [found] = of_products(told, 4)
    assert (abs(found[5] - float(str(table["y"][19]))) < 1e-9) == (policy == SPARSE_OFF)
    if policy == ON:
        assert found[5] == 0
        assert told.of(FeaturesMapped)[0].sparse_products == 1


@sparse_guards
def test_a_target_that_one_row_has(tmp_path: Path, policy: str) -> None:
    """A target that is 0 but in one row: every sum is this row's."""
    once = [0.0] * 60
    once[8] = 3.5
    table = rows(once=once)
    told = Target(tmp_path, table, policy).ask(polynomial_job(COLUMNS, "once"))
    [found] = of_products(told, 0)
    if policy == SPARSE_OFF:
        np.testing.assert_allclose(found, [3.5, *(3.5 * float(str(table[name][8])) for name in COLUMNS)], atol=1e-9)
    else:
        assert not told.weights.any()
        assert told.of(DataDescription)[0].sparse_columns == ("once",)


@sparse_guards
def test_a_column_in_which_some_test_rows_differ(tmp_path: Path, policy: str) -> None:
    """Errors of two models over the test rows differ by those whose column is not 0, unless the site is strict."""
    table = rows(mark=[float(i % 2) for i in range(60)])
    tests = rows(20, seed=9, mark=[1.0] * 5 + [0.0] * 15)
    lines = [",".join(tests), *(",".join(map(str, row)) for row in zip(*tests.values(), strict=True))]
    strict = 'sparse_columns = "constant-in-tests"' if policy == ON else policy
    target = Target(tmp_path, table, strict, test="\n".join(lines) + "\n")
    local = target.local_job()
    data = local.load("default", data_schema(moment_job(data={"features": ["mark"]})))
    assert data.test.x.any() == (policy == SPARSE_OFF)
    assert data.train.x.any()


@sparse_guards
def test_a_product_of_an_embedding_that_one_row_has(tmp_path: Path, policy: str) -> None:
    """Means of products, by which clients are compared, give that of two columns in the one row that has both."""
    a, b = [1.0] * 20 + [0.0] * 40, [0.0] * 19 + [1.0] * 20 + [0.0] * 21
    a[19], b[19] = 3.5, 2.0
    targets = [Target(tmp_path / str(k), rows(seed=k, a=a, b=b), policy) for k in range(3)]
    method = {"name": "personalise", "view": "x", "embedding_kernel": "polynomial2", "weights": "exact"}
    job = JobFile.model_validate(
        {
            "name": "e",
            "method": {**method, "c_q": 1.0, "c_p": 1.0},
            "data": {"task": "regression", "target": "y", "features": ["a", "b"], "test_fraction": 0.0},
            "features": {"kernel": "linear"},
        }
    )
    told = targets[0].ask(job, None, targets[1:])
    [reply] = told.of(ClientEmbedding)
    [request] = [q for q, _ in told.replies if isinstance(q, EmbedRequest)]
    mean = np.asarray(reply.mean) / np.array([1, *[np.sqrt(2)] * 2, 1, np.sqrt(2), 1])  # 1, a, b, aa, ab, bb
    scale = np.asarray(request.deviation) * np.array(request.features.lengthscales)
    first = mean[1:3] * scale + request.mean
    product = mean[4] * scale.prod() + first @ np.asarray(request.mean)[::-1] - np.prod(request.mean)
    agreed = next(q for q, _ in told.replies if isinstance(q, StandardiseRequest))
    m, d = np.asarray(agreed.mean), np.asarray(agreed.deviation)
    of_data = product * d.prod() + m[0] * first[1] * d[1] + m[1] * first[0] * d[0] + m.prod()
    assert (abs(60 * of_data - 7.0) < 1e-9) == (policy == SPARSE_OFF)
    if policy == ON:
        assert abs(60 * of_data) < 1e-9


@sparse_guards
def test_a_row_that_stands_far_out(tmp_path: Path, policy: str) -> None:
    """Jobs with scales and without differ in how they take it: two means, and two sums of squares, tell its value."""
    table = rows()
    told_of = 321.25
    far = [*list(table["x0"])[:7], told_of, *list(table["x0"])[8:]]
    target, means, squares = Target(tmp_path, {**table, "x0": far}, policy), [], []
    for standardise in (False, True):
        [about] = target.ask(moment_job(data={"standardise": standardise})).of(DataDescription)
        means.append(60 * about.mean[0])
        squares.append(about.sum_squares[0] + 60 * about.mean[0] ** 2)
    apart = means[0] - means[1]  # v - c, where the row is taken at c in one of the jobs
    found = apart and (apart + (squares[0] - squares[1]) / apart) / 2
    assert (abs(found - told_of) < 1e-6) == (policy == SPARSE_OFF)
    if policy == ON:
        assert apart == 0
        assert about.sparse_columns == ("x0",)
