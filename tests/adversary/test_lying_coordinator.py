"""A coordinator that keeps to the text of a job and lies in what it may choose: scales, bounds, and networks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.arrays import Array, Floats
from kernfed.federation.exchange import Call
from kernfed.federation.in_process import InProcessExchange
from kernfed.federation.messages.base import Request
from kernfed.federation.messages.data import StandardiseRequest
from kernfed.maths.clipping import BOUND
from kernfed_testing.hostile.adversary import COLUMNS, OFF, ON, Target, Told, guards, held, moment_job, rows, told_open
from kernfed_testing.methods.variants import METHODS, job_of

Lie = Callable[[Request[Any]], Request[Any]]


@contextmanager
def lying(lie: Lie) -> Iterator[None]:
    """Ask clients for what a lie makes of each request."""
    ask = InProcessExchange.ask

    async def asked(exchange: InProcessExchange, call: Call[Any]) -> Mapping[str, Any]:
        own = None if call.own is None else {client: lie(request) for client, request in call.own.items()}
        return await ask(exchange, replace(call, request=lie(call.request), own=own))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InProcessExchange, "ask", asked)
        yield


def bounded_above(limit: float) -> Lie:
    """Bound the first column from above at a limit in the data's units, by scales that put the bound there."""
    wide = 1000.0
    scales: dict[str, Any] = {
        "mean": np.array([limit - wide, 0.0, 0.0]),
        "deviation": np.array([wide / BOUND, 1.0, 1.0]),
        "bounds": (BOUND, 0.0, 0.0),
    }
    return lambda request: replace(request, **scales) if isinstance(request, StandardiseRequest) else request


def bounded(target: Target, limit: float) -> tuple[Told, float]:
    """What a job leaves of the first column, bounded, times the target: the sum over all rows."""
    with lying(bounded_above(limit)):
        told = target.ask(moment_job(data={"standardise": True}, ridge=1e-12))
    return told, float(told.weights[0, 0]) * len(told.train) * 1000.0 / BOUND


@guards
def test_bounds_on_two_sides_of_a_row(tmp_path: Path, policy: str) -> None:
    """Sums of a column that is cut at four places tell the target of the row between them, or of several rows."""
    table = rows()
    x, y = (np.array(table[name], dtype=float) for name in (COLUMNS[0], "y"))
    order = np.argsort(-x)
    target = Target(tmp_path / "target", table, policy)
    told, below = [], []
    for num in (12, 13):
        top, bottom = x[order[num - 1]], x[order[num]]
        limits = bottom + np.array([0.3, 0.6]) * (top - bottom)
        found = [bounded(target, limit) for limit in limits]
        told += [one for one, _ in found]
        # Rows below the limit add (x - limit) y; what the others add, at the bound, is the same for both limits.
        below.append((found[0][1] - found[1][1]) / float(limits[1] - limits[0]))
    if held(policy, *told):
        assert below[0] == pytest.approx(below[1], abs=1e-6)  # of the same rows, though a row lies between
    else:
        assert below[0] - below[1] == pytest.approx(y[order[12]], abs=1e-6)


WIDTH = 4
NETWORK = {"kind": "mlp", "widths": [WIDTH]}
ONE_UNIT: dict[str, tuple[str, dict[str, Any]]] = {
    variant: (step, {**METHODS[variant], "network": NETWORK, **more})
    for variant, step, more in (
        ("personalise fedavg", "personalise.train_networks", {"judge": "ridge"}),
        ("reweight", "reweight.gradient", {"trainer": "adam", "batch_size": 0}),
    )
    if variant in METHODS
}
"""Variants that train networks, each with the step that does."""
FAR, BETWEEN = 6.0, 4.0
"""A row's first column, and a number below it and above those of all others."""


