"""What a job says while no rows come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.federation.events import EventKind
from kernfed.federation.in_process import InProcessExchange
from kernfed.methods.online.pooled_messages import PooledStep, PooledStepRequest
from kernfed_client.steps.registry import STEPS
from kernfed_testing.stream_clients import StreamClients, finding, stream_job, stream_rows


class Dry(InProcessExchange):
    """Streams that have no row at some of the questions, counted from 1."""

    def __init__(self, made: StreamClients, without: range) -> None:
        super().__init__(STEPS, made.jobs)
        self.without = without
        self.asked = 0

    async def ask(self, call: Any) -> Any:
        if not isinstance(call.request, PooledStepRequest):
            return await super().ask(call)
        self.asked += 1
        if self.asked not in self.without:
            return await super().ask(call)
        none = PooledStep(
            num_samples=0,
            ended=False,
            needs_whole=False,
            num_waiting=0,
            num_skipped=0,
            factor=np.zeros((call.request.num_kernels, 0)),
            evidence=0.0,
        )
        return dict.fromkeys(call.clients, none)


@pytest.mark.parametrize(("without", "told"), [(range(3, 5), 0), (range(3, 6), 1), (range(3, 20), 1)])
def test_a_job_names_those_whose_rows_it_waits_for(tmp_path: Path, without: range, told: int) -> None:
    """Once, when nobody has had a row three times in a row; then it goes on as if nothing had been."""
    made = StreamClients(tmp_path, {name: stream_rows(6, i) for i, name in enumerate(("a", "b"))})
    _, journal = made.run(stream_job(num_frequencies=3), exchange=Dry(made, without))
    notes = [e.message for e in journal.events if e.kind is EventKind.NOTE and "waiting" in e.message]
    assert notes == ["waiting for rows of a, b"] * told
    assert {c["rows"] for c in finding(journal)["clients"].values()} == {6}
