"""A workflow of one round: a finding of what the clients tell, kept with the round, and told again after a crash."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from kernfed.errors import DataError
from kernfed.federation.cohort import Cohort
from kernfed.methods.finding import Finding
from kernfed.wording import listed
from kernfed_server.jobs.arrival import Arrival
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.state import json_array

F = TypeVar("F", bound=Finding)


async def found_once(kind: type[F], what: str, run: Run, find: Callable[[], Awaitable[F]]) -> F:
    """The finding, made in the round, or taken from its checkpoint.

    Args:
        kind: Of finding.
        what: It is, in words, e.g. `statistics`.
        run: Of the job.
        find: Asks the clients.
    """
    found = kind.from_json(run.resumed.json("finding")) if run.resumed else None
    async for round_num in run.rounds(1):
        found = await find()
        run.publish(found)
        run.ends(Arrival(f"one round, as the method has: {what} of the rows of all clients that answered"))
        await run.record(round_num, {"finding": json_array(found.to_json())})
    if found is None:
        raise DataError("the job has no rounds left, and no result; submit it again")
    return found


def note_lacking(what: str, told: Collection[str], cohort: Cohort, run: Run) -> None:
    """Say of whose rows something is not.

    Args:
        what: It is, in words.
        told: Clients whose rows it is of.
        cohort: All clients.
        run: Of the job.
    """
    if lacking := [f"{client} ({cohort.why_missing(client)})" for client in cohort.clients if client not in told]:
        run.note(f"{what} are of the other clients' rows, without {listed(lacking, more=', ...')}")
