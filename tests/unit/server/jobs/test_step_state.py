"""One step's state: events and a made-up clock in, decisions out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernfed.federation.quorum import RowsNeeded
from kernfed_server.jobs.step_state import Decision, StepRules, StepState

OPEN, CLOSE, FAIL = Decision.OPEN, Decision.CLOSE, Decision.FAIL
ABC = ("a", "b", "c")


def step(needed: int = 2, everyone: bool = False, clients: tuple[str, ...] = ABC) -> StepState:
    return StepState(clients, StepRules(needed, everyone, deadline_s=10, wait_s=100), now=1000)


def test_closes_when_all_have_answered() -> None:
    """A step closes once every client has answered."""
    state = step()
    assert [state.on_reply(c) for c in ABC] == [True] * 3
    assert state.pending == ()
    assert state.decide(1001) is CLOSE


def test_waits_for_all_until_the_deadline() -> None:
    """With a quorum a step still waits for the others until its deadline."""
    state = step()
    state.on_reply("a")
    state.on_reply("b")
    assert state.decide(1009.9) is OPEN
    assert state.next_change(1009) == 1
    assert state.decide(1010) is CLOSE
    assert state.pending == ("c",)


def test_a_client_without_a_session_holds_nobody_up_for_long() -> None:
    """A step with its quorum, where none but absent clients are missing, closes when these were away for the grace."""
    state = StepState(ABC, StepRules(2, everyone=False, deadline_s=100, wait_s=100, grace_s=5), now=1000)
    away = {"c": 998.0}
    state.on_reply("a")
    assert state.decide(1050, away) is OPEN
    state.on_reply("b")
    assert state.decide(1002.9, away) is OPEN
    assert state.next_change(1001, away) == 2
    assert state.decide(1003, away) is CLOSE
    assert state.decide(1003, {}) is OPEN


def test_one_that_was_away_for_long_is_not_waited_for_at_all() -> None:
    """The grace counts from when the session was lost, whichever step it was in; what needs everyone waits on."""
    rules: dict[str, Any] = {"deadline_s": 100, "wait_s": 100, "grace_s": 5}
    for everyone, decision in ((False, CLOSE), (True, OPEN)):
        state = StepState(ABC, StepRules(2, everyone=everyone, **rules), now=1000)
        state.on_reply("a")
        state.on_reply("b")
        assert state.decide(1000, {"c": 900.0}) is decision


def test_a_quorum_in_rows_waits_for_the_client_that_has_them() -> None:
    """Two of three clients are enough, but not with 30 of 100 rows; the text says what is lacking."""
    rows = RowsNeeded({"a": 10.0, "b": 20.0, "c": 70.0}, 0.6)
    state = StepState(ABC, StepRules(2, everyone=False, deadline_s=10, wait_s=100, rows=rows), now=1000)
    state.on_reply("a")
    state.on_reply("b")
    assert state.decide(1011) is OPEN
    assert not state.can_spare("c")
    lacking = "2 of 2 clients with 30 % of the rows, and cohort.min_rows_fraction asks for 0.6 (missing: c)"
    assert state.waiting({"c": 1000.0}, 1001) == f"waiting: {lacking}"
    assert state.decide(1110) is FAIL
    state.on_reply("c")
    assert state.decide(1011) is CLOSE


def test_a_client_on_which_the_quorum_hangs_is_not_spared() -> None:
    """Of three clients a step that needs two can spare one, and then no other."""
    state = step(needed=2)
    assert state.can_spare("c")
    state.on_fault("c")
    assert not state.can_spare("b")
    state.on_reply("a")
    assert not state.can_spare("b")


def test_waits_for_the_quorum_beyond_the_deadline() -> None:
    """Without a quorum a step waits on after its deadline."""
    state = step()
    state.on_reply("a")
    assert state.decide(1010) is OPEN
    assert state.next_change(1010) == 100
    state.on_reply("c")
    assert state.decide(1050) is CLOSE


def test_gives_up() -> None:
    """A step without a quorum fails when the patience of the job ends."""
    state = step()
    state.on_reply("a")
    assert state.decide(1109.9) is OPEN
    assert state.decide(1110) is FAIL


def test_fails_at_once_when_the_quorum_is_out_of_reach() -> None:
    """A step fails as soon as its faults leave too few clients."""
    state = step()
    state.on_fault("a")
    assert state.decide(1000) is OPEN
    state.on_fault("b")
    assert state.decide(1000) is FAIL


def test_fault_of_one_does_not_hold_up_the_others() -> None:
    """A step closes when all clients without a fault have answered."""
    state = step()
    state.on_fault("a")
    state.on_reply("b")
    state.on_reply("c")
    assert state.decide(1001) is CLOSE


def test_everyone() -> None:
    """A step that needs everyone waits for all that have no fault, and takes what it has at the end."""
    state = step(needed=1, everyone=True)
    state.on_reply("a")
    state.on_fault("b")
    assert state.decide(1050) is OPEN
    assert state.waiting({"b": 990.0, "c": 990.0}, 1001) == "waiting: 1 of 2 clients (missing: c)"
    state.on_reply("c")
    assert state.decide(1051) is CLOSE
    late = step(needed=1, everyone=True)
    late.on_reply("a")
    assert late.decide(1110) is FAIL


def test_none_needed() -> None:
    """A step that needs nobody closes at its deadline, or at once without clients."""
    assert step(needed=0, clients=()).decide(1000) is CLOSE
    state = step(needed=0)
    assert state.decide(1000) is OPEN
    assert state.decide(1010) is CLOSE


@pytest.mark.parametrize(
    ("answered", "present", "now", "text"),
    [
        ("", "abc", 1001, ""),
        ("", "ab", 1001, ""),  # the quorum is within reach
        ("", "a", 1001, "waiting: 1 of 2 clients (missing: b, c)"),
        ("a", "", 1001, "waiting: 1 of 2 clients (missing: b, c)"),
        ("a", "abc", 1020, "waiting: 1 of 2 clients (missing: b, c)"),  # there, and late
        ("ab", "abc", 1020, "waiting: 2 of 2 clients (missing: c)"),
    ],
)
def test_waiting(answered: str, present: str, now: int, text: str) -> None:
    """The text of a wait counts the answers and names the missing clients."""
    state = step()
    for client in answered:
        state.on_reply(client)
    assert state.waiting({c: 990.0 for c in ABC if c not in present}, now) == text


events = st.lists(
    st.tuples(st.sampled_from(["reply", "fault"]), st.sampled_from([*ABC, "stranger"]), st.floats(0, 20)), max_size=12
)


@given(events, st.integers(0, 4), st.booleans())
def test_counts_once_and_closes_once(log: list[tuple[str, str, float]], needed: int, everyone: bool) -> None:
    """Whatever comes in whatever order: each client counts once, and a decision once made stands without new events."""
    state = step(needed, everyone)
    now = 1000.0
    counted: list[tuple[str, str]] = []
    for kind, client, seconds in log:
        now += seconds
        if (state.on_reply if kind == "reply" else state.on_fault)(client):
            counted.append((client, kind))
        assert len({c for c, _ in counted}) == len(counted)
        assert set(state.pending) == set(ABC) - {c for c, _ in counted}
        decision = state.decide(now)
        have = sum(k == "reply" for _, k in counted)
        if decision is CLOSE:
            assert have >= needed
            assert state.decide(now + 1000) is CLOSE
        elif decision is FAIL:
            assert have < needed or everyone
            assert state.decide(now + 1000) is FAIL
        else:
            assert state.pending
            assert state.next_change(now) > 0
    assert state.decide(now + 10_000) is not OPEN
