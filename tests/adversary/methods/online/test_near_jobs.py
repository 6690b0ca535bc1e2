"""Two jobs on one stream, or on two names of it, that take other rows: their sums differ by enough rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.arrays import Floats
from kernfed.jobs.client_file import ClientFile
from kernfed.jobs.job_file import JobFile
from kernfed.methods.online.pooled_messages import PooledStep, PooledStepRequest
from kernfed.methods.online.pooled_ridge import unpack
from kernfed_client.data.guards.row_spans import tells_of_few
from kernfed_client.methods.online.taking import RowTaker
from kernfed_testing.hostile.adversary import (
    COLUMNS,
    MIN_ROWS,
    NEAR_OFF,
    NEAR_ON,
    Target,
    Told,
    near_guards,
    rows,
    write_rows,
)

FEATURES = 20
PATIENT = 103
"""The row that the operator is after."""


def stream_job(data: Mapping[str, object] | None = None, dataset: str = "default", **method: object) -> JobFile:
    """A job that leaves statistics of each round's rows; scales are those of the training file."""
    return JobFile.model_validate(
        {
            "name": "s",
            "method": {
                "name": "online",
                "batch_rows": MIN_ROWS,
                "num_frequencies": FEATURES,
                "target_range": [-9.0, 9.0],
                "row_norm": 9.0,
                **method,
            },
            "cohort": {"dataset": dataset},
            "data": {
                "task": "regression",
                "target": "y",
                "features": list(COLUMNS),
                "standardise": False,
                "missing": "drop-rows",
                **(data or {}),
            },
        }
    )


def table(num: int = 400, **more: Sequence[object]) -> Mapping[str, Sequence[object]]:
    """Rows of a stream, of which one stands out in x0 and by its target."""
    found = {name: list(column) for name, column in rows(num, seed=7, **more).items()}
    found["x0"][PATIENT], found["y"][PATIENT] = 6.0, 8.5
    return found


@dataclass
class Taken:
    """What left in a job on a stream."""

    told: Told
    rounds: list[tuple[bytes, ...]]
    """Rows behind each answer, by their content, which the operator does not see."""

    @property
    def sums(self) -> Floats:
        """Over the rows of all rounds, of the products of their features and targets, (F + 1, F + 1)."""
        factors = [
            unpack(reply.factor, reply.num_samples, request.num_features)[0]
            for request, reply in self.told.replies
            if isinstance(request, PooledStepRequest) and isinstance(reply, PooledStep) and reply.num_samples
        ]
        total: Floats = np.sum([r.T @ r for r in factors], axis=0)
        return total


class StreamTarget(Target):
    """A client whose data sets have streams."""

    def __init__(self, folder: Path, policy: str, **streams: Path) -> None:
        super().__init__(folder, rows(gap=[1.0 + place % 7 for place in range(60)]), policy)
        sets = {
            name: {"train": {"path": folder / "train.csv"}, "stream": {"path": path}} for name, path in streams.items()
        }
        file = ClientFile.model_validate({"state": folder / "state", "datasets": sets})
        self.file = self.file.model_copy(update={"datasets": file.datasets})

    def take(self, job: JobFile) -> Taken:
        """Run a job on this client."""
        rounds: list[tuple[bytes, ...]] = []
        take = RowTaker.take

        def noted(taker: RowTaker, *args: Any) -> Any:
            found = take(taker, *args)
            # Of the columns that all jobs of this file use, and the target.
            rounds.append(tuple(np.append(x[:3], y).tobytes() for x, y in zip(found.x, found.y, strict=True)))
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RowTaker, "take", noted)
            told = self.ask(job)
        assert not told.refusal
        return Taken(told, [found for found in rounds if found])


def tells_a_few(*jobs: Taken) -> bool:
    """Whether sums over rounds, and over all rounds of a job, add up to one over fewer than MIN_ROWS rows."""
    number: dict[bytes, int] = {}
    sets = [
        np.array([number.setdefault(row, len(number)) for row in found])
        for job in jobs
        for found in (*job.rounds, sum(job.rounds, ()))
    ]
    return any(tells_of_few(found, sets[:place], MIN_ROWS) for place, found in enumerate(sets) if place)


TIGHT: dict[str, dict[str, Any]] = {
    "ranges": {"data": {"ranges": {"x0": [-100.0, 5.9]}}},
    "targets": {"target_range": [-8.4, 8.4], "outlier_spans": 0.0001},
    "norms": {"row_norm": 3.1, "outlier_spans": 0.9},
    "gap": {"data": {"features": [*COLUMNS, "gap"]}},
}


@near_guards
@pytest.mark.parametrize("by", TIGHT)
def test_two_jobs_of_which_one_leaves_out_a_row(tmp_path: Path, policy: str, by: str) -> None:
    """A limit, or a column with a gap, leaves the one out: the sums of both jobs differ by it, and by the last one."""
    gap = [1.0 + place % 7 if place != PATIENT else "" for place in range(391)]
    target = StreamTarget(tmp_path, policy, default=write_rows(tmp_path / "stream.csv", table(391, gap=gap)))
    one, two = target.take(stream_job()), target.take(stream_job(**TIGHT[by]))
    assert tells_a_few(one, two) == (policy == NEAR_OFF)
    assert sum(map(len, two.rounds)) >= 380
    if by == "ranges":
        size = np.abs(np.linalg.eigvalsh(one.sums - two.sums))
        assert (1e-8 * size.max() < size).sum() == 2 if policy == NEAR_OFF else (size > 1e-8).sum() >= MIN_ROWS


@near_guards
def test_two_names_of_one_stream(tmp_path: Path, policy: str) -> None:
    """Another data set has a link to the file, or a copy with a row more: their rows are known all the same."""
    whole = write_rows(tmp_path / "a.csv", table(200))
    (tmp_path / "link.csv").symlink_to(whole)
    more = {name: [*column[:100], 0.5, *column[100:]] for name, column in table(200).items()}
    others = {"link": tmp_path / "link.csv", "more": write_rows(tmp_path / "more.csv", more)}
    target = StreamTarget(tmp_path, policy, default=whole, **others)
    told = [target.take(stream_job(dataset=name)) for name in ("default", "more")]
    told.append(target.take(stream_job(dataset="link", **TIGHT["ranges"])))
    assert tells_a_few(*told[:2]) == (policy == NEAR_OFF)
    assert tells_a_few(*told) == (policy == NEAR_OFF)


def test_the_same_job_again_learns_the_same_rows(tmp_path: Path) -> None:
    """The guard costs nothing where no job leaves out other rows; larger rounds are of the same blocks."""
    target = StreamTarget(tmp_path, NEAR_ON, default=write_rows(tmp_path / "stream.csv", table()))
    one, two, large = (target.take(stream_job(batch_rows=rows)) for rows in (10, 10, 40))
    assert one.rounds == two.rounds
    assert sum(one.rounds, ()) == sum(large.rounds, ())
    assert len(large.rounds) == 10
