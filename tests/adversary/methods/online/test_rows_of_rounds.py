"""Jobs on streams by which an operator finds single rows where a client sets no least number of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.jobs.client_file import StreamFile
from kernfed.jobs.job_file import JobFile
from kernfed.methods.online.messages import OnlineStep, Ranges
from kernfed.methods.online.meta_messages import MetaStep
from kernfed_testing.hostile.adversary import COLUMNS, Target, guards, held, rows
from kernfed_testing.hostile.sparse import SPARSE_OFF, sparse_guards


def online_job(**more: Any) -> JobFile:
    """A job that learns on the rows as on a stream, one a round."""
    method: dict[str, Any] = {"name": "online", "rounds": 4, "metrics_every": 2, "batch_rows": 1, "wait_s": 0.01}
    data = {"task": "regression", "target": "y", "features": list(COLUMNS)}
    return JobFile.model_validate({"name": "s", "method": method | more, "data": data})


def with_stream(target: Target, stream: StreamFile) -> None:
    """Let a client have a stream beside its training rows."""
    sections = {name: section.model_copy(update={"stream": stream}) for name, section in target.file.datasets.items()}
    target.file = target.file.model_copy(update={"datasets": sections})


@guards
def test_the_range_of_a_stream(tmp_path: Path, policy: str) -> None:
    """The least and the greatest target are those of two rows; rounds of one row are one row's gradient."""
    table = rows()
    told = Target(tmp_path, table, policy).ask(online_job())
    [ranges] = told.of(Ranges)
    y = np.array(table["y"], dtype=float)
    extremes = ranges.target_low == pytest.approx(y.min()) or ranges.target_high == pytest.approx(y.max())
    assert extremes != held(policy, told)


@guards
def test_rounds_of_ten_and_eleven_rows(tmp_path: Path, policy: str) -> None:
    """First gradients of two jobs on one stream, at parameters of 0: the longer round has one row more."""
    table = rows()
    target, told, sums = Target(tmp_path, table, policy), [], []
    settings: dict[str, Any] = {"rates": "paper", "num_frequencies": 4, "lengthscales": [100.0, 10.0]}
    settings |= {"kernels_per_round": 2, "target_range": [-10, 10], "row_norm": 5.0, "rounds": 1, "metrics_every": 1}
    for batch_rows in (10, 11):
        told.append(target.ask(online_job(batch_rows=batch_rows, **settings)))
        [step] = told[-1].of(OnlineStep)
        sums.append(step.num_samples * step.gradient[0])
    sines, cosines = np.split(sums[1] - sums[0], 2)
    found = 20 * np.hypot(sines[0], cosines[0]) - 10  # sin and cos have squares of 1 together
    assert (abs(found - float(str(table["y"][10]))) < 1e-9) != held(policy, *told)


@guards
@pytest.mark.parametrize(
    ("bent", "key"),
    [
        ({"clip": [-9.0, 0.5]}, "clip"),
        ({"missing": "mean"}, 'missing = "mean"'),
        ({"missing": "median"}, 'missing = "median"'),
        ({"transform": "rank"}, 'transform = "rank"'),
    ],
)
def test_limits_and_fills_of_a_stream(tmp_path: Path, bent: dict[str, Any], key: str, policy: str) -> None:
    """Sums with two limits differ by the rows between, with two fills by rows with gaps: of a round these are few."""
    target = Target(tmp_path, rows(), policy)
    stream = StreamFile(path=target.folder / "train.csv", source="file")
    with_stream(target, stream)
    whole = online_job(target_range=[-10, 10], row_norm=5.0).model_dump(exclude_unset=True)
    plain, typed = (
        JobFile.model_validate({**whole, "data": {**whole["data"], **more}}) for more in ({}, {"columns": {"x0": bent}})
    )
    told = target.ask(typed)
    assert (f"{key} of x0: in a round of a stream" in told.refusal) == held(policy, told)
    assert not target.ask(plain).refusal


@sparse_guards
@pytest.mark.parametrize("live", [False, True])
def test_two_columns_that_differ_in_a_row_of_a_round(tmp_path: Path, policy: str, live: bool) -> None:
    """What a network's weights of the two move by differs by what this row adds, in a table and in a live stream."""
    differs = np.arange(480) % 12 == 0
    half = (np.random.default_rng(2).uniform(size=480) < 0.5) & ~differs
    table = rows(480, half=half.astype(int).tolist(), other=(half | differs).astype(int).tolist())
    target = Target(tmp_path, table, policy)
    if live:
        stream = StreamFile(path=target.folder / "live", source="follow")
        stream.path.mkdir()
        (stream.path / "rows.csv").write_bytes((target.folder / "train.csv").read_bytes())
        with_stream(target, stream)
    job = online_job(name="perfedavg", batch_rows=10)
    job = JobFile.model_validate(
        job.model_dump(exclude_unset=True)
        | {"data": {"task": "regression", "target": "y", "features": [*COLUMNS, "half", "other"]}}
    )
    told = target.ask(job)
    assert not told.refusal
    sizes = [step.num_samples for step in told.of(MetaStep)]
    first = [int(differs[:size].sum()) for size in sizes[:1]]
    assert (0 < first[0] < 10) == (policy == SPARSE_OFF)
