"""Tests of `kernfed_server.jobs.from_all`: what a job says of its end where not every client tells its gradient."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernfed.errors import PolicyError
from kernfed.federation.events import EventKind
from kernfed.federation.messages.base import Reply
from kernfed.methods.ending import EndFinding
from kernfed.metric_names import ROW_SHARE
from kernfed_testing.in_process import Outcome, bench, make_job, regression_rows, with_nan

SIZES = {"ant": 40, "bee": 40, "cat": 40}
SETTLED = "not arrived: all 4 rounds are used, and the last round moved the weights by"


def forbidden(reply: Reply) -> Reply:
    """As a client answers whose policy does not allow it."""
    raise PolicyError("step newton.gradient sends gradient, which must not leave this client")


def end(outcome: Outcome) -> EndFinding:
    """The finding of a job's end."""
    found = next(e.finding for e in outcome.journal.events if e.message == EndFinding.name)
    assert found is not None
    return EndFinding.from_json(found)


@pytest.mark.parametrize("change", [forbidden, with_nan])
@pytest.mark.parametrize("clients", [("bee",), tuple(SIZES)])
def test_a_client_that_tells_no_gradient_costs_the_certificate_alone(
    tmp_path: Path, change: Any, clients: tuple[str, ...]
) -> None:
    """The job ends by its movements, says why, and its last round has the metrics and the rows of all clients."""
    rows, job = regression_rows(SIZES), make_job("fedavg", frequencies=20, rounds=4)
    tamper = {(client, "newton.gradient"): change for client in clients}
    done, whole = bench(rows, tmp_path, tamper=tamper).run(job), bench(rows, tmp_path).run(job)
    assert done.weights.tobytes() == whole.weights.tobytes()
    assert done.metrics[-1].clients == whole.metrics[-1].clients
    assert done.metrics[-1].training.get(ROW_SHARE) == whole.metrics[-1].training.get(ROW_SHARE)
    assert (end(done).arrived, end(done).words.startswith(SETTLED)) == (False, True)
    assert "pooled gradient" not in end(done).words
    note = next(n for n in done.notes if n.startswith("nobody can say how far the pooled solution is: "))
    assert all(client in note for client in clients)
    assert "pooled gradient" in end(whole).words


def test_a_client_of_an_earlier_version_tells_no_norm(tmp_path: Path) -> None:
    """The bracket is wider then, and holds the other one."""

    def former(reply: Reply) -> Reply:
        changed: dict[str, Any] = {"energy": 0.0}
        return replace(reply, **changed)

    rows, job = regression_rows(SIZES), make_job("fedavg", frequencies=20, rounds=4)
    wide = end(bench(rows, tmp_path, tamper={("bee", "newton.gradient"): former}).run(job))
    narrow = end(bench(rows, tmp_path).run(job))
    assert wide.distance is not None
    assert narrow.distance is not None
    assert narrow.distance < wide.distance


@pytest.mark.parametrize("method", ["fedavg", "fedprox"])
def test_one_gradient_is_asked_of_every_client(tmp_path: Path, method: str) -> None:
    """In the last round alone, where rounds draw half of the clients too."""
    job = make_job(method, frequencies=20, rounds=4, client_fraction=0.5)
    events = bench(regression_rows(SIZES), tmp_path).run(job).journal.events
    asked = [e for e in events if e.kind is EventKind.CLIENT_ANSWERED and e.step == "newton.gradient"]
    assert [(e.round_num, e.client) for e in asked] == [(4, client) for client in SIZES]
