"""What the guards do not hold off in a job on the rows of this site, told to its people alone, before the job.

Each of it is an attack of `tests/adversary`: by an operator with several jobs, or by a coordinator that chooses
weights. To hold it off would cost honest jobs more than most sites want to pay, so the site decides.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernfed.maths.few.combinations import combinations_of
from kernfed.maths.few.together import few_together
from kernfed.wording import listed
from kernfed_client.data.guards.few_in_columns import fewest_alike
from kernfed_client.data.local_job import LocalJob
from kernfed_client.data.reading.partition_data import in_file

_WHOM = "name in policy.operators and policy.methods whom and what you trust"
_MORE = " and {left} more"


def of_tests(job: LocalJob) -> Iterator[str]:
    """Of which few test rows errors of models tell: those that stand out in a column."""
    least = job.file.policy.min_rows
    if not 1 < least <= job.num_rows or job.file.policy.sparse_columns != "constant":
        return
    test = job.data.test
    found, names = test.without_few(job.schema, least)
    if names:
        moved = np.any(test.x != found.x, axis=1)
        where = f" (test {in_file(test.row_numbers[moved])})" if moved.any() else ""
        yield (
            f"may tell of few rows: the errors of several models over the {job.num_test_rows} test rows tell sums over "
            f"those, fewer than policy.min_rows, that differ from the others in column "
            f"{listed([repr(name) for name in names], 5, more=_MORE)}{where}; policy.sparse_columns = "
            '"constant-in-tests" holds that off, and metrics are then of rows that are not quite so'
        )


def of_functions(job: LocalJob) -> Iterator[str]:
    """Of which few rows models tell that are no linear functions of the columns: random features, kernels, networks."""
    least = job.file.policy.min_rows
    if 1 < least <= job.num_rows:
        yield from _of_alike_tests(job, least)
        yield from _of_together(job, least)


def of_networks(job: LocalJob) -> Iterator[str]:
    """Of what networks tell beside all functions: of rows in which two networks differ."""
    if job.file.policy.min_rows > 1:
        yield (
            "may tell of few rows: a coordinator that sends networks of its own making learns, by the difference of "
            "two answers, of the rows in which these two differ, though no single answer stands for few rows; let such "
            f"jobs have only a coordinator whose administrators you trust, and {_WHOM}"
        )


def _of_alike_tests(job: LocalJob, least: int) -> Iterator[str]:
    """Combinations of few values that few test rows have; few training rows have none, else the job is refused."""
    if fewest_alike(job.file.policy, job.data.rules) == 1 or not job.num_test_rows:
        return
    alike = combinations_of(np.concatenate([job.x_train, job.x_test]))
    tests = np.arange(job.num_rows, job.num_rows + job.num_test_rows)
    if alike is not None and alike.rare(least, tests).any():
        names = listed([repr(job.schema.features[j]) for j in alike.columns], 5, more=_MORE)
        yield (
            f"may tell of few rows: column {names}: so few values that the errors of several models over the test rows "
            "tell the sum of the targets of each combination of them, and fewer test rows than policy.min_rows have "
            f"some of these; add test rows, or hold none out, or {_WHOM}"
        )


def _of_together(job: LocalJob, least: int) -> Iterator[str]:
    """Rows that two or three columns single out."""
    sets = few_together(job.data.train.x, least)
    if sets:
        features = job.schema.features
        names = listed([" x ".join(repr(features[j]) for j in columns) for columns in sets], 3, more=_MORE)
        yield (
            "may tell of few rows: random features, kernels and networks nearly tell the sum of the targets of rows "
            "that two or three columns together single out, and fewer training rows than policy.min_rows are singled "
            f"out by {names}; no guard holds that off: let jobs have fewer columns of few values, or {_WHOM}"
        )
