"""A client's memory for one job: its rows, in three stages, and factors that a loop reuses.

Each stage is frozen and made of the one before: `Described`, as read; `Scaled`; `Mapped`. The setup steps
(`kernfed_client.steps.data`) fill it in their order; every other step reads it. Asking for what a setup step has not
made yet raises JobStateMissingError, upon which the coordinator repeats the setup.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from kernfed.arrays import Array, Floats, Integers
from kernfed.errors import JobStateMissingError
from kernfed.features.spec import FeatureSpec, num_drawn
from kernfed.federation.messages.data import DataSchema, LearningTask
from kernfed.jobs.client_file import ClientFile, PartitionFile, job_folder
from kernfed.maths.few.rows import FewProducts
from kernfed.maths.folds import units
from kernfed.maths.tasks import TASKS
from kernfed.tensors.feature_maps import FeatureMap
from kernfed.tensors.rows import FeatureRows
from kernfed.tensors.threads import LARGE
from kernfed_client.data.described import Described
from kernfed_client.data.device import Machine
from kernfed_client.data.guards.dealt_blocks import Dealing
from kernfed_client.data.guards.few_in_columns import fewest_apart
from kernfed_client.data.guards.split import POINT_RULES
from kernfed_client.data.loading import Loader, load_rows, release
from kernfed_client.data.mapped import Mapped, centred, check_map, map_rows
from kernfed_client.data.reading.partition_data import PartitionData
from kernfed_client.data.reading.partitions import LocalData
from kernfed_client.data.room import Room
from kernfed_client.data.scaled import Scaled, scale
from kernfed_client.data.step_memory import StepMemory

Device = torch.device | str
T = TypeVar("T")


class LocalJob(StepMemory, Machine):
    """One job at one client. Steps run one at a time; it is not safe for use by two threads at once."""

    def __init__(
        self,
        job_id: str,
        client: str,
        file: ClientFile,
        load: Loader | None = None,
        folder: Path | None = None,
        *,
        durable: bool = True,
        room: Room | None = None,
    ) -> None:
        """Begin with nothing prepared.

        Args:
            job_id: The job.
            client: This client's name, from its certificate.
            file: The client file; holds policy and device.
            load: Reads a data set by name; unset: from the files that `file` names. A simulation gives rows in memory.
            folder: For files that the job leaves at this client, such as its own model; made when needed; unset: below
                the client file's state folder.
            durable: Whether what a step keeps from round to round goes to the folder; a simulation does without.
            room: Shared with the other clients of this process.
        """
        StepMemory.__init__(self)
        Machine.__init__(self, file)
        self.job_id = job_id
        self.client = client
        self.durable = durable
        self.folder = folder or job_folder(file.state, job_id)
        self._room = room or Room()
        self._setup = self.folder / "setup"
        self._load = load
        self._described: Described | None = None
        self._scaled: Scaled | None = None
        self._mapped: Mapped | None = None
        self._row_weights: Floats | None = None
        self._dealing: Dealing | None = None

    @property
    def schema(self) -> DataSchema:
        """The job's demands on the data."""
        return _made(self._described, "data.describe").schema

    @property
    def train_file(self) -> PartitionFile | None:
        """The file that the training rows are of; None: they were given."""
        section = self.file.datasets.get(self.dataset)
        return None if section is None or self._load is not None else section.train

    @property
    def dataset(self) -> str:
        """Name of the data set, as the client file has it."""
        return _made(self._described, "data.describe").dataset

    @property
    def data(self) -> LocalData:
        """Rows as read, before anything is scaled."""
        return _made(self._described, "data.describe").data

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

    @property
    def fewest_apart(self) -> tuple[int, int]:
        """Fewest training rows that may stand out in a column, or in a product of two, and fewest test rows."""
        return fewest_apart(self.file.policy, self.data.rules, self.num_test_rows)

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
        return _made(self._scaled, "data.standardise").classes

    @property
    def num_outputs(self) -> int:
        """Columns of the targets C: one per class of a classification, else 1."""
        return TASKS[self.task].num_outputs(self.classes)

    @property
    def mean(self) -> Floats:
        """Values subtracted from the feature columns, (P,)."""
        return _made(self._scaled, "data.standardise").mean

    @property
    def deviation(self) -> Floats:
        """By what the feature columns are divided, (P,)."""
        return _made(self._scaled, "data.standardise").deviation

    @property
    def x_train(self) -> Floats:
        """Training rows, standardised, (n, P)."""
        return _made(self._scaled, "data.standardise").x_train

    @property
    def x_test(self) -> Floats:
        """Test rows, standardised with the same scales, (m, P)."""
        return _made(self._scaled, "data.standardise").x_test

    @property
    def targets_train(self) -> Array:
        """Training targets as they are: values, float64 (n,), or indices into `classes`, int64 (n,)."""
        return _made(self._scaled, "data.standardise").targets_train

    @property
    def targets_test(self) -> Array:
        """Test targets as they are: values, float64 (m,), or indices into `classes`, int64 (m,)."""
        return _made(self._scaled, "data.standardise").targets_test

    @property
    def features(self) -> FeatureSpec:
        """The feature map."""
        return _made(self._mapped, "data.map_features").features

    @property
    def train_rows(self) -> FeatureRows:
        """Features of the training rows, float64 (n, M), computed when they are read, block by block.

        Centred by the pooled mean if the job has an intercept.
        """
        return _made(self._mapped, "data.map_features").train

    @property
    def test_rows(self) -> FeatureRows:
        """Features of the test rows, float64 (m, M); centred by the same mean."""
        return _made(self._mapped, "data.map_features").test

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
        return _made(self._mapped, "data.map_features").y_train

    @property
    def sparse_products(self) -> int:
        """Products of two columns that tell of few rows, and are taken as 0 there."""
        return _made(self._mapped, "data.map_features").sparse_products

    @property
    def centred(self) -> bool:
        """Whether means were subtracted from features and targets."""
        return _made(self._mapped, "data.map_features").centred

    @property
    def feature_mean(self) -> Floats:
        """Values subtracted from the features, (M,); zeros without an intercept."""
        return _made(self._mapped, "data.map_features").feature_mean

    @property
    def target_mean(self) -> Floats:
        """Values subtracted from the targets, (C,); zeros without an intercept."""
        return _made(self._mapped, "data.map_features").target_mean

    @property
    def row_weights(self) -> Floats | None:
        """Weights of the training rows in the client's objective, (n,), of mean about 1; None: all weigh the same."""
        return self._row_weights

    def weigh(self, weights: Floats | None) -> None:
        """Weigh the training rows from here on, until they are read, scaled or mapped again.

        Args:
            weights: At least 0, (n,), or None for equal weights.
        """
        self._row_weights = weights
        self.forget_all()

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

    def feature_map(self, spec: FeatureSpec, device: Device = "cpu", few: FewProducts | None = None) -> FeatureMap:
        """Draw a map beside that of the job's rows; arguments as of `FeatureMap`.

        Raises:
            ConfigError: The specification contradicts itself.
            DataError: Its frequencies do not fit into memory.
        """
        self.require(num_drawn(spec), "the feature map")
        return FeatureMap(spec, device=device, few=few)

    def load(self, dataset: str, schema: DataSchema) -> LocalData:
        """Read the data set, in place of what was read before.

        Raises:
            DataError: It does not fit the schema, or has other rows than those that the job was prepared on.
            PolicyError: The job draws the rows that are held out, and may not; or they differ by a few from those of an
                earlier job, or are of too few groups.
        """
        self._described = None
        self._forget_scales()
        how = self.file, self._setup, dataset, schema, self.client, self._load
        data, self._dealing = load_rows(*how, durable=self.durable)
        self._described = Described(dataset, schema, data)
        return data

    def deal(self, rows: PartitionData, first: Integers) -> Integers:
        """Number the block of each of some rows beside the training rows, (m,), over all jobs of this client.

        Args:
            rows: m of them.
            first: Blocks as if no job had been before, (m,).

        Raises:
            PolicyError: One more set of rows would tell too much.
        """
        if self._dealing is None or rows.num_rows < self.file.policy.min_rows:
            return first
        if self.data.rules >= POINT_RULES:  # they are known, or dealt only now, also in a job that goes on
            self._dealing.begun = False
        found = self._dealing.of_rows(rows, self.schema.features, first, self.file.policy.least_groups)
        self._dealing.keep()
        return found

    def settle_blocks(self, *, refused: bool) -> None:
        """Keep the rows' blocks for good, since they are told of; or, of a job that ends untold, forget all rows."""
        if self._dealing is not None and not refused:
            self._dealing.spend()
        elif self._dealing is not None and release(self._dealing, self._setup):
            self._described = None  # it may not go on with blocks that nobody knows
            self._forget_scales()

    def standardise(
        self, classes: tuple[str, ...], mean: Array, deviation: Array, bounds: tuple[float, ...] = ()
    ) -> None:
        """Scale rows to (x - mean) / deviation, and number classes as agreed.

        Args:
            classes: Names of all clients' classes.
            mean: Per feature column, (P,).
            deviation: Per feature column, (P,), above 0.
            bounds: Per feature column, training rows are taken at most so far from 0 once scaled, 0: as they are;
                empty: all are.

        Raises:
            JobStateMissingError: The data were not read yet.
            WireError: Another number of columns, or a deviation that is not above 0.
            DataError: A class of this client is not among `classes`, they do not fit the task, or a scaled value
                exceeds the range of numbers.
        """
        described = _made(self._described, "data.describe")
        scaled = scale(described, classes, mean, deviation, bounds, self.fewest_apart[0])
        self._forget_scales()
        self._scaled = scaled

    def map_features(self, spec: FeatureSpec, copies: int = 0) -> str:
        """Draw the feature map; features are not centred yet, and computed when they are read.

        Args:
            spec: The map.
            copies: Matrices of all training rows' features that the method keeps; 0: it sums over blocks of rows, and
                keeps what ridge problems need.

        Returns:
            The fingerprint of the frequencies drawn.

        Raises:
            JobStateMissingError: The rows were not scaled yet.
            ConfigError: The specification contradicts itself.
            DataError: It is for another number of columns, or the method's matrices do not fit into memory.
        """
        scaled = _made(self._scaled, "data.standardise")
        check_map(scaled, spec)
        self.require(num_drawn(spec), "the feature map")
        self._room.claim(self.client, len(scaled.x_train), spec.num_features, copies, self.usable_bytes)
        self._row_weights = None
        self._forget_features()  # first: there may be no room for two
        self._mapped = map_rows(scaled, spec, self.device, self.usable_bytes, self.fewest_apart)
        return self._mapped.fingerprint

    def centre(self, feature_mean: Array, target_mean: Array) -> None:
        """Subtract means from features, (M,), and targets, (C,); the same means again change nothing.

        Raises:
            JobStateMissingError: The features were not computed yet.
            InvalidTensorError: A mean has another length.
        """
        mapped = _made(self._mapped, "data.map_features")
        mapped.check_means(feature_mean, target_mean)
        if mapped.is_centred_by(feature_mean, target_mean):
            return
        mapped = self.uncentred()
        self._forget_features()
        self._mapped = centred(mapped, feature_mean, target_mean)

    def uncentred(self) -> Mapped:
        """Features and targets as they are before `centre`, whatever means are subtracted by now: the same bits.

        Raises:
            JobStateMissingError: The features were not computed yet.
        """
        if not (mapped := _made(self._mapped, "data.map_features")).centred:
            return mapped
        scaled = _made(self._scaled, "data.standardise")
        return map_rows(scaled, mapped.features, self.device, self.usable_bytes, self.fewest_apart)

    def _forget_scales(self) -> None:
        self._scaled = self._row_weights = None
        self._forget_features()

    def _forget_features(self) -> None:
        self._mapped = None
        self.forget_all()


def _made(value: T | None, step: str) -> T:
    if value is None:
        raise JobStateMissingError(f"this client holds no state for the job from step {step}; prepare it again")
    return value
