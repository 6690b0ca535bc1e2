"""Which rows a client embeds, and their features: those that it trains on, and unlabelled ones beside them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from kernfed import rng
from kernfed.arrays import Floats, Integers
from kernfed.errors import WireError
from kernfed.features.kernels import RANDOM_KERNELS
from kernfed.features.spec import FeatureForm, FeatureSpec, Frequencies
from kernfed.maths.clipping import clip_rows
from kernfed.maths.folds import units
from kernfed.methods.personalise.embedding_messages import EmbeddingPoints, EmbedRequest, SharePointsRequest
from kernfed.methods.personalise.embeddings import View
from kernfed.tensors.feature_maps import FeatureMap
from kernfed_client.data.finite_moments import clips_scales
from kernfed_client.data.guards.few_values import refuse_few_alike
from kernfed_client.data.guards.split import JOINED_RULES
from kernfed_client.data.local_job import LocalJob
from kernfed_client.data.mapped import few_products_of
from kernfed_client.data.reading.partition_data import PartitionData
from kernfed_client.data.unlabelled import blocks_of_points, unlabelled_rows


class Beside(NamedTuple):
    """Unlabelled rows that are embedded with the training rows, m of them."""

    columns: Floats
    """As the embedding sees them, (m, d)."""
    phi: Floats
    """Their features, (m, M)."""
    unit: Integers
    """Number of each row's content, (m,): copies of a row, and rows of a group, have one."""


def rows_beside(job: LocalJob, request: EmbedRequest) -> Beside:
    """The client's unlabelled rows, where the request wants them; none where it has none, or too few to be told of.

    Raises:
        DataError: The partition cannot be read, or does not fit the job.
        PolicyError: They would tell of few rows, beside those of earlier jobs or since the columns have few values.
        WireError: The embedding is of targets, which these rows lack.
    """
    spec = request.features
    nothing = Beside(np.zeros((0, spec.num_columns)), np.zeros((0, spec.num_features)), np.zeros(0, dtype=np.int64))
    if not request.unlabelled:
        return nothing
    if request.view is not View.X:
        raise WireError(f"{request.step}: unlabelled rows have no targets, and the embedding is of {request.view}")
    found = unlabelled_columns(job)
    if found is None:
        return nothing
    rows, x = found
    if job.file.policy.min_rows > 1 or job.file.policy.least_groups > 1:
        # Which sets of rows were told of is kept for this client's life.
        job.memo("blocks of points", lambda: blocks_of_points(job, rows))
    columns: Floats = (x - request.mean) / request.deviation
    refuse_few_embedded(job, spec, columns, rows.row_numbers)
    phi = embedding_features(job, request, columns, "the features of all unlabelled rows")
    return Beside(columns, phi, units(rows.x, rows.group))


def unlabelled_columns(job: LocalJob) -> tuple[PartitionData, Floats] | None:
    """The client's unlabelled rows, and their columns scaled like its training rows, (m, P).

    None where it has none, or too few to be told of.

    Raises:
        DataError: The partition cannot be read, or does not fit the job.
    """
    rows, policy = unlabelled_rows(job), job.file.policy
    if rows is None or rows.num_rows < policy.min_rows:
        return None
    if rows.group is not None and rows.num_groups < policy.least_groups:
        return None
    x = clip_rows(rows.x)[0] if clips_scales(job.schema) else rows.x
    return rows, (x - job.mean) / job.deviation


def share_points(job: LocalJob, request: SharePointsRequest) -> EmbeddingPoints:
    """Rows that are drawn from those that will be embedded, without targets: the same ones for the same request."""
    x = job.x_train
    if request.num_columns != x.shape[1]:
        raise WireError(f"{request.step}: {request.num_columns} columns, this client has {x.shape[1]}")
    if request.unlabelled and (beside := unlabelled_columns(job)):
        x = np.vstack([x, beside[1]])
    size = min(request.num_points, job.file.policy.max_sample_points)
    chosen = np.sort(rng.stream(request.seed, "personalise", "points", job.client).permutation(len(x))[:size])
    return EmbeddingPoints(num_rows=job.num_rows, points=x[chosen])


def embedding_features(job: LocalJob, request: EmbedRequest, columns: Floats, what: str) -> Floats:
    """Features of rows, (n, M), from their columns as the embedding sees them, (n, d).

    Args:
        job: Of this client.
        request: Has the map.
        columns: The rows.
        what: They are, for messages.

    Raises:
        DataError: They do not fit into memory.
        WireError: The map and its landmarks do not fit.
    """
    spec = request.features
    job.require(len(columns) * spec.num_features, what)
    if request.landmarks:
        points = np.array(request.landmarks[-1].points, dtype=np.float64)  # torch wants memory that may be written
        if spec.form is not FeatureForm.NYSTROEM or points.shape != (spec.num_frequencies, spec.num_columns):
            raise WireError(f"{request.step}: landmarks of shape {points.shape} for a map of {spec.num_frequencies}")
        drawn = Frequencies(points, np.zeros(len(points)))
        by_points: Floats = FeatureMap(spec, frequencies=drawn)(torch.from_numpy(np.ascontiguousarray(columns))).numpy()
        return by_points
    least = job.fewest_apart[0] if job.data.rules >= JOINED_RULES else 1
    few = few_products_of(columns, spec, least)
    found: Floats = job.feature_map(spec, few=few)(torch.from_numpy(np.ascontiguousarray(columns))).numpy()
    return found


def refuse_few_embedded(
    job: LocalJob, features: FeatureSpec, columns: Floats, row_numbers: Integers | None = None
) -> None:
    """Refuse an embedding by random features.

    Args:
        job: Its rows are scaled.
        features: The map of the embedding.
        columns: Rows as the embedding sees them, columns of x first, (n, P) or more columns.
        row_numbers: Of these rows in their file, (n,); unset: they are the training rows.

    Raises:
        PolicyError: It would tell of few rows, since the columns have few values.
    """
    if features.kernel not in RANDOM_KERNELS:
        return
    num = job.x_train.shape[1]
    lengths = np.broadcast_to(features.lengthscales, features.num_columns)[:num]
    remedy = 'method.embedding_kernel = "linear" or "polynomial2"'
    refuse_few_alike(job, tuple(lengths), columns[:, :num], remedy=remedy, row_numbers=row_numbers)
