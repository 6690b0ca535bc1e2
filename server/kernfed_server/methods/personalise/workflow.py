"""Personalisation: every client gets a model of its own, trained on a mix of all clients' risks."""

from __future__ import annotations

import asyncio

from kernfed.arrays import Array
from kernfed.errors import ConfigError
from kernfed.federation.cohort import Cohort
from kernfed.jobs.job_file import JobFile
from kernfed.methods.personalise.kept import NAME, SharedFile, from_bytes
from kernfed.methods.personalise.messages import SolveModelRequest
from kernfed.methods.personalise.settings import PersonaliseSettings
from kernfed.methods.shared_settings import ridge_of
from kernfed.models.beside import ModelsBeside
from kernfed.models.global_model import GlobalModel
from kernfed_server.jobs.arrival import Arrival
from kernfed_server.jobs.assembly import feature_model, job_facts
from kernfed_server.jobs.run import Model, Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.state import Arrays
from kernfed_server.jobs.verdict import Against
from kernfed_server.methods.base import Workflow, local_ridge
from kernfed_server.methods.personalise.choosing import find_weights
from kernfed_server.methods.personalise.components import check_components
from kernfed_server.methods.personalise.joining import KEPT, agreed_before, join, kept_arrays
from kernfed_server.methods.personalise.networks import train_networks
from kernfed_server.methods.personalise.newton import train_newton
from kernfed_server.methods.personalise.points import collect_points
from kernfed_server.methods.personalise.state import Collaboration, adapted
from kernfed_server.methods.personalise.statistics import collect_statistics, federated_model
from kernfed_server.methods.personalise.weights import Personalisation


async def run(setup: Setup, settings: PersonaliseSettings, cohort: Cohort, run: Run) -> Array | Model | None:
    """Embed, find every client's weights over all clients, train with them, and leave each model at its client.

    What leaves a client: moments of x and y (`summary`); its mean embedding (`mean_embedding`); with cross-fitting or
    the exact trainer its normal equations (`sufficient_statistic`); with cross-fitting held-out errors per candidate
    (`metric`); its weights (`collaboration_weights`), which the trainers newton and fedavg need and the exact one only
    shows; with newton its own solution, moments and Hessian products and solves, with fedavg updates of networks.
    Embeddings and normal equations go on to all clients of the job. The coordinator learns all these. Of personal
    models it learns those that it helps to train, and none with the exact trainer, whose inputs however determine them.

    Returns the linear model of all rows alike (FedAvg's limit), beside which personal ones are measured; None with
    networks.

    Source: Fermanian, Le Bars & Bellet, "Adaptive personalized federated learning via multi-task averaging of kernel
    mean embeddings", Algorithm 2; cross-fitting: `kernfed.methods.personalise.crossfit`.
    """
    if strange := cohort.strangers(settings.targets):
        raise ConfigError(
            f"method.targets names {', '.join(strange)}, and the clients of this job are {', '.join(cohort.clients)}; "
            "name those that shall get a model"
        )
    job = Personalisation(setup, settings, cohort, run)
    check_components(job)
    if settings.from_job:
        return await _left(setup, run.resumed or await join(job, from_bytes(setup.files[settings.from_job])))
    job.points = await collect_points(job)
    await job.embed()
    found = Collaboration.from_arrays(run.resumed) if run.resumed else None
    if found is None:
        await collect_statistics(job)
        if settings.keep_shared and job.fell_back:
            job.say("nothing is kept for clients that join later, who would need the normal equations")
    elif found.fell_back:
        job.fall_back()
    if job.settings.trainer == "newton":
        return await train_newton(job, found)
    if job.settings.trainer == "fedavg":
        await train_networks(job, found)
        return None
    return await _left(setup, run.resumed or await _solve_exactly(job))


async def _solve_exactly(job: Personalisation) -> Arrays:
    """One round: each client solves for its own model from what all have shared. Returns the state after it."""
    settings = job.settings
    state: Arrays = {}
    federated = federated_model(job)
    async for round_num in job.run.rounds(1):
        await find_weights(job)
        if settings.weights != "crossfit":
            await job.ask_learners(SolveModelRequest(ridge=ridge_of(settings)))
        metrics = await job.measure(federated)
        found = await job.told_weights(needed=False)
        job.publish(found, metrics)
        job.run.ends(Arrival("each client has solved for its own model, exactly", True))
        state = {**found.to_arrays(), "federated": federated, **await kept_arrays(job, federated)}
        await job.run.record(round_num, state, metrics)
    return state


async def _left(setup: Setup, state: Arrays) -> Array | Model:
    """The model of all rows alike, and beside it what is kept for clients that join later."""
    if KEPT not in state or setup.job is None:
        return state["federated"]
    model = await asyncio.to_thread(_model, setup.job, setup, state["federated"])
    return ModelsBeside(model, {NAME: SharedFile(state[KEPT].tobytes())})


def _model(job: JobFile, setup: Setup, weights: Array) -> GlobalModel:
    """The model of all rows alike, which says that it is nobody's personal model."""
    facts = {
        "name": job.name,
        "note": "this is the model of all clients' rows alike; each client's personal model stays at the client, where "
        "kernfed-client predict --job JOB uses it",
    }
    return feature_model(setup, weights, facts | job_facts(setup, job.method))


_COMPARED = (
    Against("personal", "local", "the client's model alone"),
    Against("personal", "global", "the model of all clients' rows alike"),
)
WORKFLOWS = {
    "personalise": Workflow(
        run,
        local_ridge,
        model=_model,
        compared=_COMPARED,
        adapt=adapted,
        earlier=agreed_before,
        feature_copies=lambda _settings: 2,
        weights=lambda *_: None,
    )
}
