"""The last stage of a job at a client: features of the rows, and targets as columns, centred where the job centres."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from kernfed.arrays import Array, Floats
from kernfed.errors import DataError, InvalidTensorError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureSpec, draw_frequencies, fingerprint
from kernfed.maths.few.rows import FewProducts, few_products
from kernfed.maths.tasks import TASKS
from kernfed.tensors.feature_maps import FeatureMap
from kernfed.tensors.row_sums import RowSums
from kernfed.tensors.rows import MappedRows, mean_of
from kernfed.tensors.shifted_gram import ShiftedGram
from kernfed_client.data.scaled import Scaled


@dataclass(frozen=True, slots=True)
class Mapped:
    """Features and targets of one client's rows."""

    features: FeatureSpec
    """The feature map."""
    fingerprint: str
    """That of the frequencies drawn."""
    train: MappedRows
    """Features of the training rows, float64 (n, M), less `feature_mean`; computed when they are read."""
    test: MappedRows
    """Features of the test rows, float64 (m, M), less `feature_mean`."""
    y_train: Tensor
    """Training targets, float64 (n, C): values, 0/1, or one-hot; less `target_mean`."""
    feature_mean: Floats
    """Values subtracted from the features, (M,); zeros where nothing is."""
    target_mean: Floats
    """Values subtracted from the targets, (C,); zeros where nothing is."""
    centred: bool = False
    """Whether means were subtracted."""
    sparse_products: int = 0
    """Products of two columns that tell of few rows, and are taken as 0 there."""
    sums: RowSums | None = None
    """Of the training rows and their targets less nothing: one pass serves means and ridge problems; None: there are
    few rows, or no ridge problem comes of them."""

    def mean(self, weights: Tensor | None = None) -> Tensor:
        """Mean of the training rows' features, (M,), by their weights, (n,), where given."""
        return mean_of(self.train, weights) if self.sums is None or weights is not None else self.sums.mean()

    def ridge_sums(self) -> Callable[[], tuple[ShiftedGram, Tensor]] | None:
        """What gives the sums of a ridge problem of centred rows; None: the problem makes them itself."""
        if self.sums is None or not self.centred:
            return None
        device = self.y_train.device
        z, y = (torch.tensor(mean, device=device) for mean in (self.feature_mean, self.target_mean))
        return functools.partial(self.sums.around, z, y)

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


def map_rows(
    scaled: Scaled,
    spec: FeatureSpec,
    device: torch.device,
    limit: Callable[[], int],
    least: tuple[int, int],
    *,
    sums: bool,
) -> Mapped:
    """Draw the feature map; features are not centred yet, and computed when they are read.

    Args:
        scaled: The rows.
        spec: The map.
        device: Where features are computed.
        limit: Bytes that features of all rows at once may take.
        least: Fewest training rows, and fewest test rows, that a product of two columns tells of; 1: any number.
        sums: Whether the method sums over the rows, as ridge problems do.

    Raises:
        ConfigError: The specification contradicts itself.
    """
    frequencies = draw_frequencies(spec)
    few = [few_products_of(x, spec, num) for x, num in zip((scaled.x_train, scaled.x_test), least, strict=True)]
    train, test = (FeatureMap(spec, device=device, frequencies=frequencies, few=found) for found in few)
    targets = TASKS[scaled.task].encode(scaled.targets_train, scaled.classes)
    rows = MappedRows(torch.as_tensor(scaled.x_train, device=device), train, limit=limit)
    y_train = torch.tensor(targets, device=device)
    return Mapped(
        features=spec,
        fingerprint=fingerprint(spec, frequencies),
        train=rows,
        test=MappedRows(torch.as_tensor(scaled.x_test, device=device), test, limit=limit),
        y_train=y_train,
        feature_mean=np.zeros(spec.num_features),
        target_mean=np.zeros(targets.shape[1]),
        sparse_products=sum(found.num for found in few if found is not None),
        sums=RowSums(rows, y_train) if sums and RowSums.saves(*rows.shape) else None,
    )


def few_products_of(x: Floats, spec: FeatureSpec, least: int) -> FewProducts | None:
    """Products of two columns of x, (n, P), that tell of fewer rows than `least`; None: there are none in this map."""
    if spec.kernel is not Kernel.POLYNOMIAL2 or not 1 < least <= len(x):
        return None
    found = few_products(x / np.array(spec.lengthscales), least)
    return found if found.num else None


def centred(mapped: Mapped, feature_mean: Array, target_mean: Array) -> Mapped:
    """Subtract means from features and targets.

    Args:
        mapped: Not centred yet: subtracting a difference of means would round twice.
        feature_mean: (M,).
        target_mean: (C,).
    """
    features, targets = feature_mean.astype(np.float64), target_mean.astype(np.float64)
    device = mapped.y_train.device
    z, y = torch.tensor(features, device=device), torch.tensor(targets, device=device)
    return replace(
        mapped,
        train=mapped.train.minus(z),
        test=mapped.test.minus(z),
        y_train=mapped.y_train - y,
        feature_mean=features,
        target_mean=targets,
        centred=True,
    )
