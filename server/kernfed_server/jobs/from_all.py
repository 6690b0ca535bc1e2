"""Sums over all clients that the job can do without, such as how far its model is."""

from __future__ import annotations

from kernfed.federation.cohort import Cohort
from kernfed.federation.messages.base import R, Request
from kernfed.wording import listed
from kernfed_server.jobs.run import Run


async def asked_of_all(cohort: Cohort, run: Run, request: Request[R], otherwise: str) -> dict[str, R]:
    """Ask every client; a client that may not or cannot answer takes part in the round's other steps as before.

    Args:
        cohort: All of its clients are asked.
        run: Takes a note where one is missing.
        request: What to ask.
        otherwise: Beginning of that note.

    Returns:
        Replies by client; empty where not all answered.
    """
    failed = set(cohort.faults)
    replies = await run.optional(cohort.ask(request, optional=True), otherwise)
    missing = [client for client in cohort.clients if client not in replies]
    if replies and missing:
        forbids = "no answer, or its policy forbids it"
        why = [f"{client} ({cohort.faults.get(client, forbids)})" for client in missing]
        run.note(f"{otherwise}: {listed(why)}")
    for client in cohort.faults.keys() - failed:
        cohort.forgive(client)
    return {} if missing else replies
