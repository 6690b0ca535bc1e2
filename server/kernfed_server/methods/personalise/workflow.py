"""Personalisation: every client gets a model of its own, trained on a mix of all clients' risks."""

from __future__ import annotations

from kernfed.arrays import Array
from kernfed.federation.cohort import Cohort
from kernfed.jobs.job_file import JobFile
from kernfed.methods.personalise.messages import SolveModelRequest
from kernfed.methods.personalise.settings import PersonaliseSettings
from kernfed.methods.shared_settings import ridge_of
from kernfed.models.global_model import GlobalModel
from kernfed_server.jobs.assembly import feature_model, job_facts
from kernfed_server.jobs.preparation import Setup
from kernfed_server.jobs.run import Run
from kernfed_server.methods.base import Workflow, local_ridge
from kernfed_server.methods.personalise.networks import train_networks
from kernfed_server.methods.personalise.newton import train_newton
from kernfed_server.methods.personalise.state import Collaboration
from kernfed_server.methods.personalise.weights import Personalisation


async def run(setup: Setup, settings: PersonaliseSettings, cohort: Cohort, run: Run) -> Array | None:
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
    job = Personalisation(setup, settings, cohort, run)
    await job.embed()
    found = Collaboration.from_arrays(run.resumed) if run.resumed else None
    if found is None:
        await job.collect_statistics()
    elif found.fell_back:
        job.fall_back()
    if job.settings.trainer == "newton":
        return await train_newton(job, found)
    if job.settings.trainer == "fedavg":
        await train_networks(job, found)
        return None
    return await _solve_exactly(job)


async def _solve_exactly(job: Personalisation) -> Array:
    """One round: each client solves for its own model from what all have shared."""
    if job.run.resumed:
        return job.run.resumed["federated"]
    federated = job.federated_model()
    async for round_num in job.run.rounds(1):
        await job.find_weights()
        if job.settings.weights != "crossfit":
            await job.cohort.ask(SolveModelRequest(ridge=ridge_of(job.settings)), everyone=True)
        metrics = await job.measure(federated)
        found = await job.told_weights(needed=False)
        job.publish(found, metrics)
        await job.run.record(round_num, {**found.to_arrays(), "federated": federated}, metrics)
    return federated


def _model(job: JobFile, setup: Setup, weights: Array) -> GlobalModel:
    """The model of all rows alike, which says that it is nobody's personal model."""
    facts = {
        "name": job.name,
        "note": "this is the model of all clients' rows alike; each client's personal model stays at the client, where "
        "kernfed-client predict --job JOB uses it",
    }
    return feature_model(setup, weights, facts | job_facts(setup, job.method))


WORKFLOWS = {"personalise": Workflow(run, local_ridge, model=_model)}
