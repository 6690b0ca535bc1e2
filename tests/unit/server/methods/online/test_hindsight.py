"""Regret against the best function in hindsight: held to least squares over the rows themselves."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.arrays import Floats
from kernfed.errors import ConfigError
from kernfed.federation.events import EventKind
from kernfed.federation.in_process import InProcessExchange
from kernfed.jobs.former import Former
from kernfed.methods.online.dictionary import Dictionary, draw, features
from kernfed.methods.online.hindsight_messages import HindsightRequest
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.online.hindsight import learned_rows
from kernfed_client.steps.registry import STEPS
from kernfed_testing.methods.online_clients import SMALL, SMALL_POOLED, StreamClients, clients, finding, stream_job

PAPER: dict[str, Any] = {
    **SMALL,
    "rates": "paper",
    "learning_rate": 0.03,
    "weight_learning_rate": 1.0,
    "target_range": [-0.2, 1.2],
}


def online_client(job: LocalJob) -> Any:
    """What a client keeps of its stream."""
    return job.memo("online client", lambda: None)


def rows_of(made: StreamClients, name: str) -> tuple[Floats, Floats]:
    """Rows and targets of a client as the learner sees them."""
    kept = online_client(made.jobs[name])
    x, y = made.rows[name]
    return kept.scaled(x), (y - kept.rules.target_low) / kept.rules.target_span


def best_by_hand(made: StreamClients, *, constant: bool) -> tuple[float, float, dict[str, float]]:
    """Lengthscale and total loss of the best least-squares fit of one kernel, and its loss at each client."""
    dictionary: Dictionary = online_client(made.jobs["c0"]).dictionary
    parts = {name: rows_of(made, name) for name in made.jobs}
    y = np.concatenate([of for _, of in parts.values()])
    best: tuple[float, float, dict[str, float]] = (0.0, math.inf, {})
    for k, scale in enumerate(dictionary.lengthscales):
        by_client = {name: features(x, draw(dictionary)[k : k + 1])[:, 0] for name, (x, _) in parts.items()}
        if constant:
            by_client = {name: np.column_stack([z, np.ones(len(z))]) for name, z in by_client.items()}
        theta = np.linalg.lstsq(np.concatenate(list(by_client.values())), y, rcond=1e-5)[0]
        losses = {name: float(np.square(z @ theta - parts[name][1]).sum()) for name, z in by_client.items()}
        if sum(losses.values()) < best[1]:
            best = (scale, sum(losses.values()), losses)
    return best


@pytest.mark.parametrize(
    ("method", "settings"),
    [("online", SMALL), ("online", SMALL_POOLED), ("vm-kofl", {"num_kernels": 5, "num_frequencies": 4})],
    ids=["gradients", "statistics", "vm-kofl"],
)
def test_the_best_function_is_that_of_least_squares(tmp_path: Path, method: str, settings: dict[str, Any]) -> None:
    """Kernel, loss, and the part of each client agree with a fit to the rows of all clients in one place."""
    made = clients(tmp_path)
    _, journal = made.run(stream_job(method, hindsight=True, **settings))
    found = finding(journal)
    scale, loss, at_clients = best_by_hand(made, constant=settings is SMALL_POOLED)
    assert found["hindsight"]["lengthscale"] == scale
    assert found["hindsight"]["loss"] == pytest.approx(loss, rel=1e-3)
    assert found["hindsight"]["rows"] == 120
    total = 0.0
    for name, of in found["clients"].items():
        learner = online_client(made.jobs[name]).state.learner
        regret = learner.tally.total_loss - at_clients[name]
        assert of["hindsight_regret"] == pytest.approx(regret, rel=1e-3)
        total += regret
    assert found["hindsight"]["regret"] == pytest.approx(total, rel=1e-3)
    assert "bound" not in found["hindsight"]


def test_theorem_2_bounds_the_regret_of_the_papers_rates(tmp_path: Path) -> None:
    """With the paper's rates the right side of (14) is told, and the regret lies below it."""
    made = clients(tmp_path, num_rows=100)
    _, journal = made.run(stream_job(hindsight=True, **PAPER))
    found = finding(journal)
    regret = found["hindsight"]["regret"]
    assert 0.0 < regret <= found["hindsight"]["bound"]
    own = 3 * (math.log(11) / 1.0 + 1.0 * 100 / 2.0)
    draws = 0.03 / 2.0 * 100 * 3 * 4.0 * 3  # η/2 · T · K · L² · m, with 11 kernels in 3 bins
    assert own + draws <= found["hindsight"]["bound"] <= own + draws + 100 * 3  # no loss is above 1


