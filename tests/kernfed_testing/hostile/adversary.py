"""An operator who writes legal job files to find single rows, and its target: a client with files and a policy."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.arrays import Floats
from kernfed.errors import JobStateMissingError, PolicyError
from kernfed.federation.exchange import Call
from kernfed.federation.in_process import InProcessExchange
from kernfed.federation.messages.base import Kind, Reply, Request
from kernfed.federation.messages.data import DataDescription
from kernfed.jobs.client_file import ClientFile
from kernfed.jobs.job_file import JobFile, data_schema
from kernfed_client.data.local_job import LocalJob
from kernfed_client.data.reading.partitions import load_local_data
from kernfed_client.foresight import foresee
from kernfed_simulation.run import Simulated, simulate

MIN_ROWS = 10
OFF, ON = "min_rows = 1", f"min_rows = {MIN_ROWS}"
guards = pytest.mark.parametrize("policy", [OFF, ON])
"""Runs a test with a client that sets no least number of rows, and with one that does."""
NEAR_OFF, NEAR_ON = 'near_jobs = "allow"', f"min_rows = {MIN_ROWS}"
near_guards = pytest.mark.parametrize("policy", [NEAR_OFF, NEAR_ON])
"""Runs a test with a client that lets jobs differ by few rows, and with one whose policy is the default."""
COLUMNS = ("x0", "x1", "x2")
COUNTS = (
    *("num_rows", "num_test_rows", "num_dropped_rows", "num_outside_rows", "outside_rows", "far_rows", "class_counts"),
    *("num_fit_rows", "num_validation_rows", "num_apart", "fold_rows", "fold_points", "histogram", "num_cut"),
    *("num_samples", "counts", "deaths", "censored", "num_groups", "num_positive"),
)
"""Fields of replies that are numbers of rows."""


@dataclass
class Told:
    """What left in a job, and the rows that it was about."""

    done: Simulated
    replies: list[tuple[Request[Any], Reply]] = field(default_factory=list)
    train: frozenset[int] = frozenset()
    """Places of the training rows in the target's file."""
    test: frozenset[int] = frozenset()
    blocks: frozenset[frozenset[int]] = frozenset()
    """Those of the training rows that batches and folds take as a whole; empty: single rows."""

    @property
    def refusal(self) -> str:
        """Why the target did not take part; empty where it did."""
        return "" if self.done.error is None else str(self.done.error)

    @property
    def weights(self) -> Floats:
        """Of the linear model that the job left."""
        assert self.done.model is not None, self.refusal
        return np.asarray(self.done.model.weights, np.float64)

    def of(self, reply: type[Reply]) -> list[Any]:
        """Replies of a type."""
        return [told for _, told in self.replies if isinstance(told, reply)]


class Target:
    """A client with a file of rows, asked by one job after another."""

    def __init__(self, folder: Path, rows: Mapping[str, Sequence[object]], policy: str = "", test: str = "") -> None:
        """Write the files.

        Args:
            folder: Empty.
            rows: Columns of the training file.
            policy: Lines of the [policy] section.
            test: Text of a test file; empty: none.
        """
        self.folder, self._count = folder, 0
        folder.mkdir(parents=True, exist_ok=True)
        self.write(rows)
        (folder / "test.csv").write_text(test)
        given = {
            "state": folder / "state",
            "datasets": {"default": {"train": {"path": folder / "train.csv"}}},
            "policy": {"allow": list(Kind), "min_rows": MIN_ROWS},
        }
        if test:
            given["datasets"]["default"]["test"] = {"path": folder / "test.csv"}  # type: ignore[index]  # a plain table
        self.file = ClientFile.model_validate(given)
        if policy:
            wanted = self.file.policy.model_dump() | tomllib.loads(policy)
            section = type(self.file.policy).model_validate(wanted)
            self.file = self.file.model_copy(update={"policy": section})

    def write(self, rows: Mapping[str, Sequence[object]]) -> None:
        """Put other rows into the training file."""
        lines = [",".join(rows), *(",".join(map(str, row)) for row in zip(*rows.values(), strict=True))]
        (self.folder / "train.csv").write_text("\n".join(lines) + "\n")

    def local_job(self, name: str = "ant") -> LocalJob:
        """A new job at this client."""
        self._count += 1
        folder = self.folder / "state" / "jobs" / str(self._count)
        return LocalJob(f"job-{self._count}", name, self.file, folder=folder)

    def ask(self, job: JobFile, files: Mapping[str, bytes] | None = None, others: Sequence[Target] = ()) -> Told:
        """Run a job on this client, and on others."""
        local = self.local_job()
        with _replies() as replies:
            beside = {name: other.local_job(name) for name, other in zip(("bee", "cat"), others, strict=False)}
            told = Told(simulate(job, {"ant": local, **beside}, files=files), replies)
        if told.of(DataDescription):  # else nothing left about its rows
            try:
                data, block = local.data, local.block
            except JobStateMissingError:  # refused before anything was told of its blocks
                data, block = load_local_data(self.file, job.cohort.dataset, data_schema(job), "ant"), None
            told.train = frozenset(data.train.row_numbers.tolist())
            told.test = frozenset(data.test.row_numbers.tolist())
            if block is not None:
                places = data.train.row_numbers
                told.blocks = frozenset(frozenset(places[block == k].tolist()) for k in np.unique(block))
        return told


