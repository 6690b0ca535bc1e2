"""Findings of a reweighted job, for people: weights, their worth, and the clients that gain."""

from __future__ import annotations

from kernfed.federation.events import RoundMetrics
from kernfed.methods.finding import told
from kernfed.methods.reweight.finding import RatiosOfClient, ReweightFinding
from kernfed_server.methods.reweight.reweighting import Reweighting


def publish(job: Reweighting, metrics: RoundMetrics) -> None:
    """Publish the finding `reweight`.

    Args:
        job: With its ratios found.
        metrics: Of the last round: models `global` (the job's own), and `fedavg` and `own` where they were trained.
    """
    summaries = job.summaries[job.variant]
    clients = tuple(
        RatiosOfClient(
            client=client,
            shared=job.sharing.get(client, "nothing"),
            num_rows=found.num_rows,
            total=found.total,
            mean=found.mean,
            greatest=found.greatest,
            effective_rows=round(found.effective_rows, 2),
            num_cut=found.num_cut,
            bound=found.bound,
            uncovered=round(found.uncovered, 4),
            num_steps=found.num_steps,
            held_out=round(found.held_out, 4),
            histogram=tuple(int(n) for n in found.histogram),
            scores=told(metrics.clients.get(client, {})),
            condition=job.conditions.get(client),
        )
        for client, found in sorted(summaries.items())
    )
    job.run.publish(
        ReweightFinding(
            scope=job.scope,
            asked_scope=job.settings.scope,
            target=job.settings.target,
            source=job.settings.ratios.source,
            trainer=job.settings.trainer,
            client_weights=job.settings.client_weights,
            words=tuple(job.words),
            clients=clients,
            pooled=told(metrics.pooled),
        )
    )
