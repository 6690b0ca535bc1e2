"""Findings of a reweighted job, for people: weights, their worth, and the clients that gain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernfed.federation.events import RoundMetrics
from kernfed.methods.reweight.messages import RatioSummary
from kernfed_server.methods.reweight.ratios import Reweighting


def publish(job: Reweighting, metrics: RoundMetrics) -> None:
    """Publish the finding `reweight`.

    Args:
        job: With its ratios found.
        metrics: Of the last round: models `global` (the job's own), and `fedavg` and `own` where they were trained.
    """
    told = job.summaries[job.scope]
    clients = [
        {
            "client": client,
            "shared": job.sharing.get(client, "nothing"),
            **_facts(told[client]),
            "scores": {
                model: {name: float(value) for name, value in scores.items()}
                for model, scores in metrics.clients.get(client, {}).items()
            },
        }
        for client in sorted(told)
    ]
    pooled = {model: {k: float(v) for k, v in scores.items()} for model, scores in metrics.pooled.items()}
    job.run.publish(
        "reweight",
        {
            "scope": job.scope,
            "asked_scope": job.settings.scope,
            "target": job.settings.target,
            "source": job.settings.ratios.source,
            "trainer": job.settings.trainer,
            "client_weights": job.settings.client_weights,
            "words": job.words,
            "clients": clients,
            "pooled": pooled,
        },
    )


def _facts(found: RatioSummary) -> Mapping[str, Any]:
    return {
        "num_rows": found.num_rows,
        "total": found.total,
        "mean": found.mean,
        "greatest": found.greatest,
        "effective_rows": round(found.effective_rows, 2),
        "num_cut": found.num_cut,
        "bound": found.bound,
        "uncovered": round(found.uncovered, 4),
        "num_steps": found.num_steps,
        "histogram": [int(n) for n in found.histogram],
    }
