"""The last stage of a job: features and targets, which a later stage replaces and nothing changes."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch

from kernfed.errors import DataError, InvalidTensorError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, make_spec
from kernfed.federation.messages.data import LearningTask
from kernfed.tensors.ridge import LocalRidge
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
    return map_rows(scaled(), SPEC, CPU, lambda: 1 << 30, (1, 1), sums=True)


def many(*, sums: bool) -> Mapped:
    """Rows whose features are not kept."""
    x = np.random.default_rng(4).normal(size=(9000, 2))
    rows = replace(scaled(), x_train=x, targets_train=(3 * (x[:, 0] > 0.4)).astype(np.int64) // 2)
    spec = make_spec(Kernel.GAUSSIAN, FeatureForm.COSINE, 2, 1.0, 40, 7)
    return map_rows(rows, spec, CPU, lambda: 1 << 30, (1, 1), sums=sums)


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


def test_one_pass_serves_means_and_ridge_problems() -> None:
    """As near to two passes as digits allow, and with the same bits at a client that is told means and asked none."""
    asked, told, plain = many(sums=True), many(sums=True), many(sums=False)
    mean = asked.mean()
    torch.testing.assert_close(mean, plain.mean(), rtol=0, atol=1e-14)
    weights = torch.linspace(1.0, 2.0, 9000, dtype=torch.float64)
    assert torch.equal(asked.mean(weights), plain.mean(weights))
    assert asked.ridge_sums() is None, "the problem of rows that are not centred sums by itself"
    means = mean.numpy(), plain.y_train.mean(0).numpy()
    found = []
    for stage in (centred(asked, *means), centred(told, *means), centred(plain, *means)):
        assert (stage.ridge_sums() is None) is (stage.sums is None)
        found.append(LocalRidge(stage.train, stage.y_train, 1e-3, stage.ridge_sums()).solve())
    assert torch.equal(found[0], found[1])
    torch.testing.assert_close(found[0], found[2], rtol=0, atol=1e-11)
    assert mapped().sums is None, "few rows are kept"


def test_what_does_not_fit_is_refused() -> None:
    """A feature map of other columns, and means of other lengths, name both counts."""
    with pytest.raises(DataError, match="for 2 columns, but the job has 3"):
        check_map(scaled(3), SPEC)
    found = mapped()
    with pytest.raises(InvalidTensorError, match=r"\(5,\)"):
        found.check_means(np.zeros(5), found.target_mean)
