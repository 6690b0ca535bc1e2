"""The client's half of an appraisal: how sure the scores of its models are, by its own test rows."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from kernfed import rng
from kernfed.arrays import Integers
from kernfed.federation.messages.evaluation import Appraisal, AppraiseRequest, Score, ScoreDifference
from kernfed.maths.scores.appraise import Behind
from kernfed.maths.tasks import TASKS
from kernfed_client.data.local_job import LocalJob
from kernfed_client.steps.evaluation import encode_targets, held_out_targets, last_scores


def appraise(job: LocalJob, request: AppraiseRequest) -> Appraisal:
    """Standard errors of the scores of models that were measured last, of no fewer rows than the policy's."""
    kept, policy = last_scores(job), job.file.policy
    targets, group = held_out_targets(job), _groups(job)
    known = [model for model in request.models if model in kept and len(kept[model]) == len(targets) > 0]
    rows = Behind(
        group=group,
        draw=rng.stream(job.schema.seed, "appraisal", job.client),
        least=policy.min_rows,
        least_groups=policy.least_groups if job.data.test.group is not None else 1,
        threshold=_threshold(job),
    )
    found = {model: TASKS[job.task].appraise(kept[model], targets, rows) for model in known}
    positive = TASKS[job.task].positives(targets)
    told = positive is not None and rows.enough(positive) and rows.enough(~positive)
    return Appraisal(
        num_test_rows=job.num_test_rows,
        num_groups=int(group.max(initial=-1)) + 1,
        num_positive=int(positive.sum()) if told and positive is not None else 0,
        told_positive=told,
        threshold=rows.threshold or 0.0,
        scores=tuple(
            Score(model=model, metric=metric, value=e.value, error=e.error(group), behind=e.behind)
            for model, of in found.items()
            for metric, e in of.estimates.items()
        ),
        differences=tuple(
            ScoreDifference(model=model, against=other, metric=metric, value=e.value, error=e.error(group))
            for model, other in itertools.permutations(known, 2)
            if model < other
            for metric, e in found[model].differences(found[other])
        ),
        left_out=tuple(sorted({metric for of in found.values() for metric in of.left_out})),
    )


def _groups(job: LocalJob) -> Integers:
    """Number of each test row's group, (m,), from 0; without groups each row is one."""
    group = job.data.test.group
    if group is None:
        return np.arange(job.num_test_rows)
    return np.unique(group, return_inverse=True)[1].astype(np.int64)


def _threshold(job: LocalJob) -> float | None:
    """The share of positive training rows: above it a row is likelier positive than a row of this client is.

    For probabilities that are right it is where sensitivity and specificity have the greatest sum. No score of a row
    is told by it. None: there are not two classes, or one of them has fewer training rows than may be told of.
    """
    flags = TASKS[job.task].positives(encode_targets(job, job.targets_train))
    if flags is None:
        return None
    positive, least = int(flags.sum()), max(1, job.file.policy.min_rows)
    return positive / job.num_rows if min(positive, job.num_rows - positive) >= least else None


STEPS: dict[type[Any], Any] = {AppraiseRequest: appraise}
"""Steps of this module, by the request that they answer."""
