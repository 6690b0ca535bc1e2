"""A client's rows as it would prepare them by itself: own scales, own lengthscale, own means.

What a model of one client is worth without the others must not rest on what the others told: the agreed scales,
lengthscale and means are pooled ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kernfed import rng
from kernfed.features.ridge_rule import ridge_by_rows
from kernfed.features.spec import FeatureSpec, make_spec
from kernfed.maths.choosing.by_folds import Told, held_out, ridges_around
from kernfed.maths.choosing.lengthscales import factor, next_step
from kernfed.maths.choosing.ridge_search import ENOUGH_APART
from kernfed.maths.folds import FOLDS
from kernfed.maths.statistics import agree_lengthscale, median_distance, pool_moments, pooled_deviation
from kernfed_client.data.finite_moments import finite_moments
from kernfed_client.data.fold_sums import fold_sums
from kernfed_client.data.local_job import LocalJob

_MOST_FEATURES = 200
"""By which a client chooses its own lengthscale: each one tried takes five eigendecompositions."""


@dataclass
class AgreedLengthscale:
    """How the clients came to their lengthscale, kept by `LocalJob.memory`."""

    median: bool = False
    """Whether it is a median of the clients' median distances, and not a number of the job file."""
    drawn: bool = False
    """Whether the rows for it are drawn."""
    chosen: bool = False
    """Whether it is chosen by rows kept apart, as a multiple of that."""
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
        if rule.chosen and job.num_rows >= ENOUGH_APART:
            spec = _chosen(own, spec, intercept=job.centred)
    own.map_features(spec)
    if job.centred:
        own.centre(*(np.asarray(mean.cpu().numpy()) for mean in (own.uncentred().mean(), own.y_train.mean(0))))
    return own


def _chosen(own: LocalJob, spec: FeatureSpec, *, intercept: bool) -> FeatureSpec:
    """The map with that multiple of its lengthscale with which folds of these rows are predicted best."""
    fewer = min(spec.num_frequencies, spec.num_frequencies * _MOST_FEATURES // spec.num_features)
    usual = make_spec(spec.kernel, spec.form, spec.num_columns, spec.lengthscales, max(1, fewer), spec.seed, spec.law)
    by_rows = ridge_by_rows(usual, own.num_rows)
    ridges, told, losses = ridges_around(by_rows), dict[int, Told](), dict[int, float]()
    while (step := next_step(losses)) is not None:
        tried = replace(usual, lengthscales=(factor(step) * usual.lengthscales[0],))
        found = held_out([fold_sums(own, tried, FOLDS)], [1.0], ridges, intercept=intercept)
        if not found.rows.size:
            return spec
        told[step], losses[step] = found, float(found.means.min())
    steps = sorted(told)
    whole = Told(np.concatenate([told[step].errors for step in steps]), told[0].rows)
    best = whole.best(steps.index(0) * len(ridges) + ridges.index(by_rows))
    return replace(spec, lengthscales=(factor(steps[best // len(ridges)]) * spec.lengthscales[0],))
