"""Whether a job's model is better than what each client reaches alone, in words for the job's record."""

from __future__ import annotations

from kernfed.federation.events import RoundMetrics
from kernfed.federation.messages.data import LearningTask
from kernfed.wording import listed, number

_METRIC = {LearningTask.REGRESSION: "mse", LearningTask.BINARY: "log_loss", LearningTask.CLASSIFICATION: "log_loss"}
"""By which models are compared; less is better."""


def against_alone(metrics: RoundMetrics, task: LearningTask) -> str:
    """Name the clients at which their own model is better on their own test rows; empty where there is none.

    Args:
        metrics: Of the last round that was measured.
        task: What is learned.
    """
    metric = _METRIC[task]
    both = {
        client: (found["global"][metric], found["local"][metric])
        for client, found in metrics.clients.items()
        if metric in found.get("global", {}) and metric in found.get("local", {})
    }
    worse = [f"{c} ({number(ours)} against {number(own)})" for c, (ours, own) in both.items() if ours > own]
    if not worse:
        return ""
    return (
        f"the global model is worse than the client's model alone ({metric} on its own test rows) at {len(worse)} of "
        f"{len(both)} clients: {listed(worse, more=' and {left} more')}"
    )
