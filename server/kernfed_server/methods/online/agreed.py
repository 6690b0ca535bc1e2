"""Agreement of a job on streams before round 1, kept in its checkpoints.

Clients come and go while such a job runs. Asked again after a restart of the coordinator, those of that moment would
agree on other scales than the parameters were learned with; so nobody is asked, and everything goes on as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Array
from kernfed.federation.cohort import Cohort
from kernfed.federation.messages.data import DescribeDataRequest, StandardiseRequest
from kernfed.jobs.job_file import JobFile, data_schema
from kernfed.maths.tasks import TASKS
from kernfed.methods.online.losses import Loss
from kernfed_server.jobs.preparation import LaterDescription, Setup, agree_features
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.state import State, json_array

_MEAN, _DEVIATION, _FACTS = "agreed.mean", "agreed.deviation", "agreed.facts"


@dataclass(frozen=True, slots=True)
class Opened:
    """Agreement of coordinator and clients, beside the scales of the columns."""

    norm: float
    target_low: float
    target_span: float
    loss: Loss
    longest: int
    """Rounds until the longest stream ends; 0: some stream has no end."""
    outlier_spans: float
    """See `OpenStreamRequest`."""
    pooled_frequencies: int = 0
    """Of ridges on pooled rows; 0: the job shares gradients."""


def to_arrays(setup: Setup, opened: Opened, num_rows: Mapping[str, int]) -> dict[str, Array]:
    """Arrays for a checkpoint; `num_rows` are the training rows of each client so far."""
    facts = {
        "classes": setup.classes,
        "backbone": setup.backbone,
        "num_rows": dict(num_rows),
        "norm": opened.norm,
        "target_low": opened.target_low,
        "target_span": opened.target_span,
        "loss": opened.loss.value,
        "longest": opened.longest,
        "outlier_spans": opened.outlier_spans,
        "pooled_frequencies": opened.pooled_frequencies,
    }
    return {_MEAN: setup.mean, _DEVIATION: setup.deviation, _FACTS: json_array(facts)}


def recall_setup(job: JobFile, cohort: Cohort, run: Run) -> Setup | None:
    """The scales of the columns from a checkpoint; clients that do not remember them will be told.

    None where there is no checkpoint, or one of a release that did not keep them.
    """
    state = run.resumed
    if state is None or _FACTS not in state:
        return None
    facts, schema = state.json(_FACTS), data_schema(job)
    classes, mean, deviation = tuple(facts["classes"]), state[_MEAN], state[_DEVIATION]
    later = LaterDescription(schema, cohort, facts["backbone"])
    cohort.recall(DescribeDataRequest(dataset=job.cohort.dataset, schema=schema), later)
    cohort.recall(StandardiseRequest(classes=classes, mean=mean, deviation=deviation, median_distance=False))
    cohort.register_rows(facts["num_rows"])
    return Setup(
        schema=schema,
        classes=classes,
        mean=mean,
        deviation=deviation,
        spec=agree_features(job, {}, {}, run),
        fingerprint="",
        num_outputs=TASKS[schema.task].num_outputs(classes),
        feature_mean=np.zeros(0),
        target_mean=np.zeros(1),
        num_rows=facts["num_rows"],
        strict=job.cohort.preflight == "all",
        backbone=facts["backbone"],
    )


def recall_opening(state: State | None) -> Opened | None:
    """The agreement for the streams, from a checkpoint; None as for `recall_setup`."""
    if state is None or _FACTS not in state:
        return None
    facts = state.json(_FACTS)
    spans = facts.get("outlier_spans", 0.0)  # of a job that began when no row was left out
    norm, low, span = facts["norm"], facts["target_low"], facts["target_span"]
    frequencies = facts.get("pooled_frequencies", 0)  # of a job that began when there were gradients alone
    return Opened(norm, low, span, Loss(facts["loss"]), facts["longest"], spans, frequencies)
