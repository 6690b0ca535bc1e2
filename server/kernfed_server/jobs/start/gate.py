"""The gate before round 1: each client passes a step with a valid answer, or stops the job, or is left out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

from kernfed.errors import JobError, QuorumNotMetError
from kernfed.federation.cohort import Cohort
from kernfed.federation.exchange import Fault
from kernfed.federation.messages.base import R, Request
from kernfed.federation.setup import SetupRequest, pass_all
from kernfed_server.jobs.kept_replies import replies_array, replies_of
from kernfed_server.jobs.run import Run


class Gate:
    """Asks all clients; one without a valid answer stops the job, or is left out of it."""

    def __init__(self, cohort: Cohort, run: Run, *, strict: bool) -> None:
        self._cohort = cohort
        self._run = run
        self._strict = strict

    async def ask(
        self,
        request: Request[R],
        check: Callable[[str, R], None] = pass_all,
        clients: Iterable[str] | None = None,
        *,
        fresh: bool = False,
        later: Callable[[str, R], None] | None = None,
    ) -> dict[str, R]:
        """Replies by client name.

        Args:
            request: What to ask.
            check: Raises a KernfedError where a reply does not hold up.
            clients: Whom, where not all are asked; the quorum then counts among these. Those left out before are not.
            fresh: As in `Cohort.ask`.
            later: As `check`, for clients that are asked later; unset: the same.
        """
        asked = self._cohort.clients
        if clients is not None:
            asked = tuple(client for client in clients if client not in self._cohort.excluded)
        replies = await self._cohort.ask(
            request,
            clients=None if clients is None else asked,
            everyone=self._strict,
            drawn=clients is not None,
            fresh=fresh,
            check=later or check,
        )
        faults, passes = self._cohort.faults, SetupRequest(request, check)
        found = {client: passes.fault(client, replies.get(client, faults.get(client))) for client in asked}
        absent = {client: fault for client, fault in found.items() if fault is not None}
        self.leave_out(request.step, len(asked), replies, absent)
        return replies

    def leave_out(self, step: str, num_clients: int, replies: dict[str, R], faults: Mapping[str, Fault]) -> None:
        """Take clients out of the job and their replies out of `replies`, or refuse the job if all have to pass.

        Args:
            step: What they did not pass.
            num_clients: How many were asked.
            replies: By client name, changed here.
            faults: Why, by client name.

        Raises:
            JobError: All have to pass, or none is left.
        """
        if faults and self._strict:
            _refuse(step, num_clients, faults)
        for client, fault in faults.items():
            replies.pop(client, None)
            self._cohort.exclude(client, fault)
            self._run.note(f"{client} is left out of this job: {fault.reason}: {fault.message}")
        if not replies:
            _refuse(step, num_clients, faults)

    async def once(
        self,
        name: str,
        request: Request[R],
        check: Callable[[str, R], None] = pass_all,
        *,
        fresh: bool = False,
        anew: bool = False,
    ) -> dict[str, R]:
        """As `ask`, once in the life of the job: later lives of the run have the replies of then.

        They ask nobody. A client that lost its state is asked again when it says so, where the request sets up its
        state.

        Args:
            name: Of the replies among what the run keeps.
            request: What to ask.
            check: As in `ask`.
            fresh: As in `ask`. In a later life those that are there are told it again, for an older checkpoint may lie
                behind what they did last; what they answer does not count, and nobody is waited for or left out.
            anew: Ask all the same; the new replies take the place of those of then.
        """
        kept = None if anew else self._run.agreed.get(name)
        if kept is None:
            replies = await self.ask(request, check, fresh=fresh)
            self._run.agreed.put(name, replies_array(replies, self._cohort.float_bits))
            return replies
        if not (fresh and await self._told(request, check)) and request.setup:
            self._cohort.recall(request, check)
        return replies_of(kept, request)

    async def _told(self, request: Request[R], check: Callable[[str, R], None]) -> bool:
        try:
            await self._cohort.ask(request, fresh=True, check=check)
        except QuorumNotMetError:
            return False
        return True


def _refuse(step: str, num_clients: int, absent: Mapping[str, Fault]) -> NoReturn:
    lines = [f"before round 1, {len(absent)} of {num_clients} clients did not pass {step}; nothing was trained"]
    for client, fault in sorted(absent.items()):
        text = fault.message.replace("\n", "\n    ")
        lines.append(f"  {client}: {fault.reason}: {text}")
    lines.append('  correct this, leave the client out of cohort.clients, or set cohort.preflight = "quorum"')
    raise JobError("\n".join(lines))
