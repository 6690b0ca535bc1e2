"""A client's memory for one job: its rows, in three stages, and factors that a loop reuses.

Each stage is frozen and made of the one before: `Described`, as read; `Scaled`; `Mapped`. The setup steps
(`kernfed_client.steps.data`) fill it in their order; every other step reads it. Asking for what a setup step has not
made yet raises JobStateMissingError, upon which the coordinator repeats the setup.
"""

from __future__ import annotations

from pathlib import Path

import torch

from kernfed.arrays import Array, Floats, Integers
from kernfed.features.spec import FeatureSpec, num_drawn
from kernfed.federation.messages.data import DataSchema
from kernfed.jobs.client_file import ClientFile, PartitionFile, job_folder
from kernfed.maths.few.rows import FewProducts
from kernfed.tensors.feature_maps import FeatureMap
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
from kernfed_client.data.scaled import scale
from kernfed_client.data.stages import Stages, made
from kernfed_client.data.step_memory import StepMemory

Device = torch.device | str


class LocalJob(Stages, StepMemory, Machine):
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
        Stages.__init__(self)
        StepMemory.__init__(self)
        Machine.__init__(self, file)
        self.job_id = job_id
        self.client = client
        self.durable = durable
        self.folder = folder or job_folder(file.state, job_id)
        self._room = room or Room()
        self._setup = self.folder / "setup"
        self._load = load
        self._dealing: Dealing | None = None

    @property
    def train_file(self) -> PartitionFile | None:
        """The file that the training rows are of; None: they were given."""
        section = self.file.datasets.get(self.dataset)
        return None if section is None or self._load is not None else section.train

    @property
    def fewest_apart(self) -> tuple[int, int]:
        """Fewest training rows that may stand out in a column, or in a product of two, and fewest test rows."""
        return fewest_apart(self.file.policy, self.data.rules, self.num_test_rows)

    def weigh(self, weights: Floats | None) -> None:
        """Weigh the training rows from here on, until they are read, scaled or mapped again.

        Args:
            weights: At least 0, (n,), or None for equal weights.
        """
        self._row_weights = weights
        self.forget_all()

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
        described = made(self._described, "data.describe")
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
        scaled = made(self._scaled, "data.standardise")
        check_map(scaled, spec)
        self.require(num_drawn(spec), "the feature map")
        self._room.claim(self.client, len(scaled.x_train), spec.num_features, copies, self.usable_bytes)
        self._row_weights = None
        self._forget_features()  # first: there may be no room for two
        self._mapped = map_rows(scaled, spec, self.device, self.usable_bytes, self.fewest_apart, sums=not copies)
        return self._mapped.fingerprint

    def centre(self, feature_mean: Array, target_mean: Array) -> None:
        """Subtract means from features, (M,), and targets, (C,); the same means again change nothing.

        Raises:
            JobStateMissingError: The features were not computed yet.
            InvalidTensorError: A mean has another length.
        """
        mapped = made(self._mapped, "data.map_features")
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
        if not (mapped := made(self._mapped, "data.map_features")).centred:
            return mapped
        scaled = made(self._scaled, "data.standardise")
        sums = mapped.sums is not None
        return map_rows(scaled, mapped.features, self.device, self.usable_bytes, self.fewest_apart, sums=sums)

    def _forget_scales(self) -> None:
        self._scaled = self._row_weights = None
        self._forget_features()

    def _forget_features(self) -> None:
        self._mapped = None
        self.forget_all()
