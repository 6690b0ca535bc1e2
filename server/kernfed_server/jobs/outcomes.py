"""Each client's outcome in a round: counted from the events, kept with the round's checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kernfed.federation.events import EventKind, JobEvent

if TYPE_CHECKING:
    from sqlalchemy.engine import Row  # a simulation has no database, and need not load it


@dataclass(frozen=True, slots=True)
class Tally:
    """One client's steps in one round."""

    answered: int = 0
    failed: int = 0
    missed: int = 0
    """Not in by the deadline."""
    last_failure: str = ""
    """Starts with the reason code."""


@dataclass(frozen=True, slots=True)
class ClientOutcome:
    """A tally, and whose it is."""

    round_num: int
    client: str
    tally: Tally


RoundOutcomes = Mapping[str, Tally]
"""Client to what it did."""


def count(tallies: dict[str, Tally], event: JobEvent) -> None:
    """Count an event of a client; others are passed over."""
    tally = tallies.get(event.client, Tally())
    if event.kind is EventKind.CLIENT_ANSWERED:
        tallies[event.client] = replace(tally, answered=tally.answered + 1)
    elif event.kind is EventKind.CLIENT_FAILED:
        tallies[event.client] = replace(tally, failed=tally.failed + 1, last_failure=event.text)
    elif event.kind is EventKind.CLIENT_MISSING:
        tallies[event.client] = replace(tally, missed=tally.missed + 1)


def count_answer(answers: dict[str, dict[str, int]], event: JobEvent) -> None:
    """Count an answer by client and step; other events are passed over."""
    if event.kind is EventKind.CLIENT_ANSWERED:
        steps = answers.setdefault(event.client, {})
        steps[event.step] = steps.get(event.step, 0) + 1


def participation(outcomes: Iterable[ClientOutcome]) -> dict[str, dict[str, int]]:
    """Client to the number of rounds in which it answered, failed, and missed a deadline; by name. For `job.json`."""
    found: dict[str, dict[str, int]] = {}
    for outcome in outcomes:
        rounds = found.setdefault(outcome.client, {"rounds_answered": 0, "rounds_failed": 0, "rounds_missed": 0})
        rounds["rounds_answered"] += outcome.tally.answered > 0
        rounds["rounds_failed"] += outcome.tally.failed > 0
        rounds["rounds_missed"] += outcome.tally.missed > 0
    return dict(sorted(found.items()))


def outcome_rows(job_id: str, round_num: int, outcomes: RoundOutcomes) -> list[dict[str, Any]]:
    """Rows of the store."""
    return [
        {
            "job_id": job_id,
            "round_num": round_num,
            "client": client,
            "answered": tally.answered,
            "failed": tally.failed,
            "missed": tally.missed,
            "last_failure": tally.last_failure,
        }
        for client, tally in sorted(outcomes.items())
    ]


def outcome_from(row: Row[Any]) -> ClientOutcome:
    """An outcome from its row."""
    return ClientOutcome(row.round_num, row.client, Tally(row.answered, row.failed, row.missed, row.last_failure))
