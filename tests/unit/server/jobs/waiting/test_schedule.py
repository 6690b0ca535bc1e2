"""Who may start: decisions without clock and IO."""

from __future__ import annotations

from typing import Any

import pytest

from kernfed.federation.quorum import Quorum
from kernfed.jobs.info import ClientInfo
from kernfed.jobs.job_file import parse_job
from kernfed_server.jobs.waiting.queue import is_endless
from kernfed_server.jobs.waiting.schedule import QueuedJob, Start, Wait, plan
from kernfed_testing.methods.installed import STREAMING


def seen(*names: str, datasets: tuple[str, ...] = ("heart",)) -> dict[str, ClientInfo]:
    return {name: ClientInfo(name, True, datasets) for name in names}


def queued(
    job_id: str, clients: tuple[str, ...] | None = None, dataset: str | None = "heart", **settings: Any
) -> QueuedJob:
    quorum = Quorum(settings.pop("min_clients", 1), deadline_s=settings.pop("deadline_s", 300.0))
    return QueuedJob(job_id, clients, dataset, quorum, **settings)


def test_disjoint_cohorts_start_together() -> None:
    """Two jobs that share no client do not wait for each other."""
    decisions = plan([queued("1", ("a", "b")), queued("2", ("c",))], seen("a", "b", "c"), {})
    assert decisions == {"1": Start(("a", "b")), "2": Start(("c",))}


def test_overlapping_jobs_go_in_order_of_submission() -> None:
    """A waiting job reserves its clients, so a later one cannot overtake it for ever."""
    jobs = [queued("2", ("a", "b")), queued("3", ("b", "c")), queued("4", ("d",))]
    decisions = plan(jobs, seen("a", "b", "c", "d"), {"1": ("a",)})
    assert decisions["2"] == Wait("waiting: a works for 1", False)
    assert decisions["3"] == Wait("waiting: b works for 2", False)
    assert decisions["4"] == Start(("d",))


def test_a_job_that_waits_for_an_absent_client_holds_nobody_back() -> None:
    """Who is away for days does not stop the others."""
    decisions = plan([queued("1", ("a", "gone")), queued("2", ("a",))], seen("a"), {})
    assert decisions["1"] == Wait("waiting: 1 of 2 clients connected (missing: gone)", True)
    assert decisions["2"] == Start(("a",))


def test_a_client_may_work_for_several_jobs_where_allowed() -> None:
    """The limit counts running jobs and those that go first."""
    jobs = [queued("2", ("a",)), queued("3", ("a",))]
    decisions = plan(jobs, seen("a"), {"1": ("a",)}, jobs_per_client=2)
    assert decisions["2"] == Start(("a",))
    assert decisions["3"] == Wait("waiting: a works for 1, 2", False)


def test_a_job_that_waits_itself_is_named_with_what_for() -> None:
    """Who waits for its client is told so with the remedy: people at a site, not the queue, decide when it is free."""
    held = {"1": "waiting for approval at b until 12:00", "9": "waiting: nobody"}
    decisions = plan([queued("3", ("a",))], seen("a", "b"), {"1": ("a", "b"), "2": ("b",)}, held=held)
    why = (
        "waiting: a works for 1; 1 itself is waiting for approval at b until 12:00: cancel what is no longer needed, "
        "or raise jobs_per_client in the coordinator file"
    )
    assert decisions["3"] == Wait(why, False)


def test_a_job_without_end_is_named() -> None:
    """Who waits for it is told what to do; of one that ends by itself there is nothing to do."""
    decisions = plan([queued("3", ("a", "b"))], seen("a", "b"), {"1": ("a",), "2": ("b",)}, endless={"2"})
    why = (
        "waiting: a, b work for 1, 2; 2 runs without end: cancel what is no longer needed, or raise jobs_per_client in "
        "the coordinator file"
    )
    assert decisions["3"] == Wait(why, False)


@pytest.mark.parametrize(
    ("method", "keys", "endless"),
    [*((name, keys, not keys) for name in STREAMING for keys in ("", "rounds = 9")), ("dkrr", "", False)],
)
def test_which_jobs_have_no_end(method: str, keys: str, endless: bool) -> None:
    """Those on streams without a number of rounds."""
    data = '[data]\ntask = "regression"\ntarget = "y"\nfeatures = ["a"]\n'
    assert is_endless(parse_job(f'name = "demo"\n[method]\nname = "{method}"\n{keys}\n{data}')) is endless


def test_without_names_the_cohort_is_who_offers_the_data_set() -> None:
    """Clients that are away or offer something else are not asked."""
    clients = {**seen("b", "a"), **seen("other", datasets=("lungs",)), "away": ClientInfo("away", False, ("heart",))}
    assert plan([queued("1")], clients, {}) == {"1": Start(("a", "b"))}
    assert plan([queued("1", dataset=None)], clients, {}) == {"1": Start(("a", "b", "other"))}


def test_without_names_too_few_clients_wait_and_say_what_is_there() -> None:
    """The operator sees what connected clients offer instead."""
    decision = plan([queued("1", min_clients=2)], seen("a", datasets=("lungs",)), {})["1"]
    assert isinstance(decision, Wait)
    assert decision.for_connections
    assert "0 of at least 2 clients" in decision.why
    assert "offer: lungs" in decision.why


def test_after_a_start_a_job_without_names_waits_for_clients_to_come_back() -> None:
    """A restart does not shrink its cohort to whoever was quickest."""
    decision = plan([queued("1"), queued("2", ("a",))], seen("a"), {}, settled=False)
    assert isinstance(decision["1"], Wait)
    assert decision["2"] == Start(("a",))


def test_with_preflight_quorum_a_job_starts_without_the_missing_after_the_deadline() -> None:
    """The missing stay in the cohort: they may come back."""
    job = queued("1", ("a", "b", "gone"), needs_all=False, deadline_s=5.0)
    assert isinstance(plan([job], seen("a", "b"), {})["1"], Wait)
    late = queued("1", ("a", "b", "gone"), needs_all=False, deadline_s=5.0, waited_s=6.0)
    assert plan([late], seen("a", "b"), {})["1"] == Start(("a", "b", "gone"))