def test_rows_beyond_the_ranges_are_told_again(tmp_path: Path) -> None:
    """A row that was left out as it lies beyond the ranges is left out of the sums too."""
    made = clients(tmp_path)
    x, y = made.rows["c1"]
    made.rows["c1"] = (x, np.where(np.arange(len(y)) == 7, 1e6, y))
    made.restart("c1")
    _, journal = made.run(stream_job(hindsight=True, **SMALL, target_range=[0.0, 1.0]))
    found = finding(journal)
    assert found["clients"]["c1"]["rows"] == 39
    assert found["hindsight"]["rows"] == 119
    assert found["hindsight"]["loss"] < 1.0


@pytest.mark.parametrize("fault", ["rare", "failed", "behind", "ahead"])
def test_rows_that_were_passed_over_for_another_reason_are_not_known(tmp_path: Path, fault: str) -> None:
    """Nothing is told of which rows they were, so the client states none."""
    made = clients(tmp_path)
    made.run(stream_job(**SMALL))
    kept = online_client(made.jobs["c1"])
    assert learned_rows(kept) == list(range(40))
    state = kept.state
    kept.keeper.keep(replace(state, left_out=replace(state.left_out, **{fault: 1})))
    assert learned_rows(kept) == []


def test_a_client_that_may_not_tell_is_named(tmp_path: Path) -> None:
    """Without rows a client stays out of the regret in hindsight, and in all else; with none at all nothing is told."""
    made = clients(tmp_path)
    silent = Silent(made, {"c2"})
    _, journal = made.run(stream_job(hindsight=True, **SMALL), exchange=silent)
    found = finding(journal)
    assert found["clients"]["c2"]["rows"] == 40
    assert "hindsight_regret" not in found["clients"]["c2"]
    assert found["hindsight"]["rows"] == 80
    notes = [e.message for e in journal.events if e.kind is EventKind.NOTE]
    assert any("the regret in hindsight is without c2" in note for note in notes)
    other = clients(tmp_path / "other")
    _, journal = other.run(stream_job(hindsight=True, **SMALL), exchange=Silent(other, {"c0", "c1", "c2"}))
    assert "hindsight" not in finding(journal)


def test_a_job_may_go_on_with_it_from_one_without() -> None:
    """Neither from a job of this release, nor from one before, whose plan has no such key."""
    plan = stream_job(rounds=5, **SMALL).plan()
    before = {**plan, "method": {key: value for key, value in plan["method"].items() if key != "hindsight"}}
    more = stream_job(rounds=9, hindsight=True, **SMALL)
    for of in (plan, before):
        Former("weeks-a", "online", 5, of, {}).refuse_other(more)
        Former("weeks-a", "online", 5, of, {}).refuse_other(stream_job(rounds=9, **SMALL))
        with pytest.raises(ConfigError, match=r"method\.num_frequencies"):
            Former("weeks-a", "online", 5, of, {}).refuse_other(stream_job(rounds=9, **SMALL | {"num_frequencies": 9}))


class Silent(InProcessExchange):
    """Clients that kept no rows."""

    def __init__(self, made: StreamClients, silent: set[str]) -> None:
        super().__init__(STEPS, made.jobs)
        self.silent = silent

    async def ask(self, call: Any) -> Any:
        found = dict(await super().ask(call))
        if isinstance(call.request, HindsightRequest):
            for client in self.silent & found.keys():
                reply: Any = found[client]
                nothing = {"gram": 0.0 * reply.gram, "moment": 0.0 * reply.moment, "square": 0.0}
                found[client] = replace(reply, num_samples=0, **nothing)
        return found
