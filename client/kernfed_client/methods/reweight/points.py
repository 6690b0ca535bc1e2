"""The points between which density ratios are fitted: rows as they are, or what a frozen map makes of them."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernfed import rng
from kernfed.arrays import Floats, Integers
from kernfed.errors import ConfigError, DataError
from kernfed.maths.batches import batches
from kernfed.methods.reweight.ratio_spec import RatioFeatures, RatioInput
from kernfed.methods.reweight.tensors.ratio_features import project, random_convolutions
from kernfed_client.data.guards.split import JOINED_RULES
from kernfed_client.data.local_job import LocalJob
from kernfed_client.data.reading.backbones import Backbone, load_backbone, prepare_pixels
from kernfed_client.data.reading.feature_cache import FeatureCache
from kernfed_client.data.reading.partition_data import PartitionData
from kernfed_client.data.unlabelled import blocks_of_points, of_no_few, unlabelled_rows


def train_points(job: LocalJob, features: RatioFeatures, num: int | None = None) -> Floats:
    """Training rows under the map, (n, P).

    Args:
        job: With rows scaled.
        features: The map.
        num: Only so many first rows; unset: all.

    Raises:
        DataError: The map does not fit these rows, or its backbone is not allowed here.
    """
    if features.as_they_are:
        return job.x_train[:num]
    if num is not None:
        return _mapped(job, features, job.data.train.x[:num])
    return job.memo(("ratio features", features, "train"), lambda: _mapped(job, features, job.data.train.x))


def test_points(job: LocalJob, features: RatioFeatures) -> Floats:
    """Points of the test distribution under the map, (m, P): of the unlabelled partition if any, else test rows.

    Raises:
        DataError: As `train_points`.
    """
    rows = test_rows(job)
    if features.as_they_are:
        return job.x_test if rows is job.data.test.x else (rows - job.mean) / job.deviation
    return job.memo(("ratio features", features, "test"), lambda: _mapped(job, features, rows))


def drawn_points(job: LocalJob, features: RatioFeatures, num: int, seed: int) -> Floats:
    """About so many test points under the map, (m, P), for sums over them: the same ones for the same seed.

    Where a number must stand for several rows, whole blocks of points are drawn, the fewest that hold so many.

    Raises:
        DataError: As `train_points`.
    """
    points = test_points(job, features)
    chosen, _, _ = point_choice(job, num, seed)
    drawn: Floats = np.ascontiguousarray(points[chosen])
    return drawn


def point_choice(job: LocalJob, num: int, seed: int) -> tuple[Integers, Integers | None, Integers | None]:
    """Which test points are drawn, in rising order, (m,), and the block and the group of each.

    Without blocks they are drawn one by one, or group by group; both are None where points have none.

    Raises:
        DataError: As `test_rows`.
    """
    rows, order, policy = _test_table(job), rng.stream(seed, "reweight", "sample", job.client), job.file.policy
    num_rows, group = rows.num_rows, rows.group
    if policy.min_rows == 1 and (group is None or policy.least_groups == 1):
        chosen = np.sort(order.permutation(num_rows)[:num])
        return chosen, None, None if group is None else group[chosen]

    block = job.memo("blocks of points", lambda: blocks_of_points(job, rows))
    chosen = np.arange(num_rows) if num >= num_rows else np.sort(next(batches(order, num_rows, num, block)))
    return chosen, block[chosen], None if group is None else group[chosen]


def sample_points(job: LocalJob, features: RatioFeatures, num: int, seed: int) -> Floats:
    """At most so many test points under the map, (m, P), which leave as they are: the same ones for the same seed.

    Raises:
        DataError: As `train_points`.
    """
    points = test_points(job, features)
    chosen = np.sort(rng.stream(seed, "reweight", "sample", job.client).permutation(len(points))[:num])
    drawn: Floats = np.ascontiguousarray(points[chosen])
    return drawn


def test_rows(job: LocalJob) -> Floats:
    """Rows of the test distribution in the units of the data, (m, columns).

    Raises:
        DataError: The unlabelled partition cannot be read, or holds other rows than this job read before.
    """
    return _test_table(job).x


def groups_of_test_points(job: LocalJob) -> Integers | None:
    """Number of the group of each row of the test distribution, (m,); None: they have none.

    Raises:
        DataError: As `test_rows`.
    """
    return _test_table(job).group


def _test_table(job: LocalJob) -> PartitionData:
    if (rows := unlabelled_rows(job)) is not None:
        return rows
    test = job.data.test
    return test if job.data.rules < JOINED_RULES else job.memo("test points", lambda: of_no_few(job, test))


def fingerprint_of(job: LocalJob, features: RatioFeatures) -> str:
    """Of the map's backbone; empty without one.

    Raises:
        DataError: The backbone is not allowed here.
    """
    return _backbone(job, features).fingerprint if features.source is RatioInput.BACKBONE else ""


def _mapped(job: LocalJob, features: RatioFeatures, rows: Floats) -> Floats:
    if features.source is RatioInput.BACKBONE:
        made = torch.as_tensor(_extracted(job, features, rows), device=job.device)
    elif features.source is RatioInput.CONVOLUTIONS:
        made = random_convolutions(_images(features, rows).to(job.device), features.seed)
    else:
        made = torch.as_tensor((rows - job.mean) / job.deviation, device=job.device)
    if features.num_features:
        made = project(made, features.num_features, features.seed)
    return np.ascontiguousarray(made.double().cpu().numpy())


def _images(features: RatioFeatures, rows: Floats) -> Tensor:
    """Rows as pixels in [0, 1], float32 (n, channels, height, width)."""
    channels, height, width = features.image
    if channels * height * width != rows.shape[1]:
        raise DataError(
            f"method.ratios.image is {list(features.image)}, {channels * height * width} pixels, but a row has "
            f"{rows.shape[1]} columns; correct it, or the job's features"
        )
    if len(rows) and not (features.pixel_max > 0 and rows.min() >= 0 and rows.max() <= features.pixel_max):
        raise DataError(
            f"columns are not pixels from 0 to {features.pixel_max:g}; set method.ratios.pixel_max to what is white in "
            "them, or use other features"
        )
    return torch.from_numpy(rows / features.pixel_max).float().reshape(-1, channels, height, width)


def _extracted(job: LocalJob, features: RatioFeatures, rows: Floats) -> Floats:
    """Features that the backbone computes from rows; kept on disk by their content, as for jobs on its columns."""
    backbone = _backbone(job, features)
    cache = FeatureCache(job.file.state / "features", job.file.feature_cache_bytes)
    facts = f"{backbone.fingerprint} ratios {list(features.image)} {features.pixel_max!r} {rows.shape}"
    key = hashlib.sha256(facts.encode() + np.ascontiguousarray(rows).tobytes()).hexdigest()
    found = cache.get(key)
    if found is None:

        def batch(start: int) -> Any:
            chosen = rows[start : start + backbone.section.batch_size]
            if features.image:
                return prepare_pixels(_images(features, chosen), backbone.section)
            return chosen.astype(np.float32)

        found = backbone.features(batch, len(rows))
        cache.put(key, found)
    return found.astype(np.float64)


def _backbone(job: LocalJob, features: RatioFeatures) -> Backbone:
    def load() -> Backbone:
        try:
            found = load_backbone(features.backbone, job.file.backbones, job.device, "method.ratios.backbone")
        except ConfigError as err:
            raise DataError(str(err)) from err
        if found.reads_text:
            raise DataError(
                f"backbone {features.backbone!r} reads texts, and density ratios are fitted on images or rows; name "
                "another in method.ratios.backbone"
            )
        return found

    return job.memo(("ratio backbone", features.backbone), load)
