"""The errors of a job's scores: clients are asked for them once, at its end, of what they measured last."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from kernfed.federation.cohort import Cohort
from kernfed.federation.events import RoundMetrics
from kernfed.federation.messages.evaluation import AppraiseRequest
from kernfed.methods.scores import ClientScores
from kernfed.wording import listed
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.scores.over_clients import client_scores, finding_of
from kernfed_server.jobs.verdict import Against

_AGAIN = ("auc", "accuracy", "log_loss", "mse")
"""Metrics that clients have told before."""
_SAME = 1e-6
"""Relative difference that counts as rounding."""


async def appraise(cohort: Cohort, run: Run, pairs: Iterable[Against]) -> None:
    """Ask for errors and differences of the scores of the job's last measured models, and publish what they say.

    What leaves a client: metrics of its test rows with standard errors, of no fewer rows than its policy allows
    (`metric`). A client that may not or cannot answer is passed over; nothing else of the job depends on it.
    """
    measured = run.measured.clients
    models = sorted({model for of in measured.values() for model in of})
    asked = sorted(set(measured) & set(cohort.present))
    if not models or not asked:
        return
    failed = set(cohort.faults)
    replies = await run.optional(
        cohort.ask(AppraiseRequest(models=tuple(models)), clients=asked, drawn=True, optional=True),
        "scores have no standard errors",
    )
    for client in cohort.faults.keys() - failed:
        cohort.forgive(client)
    if not replies:
        return
    silent = sorted(set(measured) - set(replies))
    if silent:
        run.note(f"scores have no standard errors at {listed(silent)}: no answer, or the policy forbids it")
    found = {client: client_scores(client, reply) for client, reply in replies.items() if reply.num_test_rows}
    for client in sorted(found):
        strange = sorted(_other(found[client], run.measured))
        if strange:
            run.note(
                f"scores have no standard errors at {client} for the model {listed(strange)}: "
                "the last one that it measured of this name is not the one that the job leaves"
            )
            found[client] = _without(found[client], set(strange))
    finding = finding_of([found[c] for c in sorted(found)], len(cohort.clients), cohort.num_test_rows, pairs)
    if finding is None:
        return
    run.publish(finding)
    for verdict in finding.verdicts[:2]:
        run.note(f"verdict: {verdict.words}")
    if words := finding.equity_words():
        run.note(f"equity: {words}")


def _other(found: ClientScores, measured: RoundMetrics) -> Iterator[str]:
    """Models of which a client tells other scores than it told before."""
    before = measured.clients.get(found.client, {})
    for model in {score.model for score in found.scores}:
        told = before.get(model, {})
        both = [(score.value, told[m]) for m in _AGAIN if m in told and (score := found.score(model, m)) is not None]
        if not all(math.isclose(now, then, rel_tol=_SAME, abs_tol=_SAME**2) for now, then in both):
            yield model


def _without(found: ClientScores, models: set[str]) -> ClientScores:
    return replace(
        found,
        scores=tuple(s for s in found.scores if s.model not in models),
        gains=tuple(g for g in found.gains if not models & {g.model, g.against}),
    )
