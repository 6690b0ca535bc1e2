"""What one job holds at a client: its rows, in three stages.

Each stage is frozen and made of the one before: `Described`, as read; `Scaled`; `Mapped`. Asking for what a setup step
has not made yet raises JobStateMissingError, upon which the coordinator repeats the setup.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch import Tensor

from kernfed.arrays import Array, Floats, Integers
from kernfed.errors import JobStateMissingError
from kernfed.features.spec import FeatureSpec
from kernfed.federation.messages.data import DataSchema, LearningTask
from kernfed.maths.folds import units
from kernfed.maths.tasks import TASKS
from kernfed.tensors.rows import FeatureRows
from kernfed.tensors.shifted_gram import ShiftedGram
from kernfed.tensors.threads import LARGE
from kernfed_client.data.described import Described
from kernfed_client.data.mapped import Mapped
from kernfed_client.data.reading.partitions import LocalData
from kernfed_client.data.scaled import Scaled

T = TypeVar("T")


class Stages:
    """The stages that were made by now, and what steps read of them."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._described: Described | None = None
        self._scaled: Scaled | None = None
        self._mapped: Mapped | None = None
        self._row_weights: Floats | None = None

    @property
    def schema(self) -> DataSchema:
        """The job's demands on the data."""
        return made(self._described, "data.describe").schema

    @property
    def dataset(self) -> str:
        """Name of the data set, as the client file has it."""
        return made(self._described, "data.describe").dataset

    @property
    def data(self) -> LocalData:
        """Rows as read, before anything is scaled."""
        return made(self._described, "data.describe").data

    @property
    def task(self) -> LearningTask:
        """The learning task."""
        return self.schema.task

    @property
    def num_rows(self) -> int:
        """Training rows n."""
        return self.data.train.num_rows

    @property
    def block(self) -> Integers | None:
        """Number of each training row's block, (n,), none of which a draw divides; None: rows are drawn one by one."""
        return self.data.block

    @property
    def unit(self) -> Integers:
        """Number of each training row, (n,): rows of one number go to one fold, as copies, and as a block's rows."""
        return self.together(self.x_train) if self.block is None else self.block

    def together(self, content: Floats, rows: Array | slice = slice(None)) -> Integers:
        """Number training rows so that copies, and rows of a group of the site, have one number, (n,).

        Args:
            content: What makes rows copies of one another, (n, d).
            rows: Which training rows these are; unset: all.
        """
        group = self.data.train.group
        return units(content, None if group is None else group[rows])

    @property
    def num_test_rows(self) -> int:
        """Test rows m; 0 where the job holds none out."""
        return self.data.test.num_rows

    @property
    def classes(self) -> tuple[str, ...]:
        """Classes agreed on by all clients; of a binary task the second is the positive one. Empty for regression."""
        return made(self._scaled, "data.standardise").classes

    @property
    def num_outputs(self) -> int:
        """Columns of the targets C: one per class of a classification, else 1."""
        return TASKS[self.task].num_outputs(self.classes)

    @property
    def mean(self) -> Floats:
        """Values subtracted from the feature columns, (P,)."""
        return made(self._scaled, "data.standardise").mean

    @property
    def deviation(self) -> Floats:
        """By what the feature columns are divided, (P,)."""
        return made(self._scaled, "data.standardise").deviation

    @property
    def x_train(self) -> Floats:
        """Training rows, standardised, (n, P)."""
        return made(self._scaled, "data.standardise").x_train

    @property
    def x_test(self) -> Floats:
        """Test rows, standardised with the same scales, (m, P)."""
        return made(self._scaled, "data.standardise").x_test

    @property
    def targets_train(self) -> Array:
        """Training targets as they are: values, float64 (n,), or indices into `classes`, int64 (n,)."""
        return made(self._scaled, "data.standardise").targets_train

    @property
    def targets_test(self) -> Array:
        """Test targets as they are: values, float64 (m,), or indices into `classes`, int64 (m,)."""
        return made(self._scaled, "data.standardise").targets_test

    @property
    def features(self) -> FeatureSpec:
        """The feature map."""
        return made(self._mapped, "data.map_features").features

    @property
    def train_rows(self) -> FeatureRows:
        """Features of the training rows, float64 (n, M), computed when they are read, block by block.

        Centred by the pooled mean if the job has an intercept.
        """
        return made(self._mapped, "data.map_features").train

    def ridge_sums(self) -> Callable[[], tuple[ShiftedGram, Tensor]] | None:
        """See `Mapped.ridge_sums`."""
        return made(self._mapped, "data.map_features").ridge_sums()

    @property
    def test_rows(self) -> FeatureRows:
        """Features of the test rows, float64 (m, M); centred by the same mean."""
        return made(self._mapped, "data.map_features").test

    @property
    def z_train(self) -> Tensor:
        """Features of all training rows at once, float64 (n, M), computed anew: for methods that need them so.

        Raises:
            DataError: They exceed the memory that the job may take.
        """
        return self.train_rows.whole()

    @property
    def y_train(self) -> Tensor:
        """Training targets, float64 (n, C): values, 0/1, or one-hot; centred like the features."""
        return made(self._mapped, "data.map_features").y_train

    @property
    def sparse_products(self) -> int:
        """Products of two columns that tell of few rows, and are taken as 0 there."""
        return made(self._mapped, "data.map_features").sparse_products

    @property
    def centred(self) -> bool:
        """Whether means were subtracted from features and targets."""
        return made(self._mapped, "data.map_features").centred

    @property
    def feature_mean(self) -> Floats:
        """Values subtracted from the features, (M,); zeros without an intercept."""
        return made(self._mapped, "data.map_features").feature_mean

    @property
    def target_mean(self) -> Floats:
        """Values subtracted from the targets, (C,); zeros without an intercept."""
        return made(self._mapped, "data.map_features").target_mean

    @property
    def row_weights(self) -> Floats | None:
        """Weights of the training rows in the client's objective, (n,), of mean about 1; None: all weigh the same."""
        return self._row_weights

    @property
    def largest(self) -> int:
        """Numbers in the largest matrix of the steps' products; before rows are scaled, when they are read: any."""
        if self._scaled is None:
            return LARGE
        if self._mapped is None:
            x = self._scaled.x_train
            return max(x.size, len(x) ** 2)
        n, m = self._mapped.train.shape
        return max(n, m) * m


def made(value: T | None, step: str) -> T:
    """What a setup step made; raises JobStateMissingError where it did not."""
    if value is None:
        raise JobStateMissingError(f"this client holds no state for the job from step {step}; prepare it again")
    return value
