"""The client's half of every job's beginning: describe the data, scale them, map features, centre."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch

from kernfed import rng
from kernfed.errors import WireError
from kernfed.features.kernels import RANDOM_KERNELS
from kernfed.federation.messages.data import (
    Centred,
    CentreRequest,
    DataDescription,
    DescribeDataRequest,
    FeaturesMapped,
    MapFeaturesRequest,
    MeanEmbedding,
    MeanEmbeddingRequest,
    Standardised,
    StandardiseRequest,
)
from kernfed.jobs.plugins_used import refuse_others
from kernfed.maths.statistics import median_distance, moments
from kernfed.tensors.arrays import to_array
from kernfed_client.data.alone import AgreedLengthscale
from kernfed_client.data.finite_moments import finite_moments
from kernfed_client.data.guards.few_values import refuse_few_alike
from kernfed_client.data.guards.own_rows import refuse_lengthscale, refuse_scales
from kernfed_client.data.guards.told import told
from kernfed_client.data.local_job import LocalJob


def describe(job: LocalJob, request: DescribeDataRequest) -> DataDescription:
    """Read and check the data; counts, classes, and moments of the training rows before scaling.

    Raises:
        DataError: The data do not fit the schema, or their squares exceed the range of numbers.
        VersionMismatchError: The job uses a package from outside that is not here, or in another release.
        PolicyError: The client file does not name such a package.
    """
    refuse_others(request.plugins, job.file.policy.plugins)
    data = job.load(request.dataset, request.schema)
    m, far = finite_moments(data, request.schema, request.dataset)
    target = moments(data.train.y.reshape(-1, 1)) if data.train.y is not None else None
    counts, least = Counter(data.train.labels or ()), job.file.policy.min_rows
    outside = tuple(told(count, least) for count in data.outside_rows or (0,) * len(request.schema.ranges))
    return DataDescription(
        num_rows=data.train.num_rows,
        num_test_rows=data.test.num_rows,
        num_dropped_rows=told(data.num_dropped_rows, least),
        num_outside_rows=min(told(data.num_outside_rows, least), sum(outside)),
        outside_rows=outside,
        classes=data.classes,
        class_counts=tuple(counts[name] for name in data.classes),
        mean=m.mean,
        sum_squares=m.sum_squares,
        backbone=data.backbone,
        deviation=tuple(m.deviation.tolist()),
        mean_rest=tuple(m.rest.tolist()),
        far_rows=tuple(told(count, least) for count in far),
        few_test_rows=data.few_test_rows,
        rare_classes_left_out=data.rare_classes_left_out,
        sparse_columns=data.sparse_columns,
        block_rows=data.block_rows,
        dealt_anew=data.dealt_anew,
        target_mean=0.0 if target is None else float(target.mean[0]),
        target_deviation=0.0 if target is None else float(target.deviation[0]),
    )


def standardise(job: LocalJob, request: StandardiseRequest) -> Standardised:
    """Scale rows and number classes as agreed; the median distance of training rows where asked.

    Raises:
        JobStateMissingError: The data were not read yet.
        DataError: The agreed classes lack one of this client's.
        PolicyError: The scales cannot be those of rows of which this client's are a part.
    """
    if job.file.policy.min_rows > 1:
        own, _ = finite_moments(job.data, job.schema, job.dataset)
        scales = request.mean.astype(np.float64), request.deviation.astype(np.float64), request.bounds
        refuse_scales(own, job.schema.features, *scales, request.step)
    job.standardise(request.classes, request.mean, request.deviation, request.bounds)
    rule = job.memory(AgreedLengthscale)
    rule.median, rule.drawn, rule.chosen = request.median_distance, request.drawn, request.chosen
    if not request.median_distance:
        return Standardised(num_rows=job.num_rows, median_distance=0.0)
    draw = rng.stream(job.schema.seed, "median distance", job.client) if request.drawn else None
    found = median_distance(job.x_train, draw, least=job.file.policy.min_rows)
    rule.own = found.value
    return Standardised(num_rows=job.num_rows, median_distance=found.value, ties=found.ties)


def map_features(job: LocalJob, request: MapFeaturesRequest) -> FeaturesMapped:
    """Draw the feature map and map all rows; the fingerprint shows that both ends drew the same.

    Raises:
        JobStateMissingError: The rows were not scaled yet.
        WireError: The coordinator counts other outputs than this client.
        PolicyError: Random features would tell of few rows, since the columns have few values; or the lengthscale
            is said to follow from the clients' rows, and cannot.
    """
    rule = job.memory(AgreedLengthscale)
    if request.features.kernel in RANDOM_KERNELS:
        refuse_few_alike(job, request.features.lengthscales)
        if rule.median and job.file.policy.min_rows > 1:
            refuse_lengthscale(rule.own, request.features, request.step)
    if request.num_outputs != job.num_outputs:
        raise WireError(
            f"data.map_features: {request.num_outputs} outputs, but the task has {job.num_outputs} at this client"
        )
    fingerprint = job.map_features(request.features, request.copies)
    return FeaturesMapped(num_rows=job.num_rows, fingerprint=fingerprint, sparse_products=job.sparse_products)


def mean_embedding(job: LocalJob, request: MeanEmbeddingRequest) -> MeanEmbedding:
    """Mean feature vector (M,) and mean target (C,) of the training rows by their weights, not centred.

    A client that is asked again may be centred by now: means added to those of centred features are other last bits.

    Raises:
        JobStateMissingError: The features were not computed yet.
        WireError: The coordinator counts other features or outputs than this client.
    """
    mapped = job.uncentred()
    rows, y = mapped.train, mapped.y_train
    if (request.num_features, request.num_outputs) != (rows.shape[1], y.shape[1]):
        raise WireError(
            f"data.mean_embedding: {request.num_features} features and {request.num_outputs} outputs, "
            f"but this client has {rows.shape[1]} and {y.shape[1]}"
        )
    weights = None if job.row_weights is None else torch.tensor(job.row_weights, device=job.device)
    target_mean = y.mean(0) if weights is None else weights @ y / weights.sum()
    return MeanEmbedding(
        num_rows=job.num_rows,
        feature_mean=to_array(mapped.mean(weights)),
        target_mean=to_array(target_mean),
    )


def centre(job: LocalJob, request: CentreRequest) -> Centred:
    """Subtract the pooled means from features and targets.

    Raises:
        JobStateMissingError: The features were not computed yet.
    """
    job.centre(request.feature_mean, request.target_mean)
    return Centred(num_rows=job.num_rows)


STEPS: dict[type[Any], Any] = {
    DescribeDataRequest: describe,
    StandardiseRequest: standardise,
    MapFeaturesRequest: map_features,
    MeanEmbeddingRequest: mean_embedding,
    CentreRequest: centre,
}
"""Steps of this module, by the request that they answer."""
