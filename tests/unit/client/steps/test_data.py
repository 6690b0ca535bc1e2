"""The data steps on a hospital of the heart example, and what goes wrong between them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from kernfed.errors import ConfigError, DataError, InvalidTensorError, JobStateMissingError, WireError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, FeatureSpec, fingerprint, make_spec
from kernfed.federation.messages.base import validate
from kernfed.federation.messages.data import (
    CentreRequest,
    DataSchema,
    DescribeDataRequest,
    LearningTask,
    MapFeaturesRequest,
    MeanEmbeddingRequest,
    MissingRule,
    StandardiseRequest,
)
from kernfed.jobs.client_file import ClientFile, load_client_file
from kernfed.jobs.job_file import data_schema, load_job
from kernfed_client.data.described import Described
from kernfed_client.data.device import choose_device
from kernfed_client.data.guards.split import JOINED_RULES, RULES
from kernfed_client.data.local_job import LocalJob
from kernfed_client.data.reading.partition_data import PartitionData
from kernfed_client.data.reading.partitions import LocalData
from kernfed_client.data.scaled import scale
from kernfed_client.steps import data
from kernfed_client.steps.registry import STEPS
from kernfed_testing.places import HEART


def heart_schema() -> DataSchema:
    return replace(data_schema(load_job(HEART / "newton.toml")[0]), by_record=False)


def heart_job(state: Path, client: str = "va") -> LocalJob:
    file = load_client_file(HEART / "clients" / f"{client}.toml")
    policy = file.policy.model_copy(update={"drawn_splits": True})
    return LocalJob("j1", client, file.model_copy(update={"state": state, "policy": policy}))


def rows(x: list[list[float]], labels: list[str] | None = None, y: list[float] | None = None) -> PartitionData:
    values = np.array(x, dtype=np.float64)
    return PartitionData(values, labels, None if y is None else np.array(y), 0, np.arange(len(values)))


def memory_job(local: LocalData) -> LocalJob:
    return LocalJob("j1", "c1", ClientFile(device="cpu"), load=lambda dataset, schema, client: local)


def schema(task: LearningTask, classes: tuple[str, ...] = ()) -> DataSchema:
    return DataSchema(
        task=task,
        target="y",
        features=("a", "b"),
        classes=classes,
        missing=MissingRule.REFUSE,
        test_fraction=0.25,
        seed=1,
    )


def prepared(state: Path, spec: FeatureSpec) -> LocalJob:
    job = heart_job(state)
    about = data.describe(job, DescribeDataRequest(dataset="heart", schema=heart_schema()))
    deviation = np.sqrt(about.sum_squares / about.num_rows)
    data.standardise(
        job,
        StandardiseRequest(
            classes=("0", "1"), mean=about.mean, deviation=np.where(deviation > 0, deviation, 1), median_distance=True
        ),
    )
    data.map_features(job, MapFeaturesRequest(features=spec, num_outputs=1))
    return job


SPEC = make_spec(Kernel.GAUSSIAN, FeatureForm.COSINE, 10, 3.0, 50, 7)


def test_every_data_request_has_a_step() -> None:
    """Each request of the set-up is in the table of steps."""
    for request in (DescribeDataRequest, StandardiseRequest, MapFeaturesRequest, MeanEmbeddingRequest, CentreRequest):
        assert request in STEPS


def test_setup_end_to_end_on_one_hospital(tmp_path: Path) -> None:
    """The set-up on one hospital gives the numbers that numpy gives directly."""
    job = heart_job(tmp_path)
    describe = DescribeDataRequest(dataset="heart", schema=heart_schema())
    about = data.describe(job, describe)
    dims = validate(about, validate(describe, {}))
    assert dims["P"] == 10
    assert (about.num_rows, about.num_test_rows, about.num_dropped_rows) == (100, 30, 70)
    assert (about.classes, about.class_counts) == (("0", "1"), (23, 77))
    x = job.data.train.x
    np.testing.assert_allclose(about.mean, x.mean(axis=0))
    np.testing.assert_allclose(about.sum_squares, x.var(axis=0) * 100, atol=1e-9)

    mean, deviation = np.linspace(0, 9, 10), np.linspace(1, 10, 10)
    scaled = data.standardise(
        job, StandardiseRequest(classes=("0", "1"), mean=mean, deviation=deviation, median_distance=True)
    )
    np.testing.assert_allclose(job.x_train, (x - mean) / deviation, rtol=1e-15)
    differences = job.x_train[:, None] - job.x_train[None]
    distances = np.sqrt((differences**2).sum(-1))[np.triu_indices(100, 1)]
    num = math.ceil(len(distances) * 10 / 99)  # the policy's 10 rows: the mean of as many in the middle
    middle = np.sort(distances)[(len(distances) - num) // 2 :][:num]
    assert scaled.median_distance == pytest.approx(middle.mean(), rel=1e-12)
    assert set(job.targets_test.tolist()) == {0, 1}
    assert job.targets_test.tolist() == [int(label) for label in job.data.test.labels or ()]

    mapped = data.map_features(job, MapFeaturesRequest(features=SPEC, num_outputs=1))
    assert mapped.fingerprint == fingerprint(SPEC)
    assert (tuple(job.z_train.shape), tuple(job.test_rows.whole().shape), tuple(job.y_train.shape)) == (
        (100, 50),
        (30, 50),
        (100, 1),
    )
    assert job.z_train.dtype == torch.float64
    assert (job.target_mean == 0).all()

    embedding = data.mean_embedding(job, MeanEmbeddingRequest(num_features=50, num_outputs=1))
    assert embedding.num_rows == 100
    np.testing.assert_allclose(embedding.feature_mean, job.z_train.cpu().numpy().mean(axis=0), atol=1e-14)
    assert embedding.target_mean[0] == pytest.approx(77 / 100)

    before = job.test_rows.whole().clone()
    data.centre(job, CentreRequest(feature_mean=embedding.feature_mean, target_mean=embedding.target_mean))
    assert job.z_train.mean(0).abs().max() < 1e-14
    assert job.y_train.mean().abs() < 1e-14
    torch.testing.assert_close(job.test_rows.whole(), before - torch.tensor(embedding.feature_mean, device=job.device))
    again = data.mean_embedding(job, MeanEmbeddingRequest(num_features=50, num_outputs=1))
    np.testing.assert_array_equal(again.feature_mean, embedding.feature_mean)
    np.testing.assert_array_equal(again.target_mean, embedding.target_mean)


def test_setup_again_gives_the_same_bits(tmp_path: Path) -> None:
    """The set-up gives the same bits again, and other means replace those before."""
    first, second = prepared(tmp_path / "1", SPEC), prepared(tmp_path / "2", SPEC)
    assert torch.equal(first.z_train, second.z_train)
    mean = np.full(50, 0.1)
    data.centre(first, CentreRequest(feature_mean=mean, target_mean=np.array([0.5])))
    once = first.z_train.clone()
    data.centre(first, CentreRequest(feature_mean=mean, target_mean=np.array([0.5])))
    assert torch.equal(first.z_train, once), "the same means are not subtracted twice"
    data.centre(second, CentreRequest(feature_mean=mean * 2, target_mean=np.array([0.25])))
    data.centre(second, CentreRequest(feature_mean=mean, target_mean=np.array([0.5])))
    assert torch.equal(second.z_train, once), "other means replace those before, to the bit"
    assert torch.equal(second.y_train, first.y_train)


def test_setup_repeated_from_the_beginning_forgets_the_rest(tmp_path: Path) -> None:
    """A second description drops scales and features of the first."""
    job = prepared(tmp_path, SPEC)
    data.describe(job, DescribeDataRequest(dataset="heart", schema=heart_schema()))
    with pytest.raises(JobStateMissingError, match=r"data\.standardise"):
        _ = job.x_train
    with pytest.raises(JobStateMissingError, match=r"data\.map_features"):
        _ = job.z_train


def test_steps_out_of_order_say_what_is_missing(tmp_path: Path) -> None:
    """A step that comes too early names the step that it waits for."""
    job = heart_job(tmp_path)
    ones = np.ones(10)
    with pytest.raises(JobStateMissingError, match=r"data\.describe"):
        data.standardise(job, StandardiseRequest(classes=("0", "1"), mean=ones, deviation=ones, median_distance=False))
    with pytest.raises(JobStateMissingError, match=r"data\.describe"):
        data.map_features(job, MapFeaturesRequest(features=SPEC, num_outputs=1))
    data.describe(job, DescribeDataRequest(dataset="heart", schema=heart_schema()))
    with pytest.raises(JobStateMissingError, match=r"data\.standardise"):
        data.map_features(job, MapFeaturesRequest(features=SPEC, num_outputs=1))
    data.standardise(job, StandardiseRequest(classes=("0", "1"), mean=ones, deviation=ones, median_distance=False))
    with pytest.raises(JobStateMissingError, match=r"data\.map_features"):
        data.mean_embedding(job, MeanEmbeddingRequest(num_features=50, num_outputs=1))
    with pytest.raises(JobStateMissingError, match=r"data\.map_features"):
        data.centre(job, CentreRequest(feature_mean=ones, target_mean=ones))


def test_a_failed_describe_leaves_nothing_behind(tmp_path: Path) -> None:
    """After a description that failed no data are left of the one before."""
    job = prepared(tmp_path, SPEC)
    with pytest.raises(DataError, match="not offered"):
        data.describe(job, DescribeDataRequest(dataset="lungs", schema=heart_schema()))
    with pytest.raises(JobStateMissingError):
        _ = job.num_rows


def test_memo_lasts_until_features_or_means_change(tmp_path: Path) -> None:
    """What a job keeps is made again once its features or means change."""
    job = prepared(tmp_path, SPEC)
    made = []

    def make() -> int:
        made.append(1)
        return len(made)

    assert [job.memo("h", make), job.memo("h", make)] == [1, 1]
    data.centre(job, CentreRequest(feature_mean=np.ones(50), target_mean=np.ones(1)))
    assert job.memo("h", make) == 2
    data.map_features(job, MapFeaturesRequest(features=SPEC, num_outputs=1))
    assert job.memo("h", make) == 3


def test_requests_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """Scales, features and means of the wrong size are refused by what is wrong."""
    job = prepared(tmp_path / "1", SPEC)
    ones = np.ones(10)
    zero = np.array([*np.ones(9), 0.0])
    with pytest.raises(WireError, match="deviation of column 'oldpeak'"):
        data.standardise(job, StandardiseRequest(classes=("0", "1"), mean=ones, deviation=zero, median_distance=False))
    with pytest.raises(InvalidTensorError, match="10 feature columns"):
        data.standardise(
            job, StandardiseRequest(classes=("0", "1"), mean=ones[:9], deviation=ones[:9], median_distance=False)
        )
    with pytest.raises(WireError, match="2 outputs"):
        data.map_features(job, MapFeaturesRequest(features=SPEC, num_outputs=2))
    with pytest.raises(DataError, match="for 3 columns"):
        data.map_features(
            job, MapFeaturesRequest(features=make_spec(Kernel.LINEAR, FeatureForm.COSINE, 3, 1.0, 0, 0), num_outputs=1)
        )
    with pytest.raises(ConfigError, match="features"):
        data.map_features(job, MapFeaturesRequest(features=replace(SPEC, num_features=51), num_outputs=1))
    job = prepared(tmp_path / "2", SPEC)
    with pytest.raises(WireError, match="49 features"):
        data.mean_embedding(job, MeanEmbeddingRequest(num_features=49, num_outputs=1))
    with pytest.raises(InvalidTensorError, match="means"):
        data.centre(job, CentreRequest(feature_mean=np.ones(49), target_mean=np.ones(1)))


@pytest.mark.parametrize(
    ("task", "classes", "expected"),
    [
        (LearningTask.BINARY, ("no", "perhaps"), "1 of this client's classes are not among the 2"),
        (LearningTask.BINARY, ("no", "perhaps", "yes"), "3 classes; use task"),
        (LearningTask.CLASSIFICATION, ("no", "no", "yes"), "different"),
        (LearningTask.CLASSIFICATION, ("yes",), "at least two"),
        (LearningTask.REGRESSION, ("no", "yes"), "task is regression"),
    ],
)
def test_agreed_classes_must_fit(task: LearningTask, classes: tuple[str, ...], expected: str) -> None:
    """Agreed classes that do not fit those of the client are refused without naming its own."""
    regress = task is LearningTask.REGRESSION
    part = rows([[1, 2], [3, 4]], None if regress else ["yes", "no"], [1.0, 2.0] if regress else None)
    job = memory_job(LocalData(part, part, 0, () if regress else ("no", "yes")))
    data.describe(job, DescribeDataRequest(dataset="d", schema=schema(task)))
    with pytest.raises(DataError, match=expected) as caught:
        data.standardise(
            job, StandardiseRequest(classes=classes, mean=np.zeros(2), deviation=np.ones(2), median_distance=False)
        )
    assert "yes" not in str(caught.value)


def test_classes_become_columns_in_the_agreed_order() -> None:
    """Targets have a column for each agreed class, those of other clients too."""
    part = rows([[1, 2], [3, 4], [5, 6]], ["b", "c", "b"])
    job = memory_job(LocalData(part, part.take(np.array([1])), 0, ("b", "c")))
    about = data.describe(job, DescribeDataRequest(dataset="d", schema=schema(LearningTask.CLASSIFICATION)))
    assert (about.classes, about.class_counts) == (("b", "c"), (2, 1))
    data.standardise(
        job, StandardiseRequest(classes=("a", "b", "c"), mean=np.zeros(2), deviation=np.ones(2), median_distance=False)
    )
    data.map_features(
        job, MapFeaturesRequest(features=make_spec(Kernel.LINEAR, FeatureForm.COSINE, 2, 1.0, 0, 0), num_outputs=3)
    )
    assert job.y_train.tolist() == [[0, 1, 0], [0, 0, 1], [0, 1, 0]]
    assert job.targets_test.tolist() == [2]


def test_regression_targets_are_kept_as_they_are() -> None:
    """Targets that are numbers are centred for training and otherwise kept."""
    part = rows([[1, 2], [3, 4]], y=[1.5, -2.5])
    job = memory_job(LocalData(part, part.take(np.array([], dtype=np.int64)), 0, ()))
    about = data.describe(job, DescribeDataRequest(dataset="d", schema=schema(LearningTask.REGRESSION)))
    assert (about.classes, about.class_counts, about.num_test_rows) == ((), (), 0)
    data.standardise(job, StandardiseRequest(classes=(), mean=np.zeros(2), deviation=np.ones(2), median_distance=True))
    data.map_features(
        job, MapFeaturesRequest(features=make_spec(Kernel.LINEAR, FeatureForm.COSINE, 2, 1.0, 0, 0), num_outputs=1)
    )
    data.centre(job, CentreRequest(feature_mean=np.ones(2), target_mean=np.array([1.0])))
    assert job.y_train.tolist() == [[0.5], [-3.5]]
    assert job.targets_train.tolist() == [1.5, -2.5]
    assert tuple(job.test_rows.whole().shape) == (0, 2)


def test_numbers_that_overflow_name_their_column() -> None:
    """A column whose squares overflow is refused by its name."""
    part = rows([[1, 1e200], [3, -1e200]], y=[1.5, -2.5])
    job = memory_job(LocalData(part, part, 0, ()))
    with pytest.raises(DataError, match="column 'b'"):
        data.describe(job, DescribeDataRequest(dataset="d", schema=schema(LearningTask.REGRESSION)))
    part = rows([[1, 1e150], [3, -1e150]], y=[1.5, -2.5])
    job = memory_job(LocalData(part, part, 0, ()))
    data.describe(job, DescribeDataRequest(dataset="d", schema=schema(LearningTask.REGRESSION)))
    with pytest.raises(DataError, match="column 'b' exceeds"):
        data.standardise(
            job,
            StandardiseRequest(
                classes=(),
                mean=np.zeros(2),
                deviation=np.array([1.0, 1e-300]),
                median_distance=False,
                bounds=(0.0, 10.0),
            ),
        )


@pytest.mark.parametrize(("rules", "num_cut"), [(JOINED_RULES, 3), (RULES, 4)])
def test_a_job_that_was_begun_before_is_cut_as_then(rules: int, num_cut: int) -> None:
    """Bounds are ones for a multiple of the policy's rows, unless the job was begun before that was a rule."""
    part = rows([[float(i), 12.0 if i > 6 else i / 2] for i in range(10)], y=[0.0] * 10)
    described = Described("d", schema(LearningTask.REGRESSION), LocalData(part, part, 0, (), rules=rules))
    found = scale(described, (), np.zeros(2), np.ones(2), (0.0, 10.0), least=2)
    assert (found.x_train[:, 1] == 10.0).sum() == num_cut


def test_devices() -> None:
    """A device that is not there is refused, with the word that always works."""
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(ConfigError, match='device = "auto"'):
        choose_device("cuda:999")
