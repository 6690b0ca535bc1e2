"""A coordinator that keeps to the text of a job and lies in what follows from rules: scales and bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.arrays import Floats
from kernfed.federation.exchange import Call
from kernfed.federation.in_process import InProcessExchange
from kernfed.federation.messages.base import Request
from kernfed.federation.messages.data import StandardiseRequest
from kernfed.maths.clipping import BOUND
from kernfed_testing.adversary import COLUMNS, Target, Told, guards, held, moment_job, rows

Lie = Callable[[Request[Any]], Request[Any]]


@contextmanager
def lying(lie: Lie) -> Iterator[None]:
    """Ask clients for what a lie makes of each request."""
    ask = InProcessExchange.ask

    async def asked(exchange: InProcessExchange, call: Call[Any]) -> Mapping[str, Any]:
        return await ask(exchange, replace(call, request=lie(call.request)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InProcessExchange, "ask", asked)
        yield


def bounded_above(limit: float) -> Lie:
    """Bound the first column from above at a limit in the data's units, by scales that put the bound there."""
    wide = 1000.0
    scales = {
        "mean": np.array([limit - wide, 0.0, 0.0]),
        "deviation": np.array([wide / BOUND, 1.0, 1.0]),
        "bounds": (BOUND, 0.0, 0.0),
    }
    return lambda request: replace(request, **scales) if isinstance(request, StandardiseRequest) else request


def bounded(target: Target, limit: float) -> tuple[Told, Floats]:
    """What a job leaves of the first column, bounded, times the target: the sum over all rows."""
    with lying(bounded_above(limit)):
        told = target.ask(moment_job(data={"standardise": True}, ridge=1e-12))
    if told.refusal:
        return told, np.empty(0)
    scaled = told.weights[0, 0] * len(told.train) * 1000.0 / BOUND
    return told, np.array(scaled)


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
        below.append(float(found[0][1] - found[1][1]) / (limits[1] - limits[0]))
    if held(policy, *told):
        assert below[0] == pytest.approx(below[1], abs=1e-6)  # of the same rows, though a row lies between
    else:
        assert below[0] - below[1] == pytest.approx(y[order[12]], abs=1e-6)