def foreseen(target: Target, job: JobFile) -> str:
    """The refusal that a site foresees of a job; empty where it foresees none."""
    try:
        _foreseen_notes(target, job)
    except PolicyError as err:
        return str(err)
    return ""


def told_open(target: Target, job: JobFile) -> list[str]:
    """What a site is told, before a job, that its answers may tell of few rows."""
    return [note for note in _foreseen_notes(target, job) if note.startswith("may tell of few rows: ")]


def _foreseen_notes(target: Target, job: JobFile) -> list[str]:
    data = load_local_data(target.file, job.cohort.dataset, data_schema(job), "ant")
    return list(dict.fromkeys(foresee(target.file, job, data, "ant")))


@contextmanager
def _replies() -> Iterator[list[tuple[Request[Any], Reply]]]:
    """Collect what the target answers."""
    found: list[tuple[Request[Any], Reply]] = []
    ask = InProcessExchange.ask

    async def noted(exchange: InProcessExchange, call: Call[Any]) -> Mapping[str, Any]:
        answers = await ask(exchange, call)
        if isinstance(reply := answers.get("ant"), Reply):
            found.append((call.request, reply))
        return answers

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InProcessExchange, "ask", noted)
        yield found


def small_counts(told: Told, least: int = MIN_ROWS) -> list[str]:
    """Numbers of rows that left and are neither 0 nor enough; those of which an answer says that it has none count."""
    found: list[str] = []
    for request, reply in told.replies:
        for f in fields(reply):
            if request.kinds and f.name in COUNTS:
                numbers = np.atleast_1d(np.asarray(getattr(reply, f.name))).ravel()
                shares = numbers.dtype.kind == "f" and f.name == "far_rows"
                small = [n for n in (numbers * len(told.train) if shares else numbers) if 0 < n < least - 1e-9]
                found.extend(f"{request.step}: {f.name} {n}" for n in small)
    return found


def near_pairs(tellings: Sequence[Told], least: int = MIN_ROWS) -> list[str]:
    """Pairs of jobs whose rows, to train or to test on, or of a batch, differ by a few."""
    found = []
    for (i, one), (j, two) in itertools.combinations(enumerate(tellings), 2):
        sets = {"train": [(one.train, two.train)], "test": [(one.test, two.test)]}
        sets["a batch"] = list(itertools.product(one.blocks, two.blocks))
        for part, pairs in sets.items():
            differ = [len(these ^ those) for these, those in pairs]
            if one.replies and two.replies and any(0 < num < least for num in differ):
                found.append(f"jobs {i} and {j}: {min(num for num in differ if num)} rows of {part}")
    return found


def rows(num: int = 60, seed: int = 5, **more: Sequence[object]) -> dict[str, Sequence[object]]:
    """Columns x0, x1, x2 and a target y of a regression; and those given."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(num, 3))
    return {
        **dict(zip(COLUMNS, x.T.tolist(), strict=True)),
        "y": (x.sum(axis=1) + draw.normal(size=num)).tolist(),
        **more,
    }


def write_rows(path: Path, table: Mapping[str, Sequence[object]]) -> Path:
    """Write a file of rows."""
    lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


def moment_job(name: str = "m", data: Mapping[str, object] | None = None, **method: object) -> JobFile:
    """A job that leaves Σ x y / n: one gradient step of size 1 from 0 on the columns as they are."""
    return JobFile.model_validate(
        {
            "name": name,
            "method": {"name": "fedavg", "rounds": 1, "local_steps": 1, "learning_rate": 1.0, **method},
            "data": {
                "task": "regression",
                "target": "y",
                "features": list(COLUMNS),
                "standardise": False,
                "test_fraction": 0.0,
                **(data or {}),
            },
            "features": {"kernel": "linear", "intercept": False},
        }
    )


def products(table: Mapping[str, Sequence[object]]) -> Floats:
    """X y of each row, (n, 3): what a job on that row alone would leave."""
    x = np.array([table[name] for name in COLUMNS], dtype=np.float64).T
    return x * np.array(table["y"], dtype=np.float64)[:, None]


def is_a_row(found: Floats, table: Mapping[str, Sequence[object]]) -> bool:
    """Whether numbers are x y of a single row."""
    return bool((np.abs(products(table) - found.ravel()).max(axis=1) < 1e-9).any())


def by_difference(one: Told, two: Told) -> Floats:
    """The sum over the rows that one job used and the other did not, from what both left."""
    return len(one.train) * one.weights - len(two.train) * two.weights


def held(policy: str, *told: Told) -> bool:
    """Whether the guards are on; then all that left must stand for enough rows."""
    if policy == OFF:
        return False
    assert not near_pairs(told)
    assert not [small for one in told for small in small_counts(one)]
    return True
