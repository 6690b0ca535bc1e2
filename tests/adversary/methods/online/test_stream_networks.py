"""Networks of jobs on streams: weights and rates that are chosen so that one row alone moves a unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.arrays import Floats
from kernfed.federation.exchange import Call
from kernfed.federation.in_process import InProcessExchange
from kernfed.federation.messages.data import StandardiseRequest
from kernfed.jobs.job_file import JobFile
from kernfed.methods.online.messages import OpenStreamRequest
from kernfed.methods.online.meta_messages import MetaStep, MetaStepRequest
from kernfed_testing.hostile.adversary import COLUMNS, OFF, Target, Told, guards, rows

HIDDEN, NUM = 4, 60


def network_job(**method: object) -> JobFile:
    """One round on all rows of a table."""
    return JobFile.model_validate(
        {
            "name": "n",
            "method": {
                "name": "perfedavg",
                "rounds": 1,
                "batch_rows": NUM,
                "wait_s": 0.01,
                "hidden": HIDDEN,
                **method,
            },
            "data": {"task": "regression", "target": "y", "features": list(COLUMNS)},
        }
    )


def scaled(told: Told, table: Mapping[str, Any]) -> Floats:
    """The rows as the network saw them, (n, 3)."""
    (scales,) = (request for request, _ in told.replies if isinstance(request, StandardiseRequest))
    (opened,) = (request for request, _ in told.replies if isinstance(request, OpenStreamRequest))
    x = np.array([table[name] for name in COLUMNS], dtype=float).T
    found: Floats = (x - scales.mean) / (scales.deviation * opened.norm)
    return found


def moves(told: Told) -> Floats:
    """How far each number of the network moved."""
    asked: Any
    answered: Any
    ((asked, answered),) = [(a, b) for a, b in told.replies if isinstance(a, MetaStepRequest)]
    found: Floats = answered.weights - asked.weights
    return found


def told_rows(told: Told, x: Floats) -> list[int]:
    """Rows that the movement of a unit of the first layer is, over that of its offset."""
    moved, found = moves(told), []
    for unit in range(HIDDEN):
        weights, offset = moved[3 * unit : 3 * unit + 3], moved[3 * HIDDEN + unit]
        if offset:
            found += np.flatnonzero(np.abs(x - weights / offset).max(axis=1) < 1e-9).tolist()
    return found


def sending(monkeypatch: pytest.MonkeyPatch, target: Target, job: JobFile, made: Callable[[Floats], Floats]) -> Told:
    """Ask for a round of a network that the coordinator makes of the job's; the requests that are told hold it."""
    ask = InProcessExchange.ask

    async def asked(exchange: InProcessExchange, call: Call[Any]) -> Mapping[str, Any]:
        if isinstance(request := call.request, MetaStepRequest):
            request.weights[:] = made(request.weights)
        return await ask(exchange, call)

    with monkeypatch.context() as patch:
        patch.setattr(InProcessExchange, "ask", asked)
        return target.ask(job)


@guards
def test_a_step_behind_which_no_row_sets_off_a_unit(
    tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first step so long that all units are dead behind it leaves the first row; under the policy it leaves none."""

    def long_step(weights: Floats) -> Floats:
        found = 10.0 * np.abs(weights)
        found[3 * HIDDEN : 4 * HIDDEN] = 20.0  # all rows set off all units
        return found

    table = rows(NUM)
    target = Target(tmp_path, table, policy)
    told = sending(monkeypatch, target, network_job(learning_rate=0.9, adaptation_rate=1e-9), long_step)
    assert told.of(MetaStep)[0].num_samples == NUM
    assert bool(told_rows(told, scaled(told, table))) == (policy == OFF)


@guards
def test_a_unit_that_one_row_of_a_stream_sets_off(tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit's weights move by this row times what its offset moves; under the policy neither moves, the others do."""
    table = rows(NUM)
    target = Target(tmp_path, table, policy)
    job = network_job(adaptation_rate=1e-9, learning_rate=1e-3)
    x = scaled(target.ask(job), table)
    order = np.argsort(-x[:, 0])

    def one_row(weights: Floats) -> Floats:
        found = np.abs(weights)
        found[:3], found[3 * HIDDEN] = [1.0, 0.0, 0.0], -x[order[:2], 0].mean()
        return found

    told = sending(monkeypatch, target, job, one_row)
    moved = moves(told)
    assert moved[3:12].any()
    if policy == OFF:
        assert told_rows(told, x) == [order[0]]
    else:
        assert not moved[:3].any()
        assert moved[3 * HIDDEN] == 0
