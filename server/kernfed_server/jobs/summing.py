"""Secure sums as methods form them: means over the clients of a job, of requests that its method can mask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernfed.arrays import Array
from kernfed.errors import KernfedError, QuorumNotMetError, SecureSumError
from kernfed.federation.cohort import Cohort
from kernfed.federation.messages.base import Request
from kernfed.federation.messages.sums import MaskedRequest, SumTerms
from kernfed.methods.registry import method_of
from kernfed_server.federation.secure_sum import SecureMean, secure_mean
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.preparation import Setup

SLACK = 1024.0
"""How many times as large as expected a number of a secure sum may be: it costs ten of its bits, of 61."""


ATTEMPTS = 3
"""Times that a sum over all clients is tried."""
_LEAST_BOUND = 1e-100
"""Of numbers that are all 0."""


async def mean_of_masked(
    setup: Setup,
    cohort: Cohort,
    run: Run,
    round_num: int,
    request: Request[Any],
    bound: float,
    *,
    whole: bool = False,
    everyone: bool = False,
) -> SecureMean:
    """The mean over clients, by their training rows, of what the answers to a request hold.

    Args:
        setup: Of a job with secure sums.
        cohort: Whom to ask.
        run: Its run.
        round_num: The round.
        request: In the clear; the job's method masks it.
        bound: No number of an answer is larger in size.
        whole: Whether it has to be of all clients: nothing is unmasked without one.
        everyone: Whether all are waited for, beyond the deadline.

    Raises:
        QuorumNotMetError: Too few clients answered.
        SecureSumError: The masks could not be taken away.
    """
    weights = cohort.counted({client: float(setup.agreed.num_rows[client]) for client in cohort.clients})
    masking = _masking(setup, request)

    def ask(terms: SumTerms) -> MaskedRequest:
        return masking(terms=terms, inner=request)

    most = max(bound, _LEAST_BOUND)
    return await secure_mean(cohort, run, round_num, ask, weights, most, whole=whole, everyone=everyone)


async def mean_of_everyone(
    setup: Setup, cohort: Cohort, run: Run, round_num: int, request: Request[Any], bound: float
) -> dict[str, Any]:
    """The same of all clients, who are waited for: arrays and floats by their names.

    A client that starts again within the sum has lost its part in it; the sum is then formed anew, a few times.

    Args:
        setup: As of `mean_of_masked`.
        cohort: As there.
        run: As there.
        round_num: As there.
        request: As there.
        bound: As there.

    Raises:
        QuorumNotMetError: A client does not come back, or refuses.
        SecureSumError: The masks could not be taken away.
    """
    for left in reversed(range(ATTEMPTS)):
        failed = set(cohort.faults)
        try:
            found = await mean_of_masked(setup, cohort, run, round_num, request, bound, whole=True, everyone=True)
            return {name: array if array.ndim else float(array) for name, array in found.arrays.items()}
        except (QuorumNotMetError, SecureSumError):
            new = {client: fault for client, fault in cohort.faults.items() if client not in failed}
            if not left or not new or any(fault.reason != SecureSumError.reason for fault in new.values()):
                raise
            for client in new:
                cohort.forgive(client)
    raise AssertionError  # the last attempt returns or raises


async def mean_of_all_masked(
    setup: Setup, cohort: Cohort, run: Run, round_num: int, request: Request[Any], bound: float, otherwise: str
) -> Mapping[str, Array] | None:
    """The same of all clients, where the job can do without; a client that cannot answer stays in the round.

    Args:
        setup: As of `mean_of_masked`.
        cohort: As there.
        run: Takes a note where a client is missing.
        round_num: As there.
        request: As there.
        bound: As there.
        otherwise: Beginning of the note.
    """
    failed = set(cohort.faults)
    try:
        return (await mean_of_masked(setup, cohort, run, round_num, request, bound, whole=True)).arrays
    except KernfedError as err:
        run.note(f"{otherwise}: {err}")
        return None
    finally:
        for client in cohort.faults.keys() - failed:
            cohort.forgive(client)


def _masking(setup: Setup, request: Request[Any]) -> Callable[..., MaskedRequest]:
    """The class by which the job's method masks a request."""
    job = setup.job
    for masked in () if job is None else method_of(job.method).masked(job.method):
        if masked.asks is type(request):
            return masked
    raise SecureSumError(f"the method of this job has no secure sum of {request.step}")
