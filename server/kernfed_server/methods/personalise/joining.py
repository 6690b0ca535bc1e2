"""Clients that join later: what a job keeps for them, and the job in which they get their models from it, in one round.

Nobody else is asked. A client that joins embeds its rows as the earlier clients did, mixes what these shared with its
own, and follows the choice that they made together; its own rows may speak against that choice as theirs could.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernfed.arrays import Array
from kernfed.errors import ConfigError, QuorumNotMetError
from kernfed.federation.messages.base import R, Request
from kernfed.jobs.job_file import JobFile
from kernfed.jobs.plans import MOST_TOLD, differing_keys
from kernfed.maths.tasks import TASKS
from kernfed.methods.personalise.crossfit_messages import AdoptRequest
from kernfed.methods.personalise.embedding_messages import ClientEmbedding, EmbedRequest
from kernfed.methods.personalise.kept import (
    FORMAT,
    Facts,
    KeptShared,
    from_bytes,
    shared_plan,
)
from kernfed.methods.personalise.messages import AllowKeepingRequest, SolveModelRequest, Statistics
from kernfed.methods.personalise.settings import PersonaliseSettings
from kernfed.methods.shared_settings import ridge_of
from kernfed_server.jobs.arrival import Arrival
from kernfed_server.jobs.start.agreement import Agreement, Earlier
from kernfed_server.jobs.state import Arrays
from kernfed_server.methods.personalise.choosing import find_weights
from kernfed_server.methods.personalise.statistics import statistics_request
from kernfed_server.methods.personalise.weights import Personalisation

KEPT = "kept"
"""Of a checkpoint: the bytes of the file for clients that join later."""


def agreed_before(job: JobFile, files: Mapping[str, bytes]) -> Earlier | None:
    """What the job that `from_job` names agreed on; None where none is named.

    Raises:
        ConfigError: It is not the job of this file with other clients.
        DataError: What it kept is damaged.
    """
    settings = job.method
    if not isinstance(settings, PersonaliseSettings) or not settings.from_job:
        return None
    kept = from_bytes(files[settings.from_job])
    different = differing_keys(kept.facts.plan, shared_plan(job.plan()))
    if different:
        raise ConfigError(
            f"method.from_job names job {kept.facts.job}, from which this one differs: "
            f"{'; '.join(different[:MOST_TOLD])}. Take the file of that job, give the clients that join in "
            "cohort.clients, and add from_job"
        )
    task = TASKS[job.data.task] if job.data is not None else None
    told = len(kept.mean) if task is None or task.has_classes else None
    facts = kept.facts
    agreement = Agreement(
        classes=facts.classes,
        mean=kept.mean,
        deviation=kept.deviation,
        bounds=tuple(kept.bounds.tolist()),
        spec=facts.features,
        feature_mean=kept.feature_mean,
        target_mean=kept.target_mean,
        backbone=facts.backbone,
        ridge=facts.ridge,
    )
    return Earlier(_origin(facts), agreement, kept.column_mean[:told], kept.column_deviation[:told])


async def join(job: Personalisation, kept: KeptShared) -> Arrays:
    """Give each client of this job its model from what an earlier one kept; returns the state after the round."""
    facts = kept.facts
    state: Arrays = {}
    await _embed(job, kept)
    await _ask_statistics(job, kept)
    async for round_num in job.run.rounds(1):
        taken = [c for c in facts.clients if c not in job.cohort.clients]
        job.say(
            f"{', '.join(job.joining)} joined {len(taken)} clients of {_origin(facts)}, which were not asked again. "
            "The model of all rows alike is that of the earlier job, without the rows of those who join"
        )
        if facts.grid is None:
            await find_weights(job)
            await job.ask_learners(SolveModelRequest(ridge=ridge_of(job.settings)))
        else:
            await job.hand_on()
            job.chosen = facts.grid, facts.decisions
            await job.ask_learners(AdoptRequest(grid=facts.grid, decisions=facts.decisions))
        metrics = await job.measure(kept.federated)
        found = await job.told_weights(needed=False)
        job.publish(found, metrics)
        job.run.ends(Arrival("each client that joined has solved for its own model, exactly", True))
        state = {**found.to_arrays(), "federated": kept.federated, **await kept_arrays(job, kept.federated, kept)}
        await job.run.record(round_num, state, metrics)
    return state


async def kept_arrays(job: Personalisation, federated: Array, earlier: KeptShared | None = None) -> dict[str, Array]:
    """The file for clients that join later, as part of a checkpoint; nothing where the job is to keep nothing.

    Args:
        job: In the round in which its clients have their models.
        federated: The model of all rows alike.
        earlier: What the job that these clients joined had kept: its clients have allowed that before.
    """
    if not job.settings.keep_shared:
        return {}
    asked = job.cohort.ask(AllowKeepingRequest())
    allowed = await job.run.optional(asked, "nothing is kept for clients that join later")
    before = set() if earlier is None else set(earlier.facts.clients) - set(job.cohort.clients)
    clients = tuple(c for c in job.clients if (c in allowed or c in before) and c in job.statistics)
    left_out = sorted(set(job.clients) - set(clients))
    if not clients:
        job.run.note("keep_shared: no client's policy allows it and shares normal equations, so nothing is kept")
        return {}
    if left_out:
        job.run.note(
            f"kept for clients that join later without {', '.join(left_out)}, which did not allow it or shared no "
            'normal equations; policy.allow of a client file may list "stored_statistic"'
        )
    content = _kept(job, clients, federated, earlier).to_bytes()
    return {KEPT: np.frombuffer(content, np.uint8)}


def _kept(job: Personalisation, clients: tuple[str, ...], federated: Array, earlier: KeptShared | None) -> KeptShared:
    setup, settings, request = job.setup, job.settings, job.embedded_by
    assert setup.job is not None  # noqa: S101  # preparation puts it there
    parts = [job.statistics[c] for c in clients]
    embedded = [job.embeddings[c] for c in clients]
    grid, decisions = job.chosen or (None, ())
    basis = job.basis if job.basis is not None else np.zeros((setup.num_features, 0))
    return KeptShared(
        Facts(
            format=FORMAT,
            job=setup.job.name,
            plan=shared_plan(setup.job.plan()),
            classes=setup.agreed.classes,
            features=setup.agreed.spec,
            fingerprint=setup.agreed.fingerprint,
            backbone=setup.agreed.backbone,
            embedding=request.features,
            clients=clients,
            grid=grid if settings.weights == "crossfit" else None,
            decisions=decisions if settings.weights == "crossfit" else (),
            class_order=request.class_order,
            ridge=ridge_of(settings),
        ),
        mean=np.asarray(setup.agreed.mean, np.float64),
        deviation=np.asarray(setup.agreed.deviation, np.float64),
        bounds=np.array(setup.agreed.bounds, np.float64),
        feature_mean=np.asarray(setup.agreed.feature_mean, np.float64),
        target_mean=np.asarray(setup.agreed.target_mean, np.float64),
        column_mean=job.column_mean if earlier is None else earlier.column_mean,
        column_deviation=job.column_deviation if earlier is None else earlier.column_deviation,
        embed_mean=np.asarray(request.mean, np.float64),
        embed_deviation=np.asarray(request.deviation, np.float64),
        federated=np.asarray(federated, np.float64),
        num_rows=np.array([e.num_rows for e in embedded], np.float64),
        means=np.array([e.mean for e in embedded], np.float64),
        traces=np.array([e.trace * e.num_rows / e.rows_embedded for e in embedded], np.float64),
        grams=np.array([s.gram for s in parts], np.float64),
        moments=np.array([s.moment for s in parts], np.float64),
        squares=np.array([s.square for s in parts], np.float64),
        basis=np.asarray(basis, np.float64),
    )


async def _embed(job: Personalisation, kept: KeptShared) -> None:
    """Embed the rows of those who join as the others' were, and take over the others' embeddings."""
    columns = len(kept.mean)
    target_mean, target_deviation = kept.column_mean[columns:], kept.column_deviation[columns:]
    await job.embed_by(
        EmbedRequest(
            view=job.settings.view,
            features=kept.facts.embedding,
            mean=kept.embed_mean,
            deviation=kept.embed_deviation,
            target_mean=target_mean,
            target_deviation=target_deviation,
            intercept=job.setup.intercept,
            noise_factor=0.0,
            seed=job.seed("noise"),
            class_order=kept.facts.class_order,
            unlabelled=job.settings.embed_unlabelled,
        )
    )
    job.joining = job.clients
    for i, client in enumerate(kept.facts.clients):
        if client not in job.embeddings:
            job.embeddings[client] = ClientEmbedding(
                num_rows=int(kept.num_rows[i]), mean=kept.means[i], trace=float(kept.traces[i])
            )


async def _ask_statistics(job: Personalisation, kept: KeptShared) -> None:
    """Normal equations of those who join and may tell them, beside the kept ones; without, they teach nobody."""
    if kept.basis.shape[1]:
        job.basis = kept.basis
    told = await _those_who_may(job, statistics_request(job))
    for i, client in enumerate(kept.facts.clients):
        if client not in job.joining:
            told[client] = Statistics(
                num_rows=int(kept.num_rows[i]),
                gram=kept.grams[i],
                moment=kept.moments[i],
                square=float(kept.squares[i]),
            )
    job.statistics = told


async def _those_who_may(job: Personalisation, request: Request[R]) -> dict[str, R]:
    try:
        return dict(await job.cohort.ask(request, everyone=True))
    except QuorumNotMetError:
        return {}


def _origin(facts: Facts) -> str:
    return f"the earlier job {facts.job}"
