"""The last stage of a job: features and targets, which a later stage replaces and nothing changes."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch

from kernfed.errors import DataError, InvalidTensorError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, make_spec
from kernfed.federation.messages.data import LearningTask
from kernfed_client.data.mapped import Mapped, centred, check_map, map_rows
from kernfed_client.data.scaled import Scaled

SPEC = make_spec(Kernel.GAUSSIAN, FeatureForm.COSINE, 2, 1.0, 4, 7)
CPU = torch.device("cpu")


def scaled(num_columns: int = 2) -> Scaled:
    x = np.arange(4.0 * num_columns).reshape(4, num_columns) / 8
    zeros, ones = np.zeros(num_columns), np.ones(num_columns)
    labels = np.array([0, 2, 1, 2])
    return Scaled(
        task=LearningTask.CLASSIFICATION,
        classes=("a", "b", "c"),
        mean=zeros,
        deviation=ones,
        x_train=x,
        x_test=x[:1],
        targets_train=labels,
        targets_test=labels[:1],
    )


def mapped() -> Mapped:
    return map_rows(scaled(), SPEC, CPU, lambda: 1 << 30, (1, 1))


def test_rows_become_features_and_columns_of_targets() -> None:
    """Targets are one-hot in the agreed order, nothing is subtracted yet, and no field can be set."""
    found = mapped()
    assert found.train.shape == (4, SPEC.num_features)
    assert found.test.shape == (1, SPEC.num_features)
    assert found.y_train.tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 0, 1]]
    assert not found.centred
    assert not found.feature_mean.any()
    with pytest.raises(FrozenInstanceError):
        found.centred = True  # type: ignore[misc]  # that it cannot be set is what is tested


def test_centring_makes_a_stage_of_its_own() -> None:
    """The centred stage is the other less the means, and states them."""
    plain = mapped()
    means = plain.train.whole().mean(0).numpy(), plain.y_train.mean(0).numpy()
    found = centred(plain, *means)
    assert torch.equal(found.train.whole(), plain.train.whole() - torch.tensor(means[0]))
    assert torch.equal(found.test.whole(), plain.test.whole() - torch.tensor(means[0]))
    assert torch.equal(found.y_train, plain.y_train - torch.tensor(means[1]))
    assert found.centred
    assert found.is_centred_by(*means)
    assert not found.is_centred_by(means[0] + 1, means[1])
    assert not plain.is_centred_by(plain.feature_mean, plain.target_mean)
    assert plain.y_train.tolist()[0] == [1, 0, 0], "the stage before stays as it is"


def test_what_does_not_fit_is_refused() -> None:
    """A feature map of other columns, and means of other lengths, name both counts."""
    with pytest.raises(DataError, match="for 2 columns, but the job has 3"):
        check_map(scaled(3), SPEC)
    found = mapped()
    with pytest.raises(InvalidTensorError, match=r"\(5,\)"):
        found.check_means(np.zeros(5), found.target_mean)
