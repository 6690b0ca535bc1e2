"""The errors of a job's scores: clients are asked for them once, at its end, of what they measured last."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from kernfed.federation.cohort import Cohort
from kernfed.federation.events import RoundMetrics, Scores
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
    found, lost = dict[str, ClientScores](), dict[str, list[str]]()
    for client, reply in sorted(replies.items()):
        if reply.num_test_rows:
            found[client] = as_told(client_scores(client, reply), run.measured)
            for model in sorted(measured[client].keys() - {score.model for score in found[client].scores}):
                lost.setdefault(model, []).append(client)
    for model, clients in lost.items():
        run.note(
            f"the {model} model's scores have no standard errors at {listed(clients)}: "
            "its predictions of the test rows are not at hand there any more"
        )
    finding = finding_of(list(found.values()), len(cohort.clients), cohort.num_test_rows, pairs)
    if finding is None:
        return
    run.publish(finding)
    for verdict in finding.verdicts:
        if verdict.metric == finding.verdicts[0].metric:
            run.note(f"verdict: {verdict.words}")
    if words := finding.equity_words():
        run.note(f"equity: {words}")


def as_told(found: ClientScores, measured: RoundMetrics) -> ClientScores:
    """A client's scores by the names of the models whose scores it told before; those of no such model are left out.

    A method may call what it leaves by another name than clients measured it by: the scores say which one it is.
    """
    own = sorted({score.model for score in found.scores})
    names: dict[str, str] = {}
    for model, before in measured.clients.get(found.client, {}).items():
        same = [name for name in own if _agree(found, name, before)]
        if same:
            names[model] = model if model in same else same[0]
    scores = [replace(s, model=model) for model, name in names.items() for s in found.scores if s.model == name]
    gains = [
        replace(g, model=model, against=other)
        for model, name in names.items()
        for other, its in names.items()
        for g in found.gains
        if (g.model, g.against) == (name, its)
    ]
    return replace(found, scores=tuple(scores), gains=tuple(gains))


def _agree(found: ClientScores, model: str, told: Scores) -> bool:
    """Whether a client tells the same of a model as it told before."""
    both = [(score.value, told[m]) for m in _AGAIN if m in told and (score := found.score(model, m)) is not None]
    return bool(both) and all(math.isclose(now, then, rel_tol=_SAME, abs_tol=_SAME**2) for now, then in both)