class OneRow:
    """Makes the first unit of each network one that rows above a limit in the first column set off."""

    def __init__(self, step: str, limit: float = BETWEEN) -> None:
        self.step, self.limit, self.scale = step, limit, np.empty(0)

    def __call__(self, request: Request[Any]) -> Request[Any]:
        if isinstance(request, StandardiseRequest):
            self.scale = np.array([request.mean, request.deviation])
        if request.step != self.step:
            return request
        sent: Any = request
        changed: Request[Any] = replace(sent, networks=self.changed(sent.networks))
        return changed

    def changed(self, networks: Array) -> Floats:
        """The networks with such a unit."""
        sent = np.array(networks, dtype=np.float64)
        sent[:, :3] = [1.0, 0.0, 0.0]
        sent[:, 3 * WIDTH] = -(self.limit - self.scale[0, 0]) / self.scale[1, 0]
        return sent

    def gradients(self, told: Told) -> Floats:
        """Of each network, as the target's last answer tells them, up to a factor."""
        asked: Any
        answered: Any
        asked, answered = [(request, reply) for request, reply in told.replies if request.step == self.step][-1]
        if hasattr(answered, "gradients"):
            return np.array(answered.gradients, dtype=np.float64)
        moved: Floats = self.changed(asked.networks) - answered.networks
        return moved


@guards
@pytest.mark.parametrize("variant", ONE_UNIT)
def test_a_unit_that_one_row_sets_off(tmp_path: Path, policy: str, variant: str) -> None:
    """Weights of a unit on one row are this row times what its offset moves; under the policy neither moves."""
    tables = [dict(rows(seed=seed)) for seed in (5, 6, 7)]
    for place in (7, 11, 30):  # of which one at least is a training row; the others are drawn back
        tables[0][COLUMNS[0]] = [
            FAR if i == place else min(float(str(v)), 3.0) for i, v in enumerate(rows()[COLUMNS[0]])
        ]
        target, *others = [Target(tmp_path / f"{place}-{i}", table, policy) for i, table in enumerate(tables)]
        step, method = ONE_UNIT[variant]
        job, files = job_of(method, tmp_path)
        lie = OneRow(step)
        with lying(lie):
            told = target.ask(job, files, others)
        assert told.replies, told.refusal
        if place in told.train:
            break
    found = lie.gradients(told)
    weights, offset = found[0, :3], found[0, 3 * WIDTH]
    if policy == OFF:
        row = np.array([tables[0][name][place] for name in COLUMNS], dtype=float)
        np.testing.assert_allclose(weights / offset, (row - lie.scale[0]) / lie.scale[1], rtol=1e-6)
    else:
        assert not weights.any()
        assert offset == 0
        assert found[0, 3:6].any()


@pytest.mark.skipif("reweight" not in ONE_UNIT, reason="the method is not there")
def test_two_networks_that_differ_by_a_row_are_open_and_the_site_is_told_so(tmp_path: Path) -> None:
    """A unit that thirty rows set off, and thirty-one: each answer is of many rows, their difference is of this one."""
    table = rows()
    target, *others = [Target(tmp_path / str(seed), rows(seed=seed), ON) for seed in (5, 6, 7)]
    step, method = ONE_UNIT["reweight"]
    job, files = job_of(method, tmp_path)
    place = sorted(target.ask(job, files, others).train, key=lambda row: -float(str(table[COLUMNS[0]][row - 2])))[30]
    row = np.array([table[name][place - 2] for name in COLUMNS], dtype=float)
    found = []
    for limit in (row[0] - 1e-7, row[0] + 1e-7):
        lie = OneRow(step, limit)
        with lying(lie):
            told = target.ask(job, files, others)
        assert told.replies, told.refusal
        found.append(lie.gradients(told)[0])
    weights, offset = (found[0] - found[1])[:3], (found[0] - found[1])[3 * WIDTH]
    np.testing.assert_allclose(weights / offset, (row - lie.scale[0]) / lie.scale[1], rtol=1e-3)
    assert [note for note in told_open(target, job) if "networks of its own making" in note]
