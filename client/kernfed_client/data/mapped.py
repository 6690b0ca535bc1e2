"""The last stage of a job at a client: features of the rows, and targets as columns, centred where the job centres."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from kernfed.arrays import Array, Floats
from kernfed.errors import DataError, InvalidTensorError
from kernfed.features.spec import FeatureSpec, draw_frequencies, fingerprint
from kernfed.maths.tasks import TASKS
from kernfed.tensors.feature_maps import FeatureMap
from kernfed_client.data.scaled import Scaled


@dataclass(frozen=True, slots=True)
class Mapped:
    """Features and targets of one client's rows."""

    features: FeatureSpec
    """The feature map."""
    fingerprint: str
    """That of the frequencies drawn."""
    z_train: Tensor
    """Features of the training rows, float64 (n, M), less `feature_mean`."""
    z_test: Tensor
    """Features of the test rows, float64 (m, M), less `feature_mean`."""
    y_train: Tensor
    """Training targets, float64 (n, C): values, 0/1, or one-hot; less `target_mean`."""
    feature_mean: Floats
    """Values subtracted from the features, (M,); zeros where nothing is."""
    target_mean: Floats
    """Values subtracted from the targets, (C,); zeros where nothing is."""
    centred: bool = False
    """Whether means were subtracted."""

    def check_means(self, feature_mean: Array, target_mean: Array) -> None:
        """Refuse means of other lengths.

        Raises:
            InvalidTensorError: A mean has another length than the features or the targets.
        """
        if feature_mean.shape != self.feature_mean.shape or target_mean.shape != self.target_mean.shape:
            raise InvalidTensorError(
                f"data.centre has means {feature_mean.shape} and {target_mean.shape}, "
                f"want {self.feature_mean.shape} and {self.target_mean.shape}"
            )

    def is_centred_by(self, feature_mean: Array, target_mean: Array) -> bool:
        """Whether just these means were subtracted already; lengths are as `check_means` wants them."""
        same = (self.feature_mean == feature_mean).all() and (self.target_mean == target_mean).all()
        return self.centred and bool(same)


def check_map(scaled: Scaled, spec: FeatureSpec) -> None:
    """Refuse a feature map of other columns.

    Raises:
        DataError: The map is for another number of columns.
    """
    num_columns = scaled.x_train.shape[1]
    if spec.num_columns != num_columns:
        raise DataError(
            f"the feature map is for {spec.num_columns} columns, but the job has {num_columns} feature columns"
        )


def map_rows(scaled: Scaled, spec: FeatureSpec, device: torch.device) -> Mapped:
    """Compute the features of all rows, not centred.

    Raises:
        ConfigError: The specification contradicts itself.
        DataError: The features do not fit into memory.
    """
    frequencies = draw_frequencies(spec)
    feature_map = FeatureMap(spec, device=device, frequencies=frequencies)
    targets = TASKS[scaled.task].encode(scaled.targets_train, scaled.classes)
    return Mapped(
        features=spec,
        fingerprint=fingerprint(spec, frequencies),
        z_train=_features(feature_map, scaled.x_train, device),
        z_test=_features(feature_map, scaled.x_test, device),
        y_train=torch.tensor(targets, device=device),
        feature_mean=np.zeros(spec.num_features),
        target_mean=np.zeros(targets.shape[1]),
    )


def centred(mapped: Mapped, feature_mean: Array, target_mean: Array) -> Mapped:
    """Subtract means from features and targets.

    The result takes the memory of `mapped` over, as the features are by far the largest thing that a client holds:
    drop `mapped` before the call, for no step may read it afterwards.

    Args:
        mapped: Not centred yet: subtracting a difference of means would round twice.
        feature_mean: (M,).
        target_mean: (C,).
    """
    features, targets = feature_mean.astype(np.float64), target_mean.astype(np.float64)
    device = mapped.z_train.device
    z, y = torch.tensor(features, device=device), torch.tensor(targets, device=device)
    return replace(
        mapped,
        z_train=mapped.z_train.sub_(z),
        z_test=mapped.z_test.sub_(z),
        y_train=mapped.y_train.sub_(y),
        feature_mean=features,
        target_mean=targets,
        centred=True,
    )


def _features(feature_map: FeatureMap, x: Floats, device: torch.device) -> Tensor:
    try:
        rows = torch.as_tensor(x, device=device)
        out = torch.empty(len(x), feature_map.num_features, dtype=torch.float64, device=device)
    except RuntimeError as err:  # torch's way to say that memory is short, on CPU and on CUDA
        size = len(x) * feature_map.num_features * 8 / 2**30
        raise DataError(
            f"features of {feature_map.num_features} numbers per row need {size:.1f} GiB, more than "
            f"{device} has; lower features.num_frequencies in the job or use a larger machine"
        ) from err
    return feature_map(rows, out)
