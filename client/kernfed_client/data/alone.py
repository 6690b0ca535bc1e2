"""A client's rows as it would prepare them by itself: own scales, own lengthscale, own means.

What a model of one client is worth without the others must not rest on what the others told: the agreed scales,
lengthscale and means are pooled ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kernfed import rng
from kernfed.maths.statistics import agree_lengthscale, median_distance, pool_moments, pooled_deviation
from kernfed.tensors.rows import mean_of
from kernfed_client.data.finite_moments import finite_moments
from kernfed_client.data.local_job import LocalJob


@dataclass
class AgreedLengthscale:
    """How the clients came to their lengthscale, kept by `LocalJob.memory`."""

    median: bool = False
    """Whether it is a median of the clients' median distances, and not a number of the job file."""
    drawn: bool = False
    """Whether the rows for it are drawn."""
    own: float = 0.0
    """This client's median distance; 0: it has none, or told none."""


def alone(job: LocalJob) -> LocalJob:
    """The same rows, columns, classes and feature map, prepared from this client's training rows only.

    Frequencies are those of the job's seed. A scale, a lengthscale or a centre that the job does without, or gives as a
    number, is the same here. The agreed order of classes stays: it says what a prediction means.

    Raises:
        JobStateMissingError: The features were not computed yet.
    """
    own = LocalJob(job.job_id, job.client, job.file, lambda *_: job.data, job.folder, durable=False)
    own.load(job.dataset, job.schema)
    mean, deviation = job.mean, job.deviation
    if mean.any() or (deviation != 1.0).any():
        found = pool_moments([finite_moments(job.data, job.schema, job.dataset)[0]])
        mean = found.mean
        if (deviation != 1.0).any():  # else columns are shifted, and not scaled
            deviation = pooled_deviation(found)
    own.standardise(job.classes, mean, deviation)
    spec, rule = job.features, job.memory(AgreedLengthscale)
    if rule.median and spec.num_frequencies:
        draw = rng.stream(job.schema.seed, "median distance", job.client) if rule.drawn else None
        distance = median_distance(own.x_train, draw, least=job.file.policy.min_rows).value
        spec = replace(spec, lengthscales=(agree_lengthscale([distance], [job.num_rows]).value,))
    own.map_features(spec)
    if job.centred:
        own.centre(*(np.asarray(mean.cpu().numpy()) for mean in (mean_of(own.train_rows), own.y_train.mean(0))))
    return own
