"""The contract between a job's cohort and what carries its requests to clients: a call, its faults, the exchange."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol

from kernfed.errors import DivergedError, JobStateMissingError, KernfedError, QuorumNotMetError, UnavailableError
from kernfed.federation.events import EventKind, JobEvent
from kernfed.federation.messages.base import Dims, R, Reply, Request, validate
from kernfed.federation.quorum import RowsNeeded


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a client has no answer in this step."""

    reason: str
    message: str

    @classmethod
    def of(cls, err: KernfedError) -> Fault:
        """An error as a client's fault."""
        return cls(err.reason, str(err))

    def __str__(self) -> str:
        """Both, for people."""
        return f"{self.reason}: {self.message}"

    @property
    def unprepared(self) -> bool:
        """Whether it lacks the job's state: the cohort prepares such a client and asks it again."""
        return self.reason == JobStateMissingError.reason


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """One request to several clients."""

    job_id: str
    round_num: int
    task_id: str
    """The same for all clients: `<job>/<round>/<step>[/<n>]`."""
    request: Request[R]
    clients: tuple[str, ...]
    """Names of those asked, sorted."""
    needed: int
    """Answers that suffice once the deadline has passed."""
    everyone: bool
    """Whether clients without an answer or a fault are waited for beyond the deadline, quorum or not."""
    deadline_s: float
    wait_s: float
    """Seconds after the deadline for which `needed` answers are still waited for."""
    grace_s: float
    """Seconds for which clients without a session are waited for where `needed` have answered."""
    float_bits: int
    dims: Dims
    """Shape symbols that the request binds; the exchange validates each reply against them."""
    accept: Callable[[str, Reply], None]
    """Called with each valid reply before it counts; raises KernfedError to refuse it."""
    own: Mapping[str, Request[R]] | None
    """Requests of the clients' own, of one type, where they are not all asked the same; `request` is one of them."""
    observe: Callable[[JobEvent], None]
    cohort_size: int
    """Clients that take part in the job, asked or not; one that is being prepared to join counts."""
    rows: RowsNeeded
    """Rows that must stand behind the answers."""
    stands_on: Mapping[str, bytes] = field(default_factory=dict)
    """Client to the digest of the setup that its answer is to stand on (`SetupChain.under`), where it is known."""
    sent: dict[str, bytes] = field(default_factory=dict)
    """Client to the SHA-256 of the request that it was sent; written by exchanges whose clients keep a setup."""

    def request_of(self, client: str) -> Request[R]:
        """The request to a client."""
        return self.own[client] if self.own is not None else self.request

    def dims_of(self, client: str) -> Dims:
        """Shape symbols that the request to a client binds."""
        return self.dims if self.own is None else validate(self.own[client], {}, finite=False)

    def unprepared(self, outcomes: Mapping[str, object]) -> dict[str, Fault]:
        """Faults of clients that lack the job's state, in the order of their names."""
        found = {client: outcomes.get(client) for client in self.clients}
        return {client: o for client, o in found.items() if isinstance(o, Fault) and o.unprepared}

    def tell_failed(self, client: str, fault: Fault) -> None:
        """Tell that a client has no answer that counts."""
        failed = EventKind.CLIENT_FAILED
        self.observe(JobEvent(failed, self.round_num, self.request.step, client, fault.message, fault.reason))


NO_ANSWER = Fault(UnavailableError.reason, "no answer in time; is its daemon running?")
"""Of a client that was waited for in vain before it could take part."""


class Exchange(Protocol):
    """Carries a call to clients and brings back one answer or fault for each that had one in time."""

    masks: bool = True
    """Whether clients mask their terms of secure sums; False where all of them are in this process anyway."""

    async def ask(self, call: Call[R]) -> Mapping[str, R | Fault]:
        """Answers and faults by client name; a client that is missing is a straggler.

        Raises:
            QuorumNotMetError: Fewer than `call.needed` answers after deadline and wait, or it cannot be met any more.
        """
        ...

    def present(self) -> frozenset[str] | None:
        """Clients that can be asked now; None: this exchange cannot tell."""
        return None


def quorum_error(call: Call[R], outcomes: Mapping[str, object]) -> KernfedError:
    """The error of a step that too few clients answered, with each client's reason.

    Where most clients, or all that spoke, say that the iteration diverges, that is the error, and not that they are too
    few.
    """
    step, faults = call.request.step, [o for o in outcomes.values() if isinstance(o, Fault)]
    answered = [client for client, o in outcomes.items() if not isinstance(o, Fault)]
    have = len(answered)
    diverged = [fault for fault in faults if fault.reason == DivergedError.reason]
    if diverged and (2 * len(diverged) > len(outcomes) or (not have and len(diverged) == len(faults))):
        return DivergedError(f"{step}: {diverged[0].message}")
    lines = [f"{step}: {have} of {call.needed} clients needed by the quorum answered"]
    if lacking := call.rows.words(answered):
        lines[0] += f"; they have {lacking}"
    silent = [client for client in call.clients if client not in outcomes]
    waited = have + len(silent) >= call.needed  # else the step ended as soon as the others had failed
    why = "in time; is its daemon running and connected?" if waited else "yet; the quorum was out of reach without it"
    for client in call.clients:
        outcome = outcomes.get(client)
        if outcome is None:
            lines.append(f"  {client}: no answer {why}")
        elif isinstance(outcome, Fault):
            lines.append(f"  {client}: {outcome}")
    reasons = {client: outcome.reason for client, outcome in outcomes.items() if isinstance(outcome, Fault)}
    return QuorumNotMetError("\n".join(lines), faults=reasons)
