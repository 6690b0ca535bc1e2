"""The sections of a job file that all methods share: the clients, the form of their data, the feature map."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, StringConstraints, field_validator, model_validator

from kernfed.columns.plan import ColumnPlan, feature_names
from kernfed.features.kernels import EXACT_KERNELS, RANDOM_KERNELS, Kernel
from kernfed.features.spec import DRAWN_FORMS, FeatureForm
from kernfed.federation.messages.data import LearningTask, MissingRule
from kernfed.federation.quorum import Quorum
from kernfed.jobs.column_section import ColumnSection, check_columns, plans_of
from kernfed.maths.tasks import TASKS
from kernfed.methods.base import COLUMNS, MedianRule
from kernfed.methods.shared_settings import AUTO
from kernfed.section import GIVEN, Above, Label, Only, Section

ColumnName = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Positive = Annotated[float, Field(gt=0)]


class CohortSection(Section):
    """The clients that take part, and the number that must."""

    clients: list[Label] | None = Field(
        None,
        description="Names of the clients; unset: every enrolled client that offers the data set when the job starts, "
        "and in a job on streams also those that come later.",
    )
    dataset: Label = Field("default", description="Name of the data set that each client offers.")
    min_clients: int = Field(1, ge=1, le=100_000, description="Fewest clients whose replies make a round count.")
    min_fraction: float = Field(
        0.5, ge=0, le=1, description="Smallest fraction of the cohort whose replies make a round count."
    )
    min_rows_fraction: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Smallest fraction of the cohort's training rows, as clients stated them, that stands behind the "
        "replies of a round that counts.",
    )
    max_share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Largest share of the weight that a client has in sums and means over clients, those of scales and "
        "of models. Larger weights are lowered to it; with fewer clients than 1/max_share all count alike.",
    )
    preflight: Literal["all", "quorum"] = Field(
        "all",
        description="Clients whose data must pass the check before round 1: all, or enough for the quorum.",
    )
    deadline_s: Positive = Field(
        300.0,
        description="Seconds after which a round closes on its quorum, even while others compute. A client that is "
        "missing then is a straggler, and is asked again in the next round.",
    )
    grace_s: float = Field(
        10.0,
        ge=0,
        le=1e9,
        description="Seconds for which a step that has its quorum waits for clients that are not connected. Who was "
        "away for longer is asked again once it is back. A coordinator that starts gives all clients a minute.",
    )
    wait_s: Positive = Field(
        86_400.0, description="Seconds for which the job may stay below quorum, and say so, before it fails."
    )

    @property
    def quorum(self) -> Quorum:
        """How many must answer, and how long the others are waited for."""
        return Quorum(self.min_clients, self.min_fraction, self.deadline_s, self.wait_s, self.grace_s)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.clients is not None:
            if not self.clients:
                raise ValueError("clients is empty; name clients or leave the key out for all of them")
            if len(set(self.clients)) != len(self.clients):
                twice = sorted({c for c in self.clients if self.clients.count(c) > 1})
                raise ValueError(f"clients names {', '.join(twice)} twice; name each once")
            if self.min_clients > len(self.clients):
                raise ValueError(
                    f"min_clients {self.min_clients} exceeds the {len(self.clients)} clients named; "
                    "lower it or name more clients"
                )
        return self


class DataSection(Section):
    """The form of every client's data."""

    task: LearningTask = Field(description="regression, binary or classification.")
    target: ColumnName = Field(description="Column to predict.")
    features: list[ColumnName] = Field(
        min_length=1,
        description='Columns to predict from, by name; "f[0:512]" stands for f0, f1, ... f511.',
    )
    backbone: Label | None = Field(
        None,
        description="Frozen feature extractor, [backbones.NAME] of every client file, whose outputs f0, f1, ... are "
        "the feature columns; unset: they are columns of the data.",
    )
    classes: list[str] | None = Field(
        None, description="Class names; unset: the classes that any client has. Binary: negative class first."
    )
    unseen_classes: Annotated[Literal["refuse", "allow"], Only(classes=GIVEN)] = Field(
        "refuse",
        description="A job whose `classes` name one of which no client has a training row: refuse it, or train all "
        "the same.",
    )
    missing: MissingRule = Field(
        MissingRule.REFUSE,
        description="Gaps in used columns: refuse the data; drop the rows; put the mean or the median of all clients' "
        "rows there; or, as indicator, the mean, and 1 in a feature column `age=missing` beside it, which is 0 "
        "elsewhere.",
    )
    columns: dict[ColumnName, ColumnSection] = Field(
        {}, description="Types of feature columns, by name; the others are numbers."
    )
    ranges: dict[ColumnName, tuple[float, float]] = Field(
        {},
        description="Least and greatest plausible value of feature columns, and of a regression's target, by name. "
        "Rows outside are left out at every client, for training, tests and streams, and counted.",
    )
    standardise: bool = Field(True, description="Scale columns by the pooled mean and deviation.")
    scales: Annotated[Literal["clipped", "moments"], Only(standardise=True)] = Field(
        "clipped",
        description="Means and deviations with clipped rows that stand far out, or of the rows as they are.",
    )
    test_fraction: float = Field(
        0.25,
        ge=0,
        le=0.9,
        description="Rows held out at a client without a test partition.",
    )
    validation_fraction: Annotated[float, Only(split="by-record")] = Field(
        0.0,
        ge=0,
        le=0.9,
        description="Above 0: this share of a client's rows, the next behind its test rows, takes the place of the "
        "test rows, which the job then does not use at all: for the choice of settings, so that test rows have no say.",
    )
    split: Annotated[
        Literal["by-record", "by-content", "copies-together", "row-by-row"], Only(test_fraction=Above(0))
    ] = Field(
        "by-record",
        description="Which rows are held out: those whose whole record, with columns that the job does not use, a "
        "digest puts first; or by their content in the job's columns, evenly of each class; or rows drawn by the job's "
        "seed, with copies of a row all together or dealt as rows of their own. A client must allow all but the first: "
        "`policy.drawn_splits`.",
    )

    _agreed: tuple[ColumnPlan, ...] = PrivateAttr(default=())
    """Plans of the columns as the clients agreed on them; `features` are then those that follow."""

    @property
    def plans(self) -> tuple[ColumnPlan, ...]:
        """What becomes of each column, in their order; none where all are plain numbers."""
        return self._agreed or plans_of(self.features, self.columns, self.missing)

    def agreed(self, plans: tuple[ColumnPlan, ...]) -> DataSection:
        """The same with the plans that the clients agreed on, and the feature columns that follow."""
        found = self.model_copy(update={"features": list(feature_names(plans))})
        found._agreed = plans  # of the same class
        return found

    def plan(self) -> dict[str, Any]:
        """As of `Section.plan`; a job without types of columns is as jobs of before were."""
        told = super().plan()
        told["columns"] = {name: section.plan() for name, section in self.columns.items()}
        return told if self.columns else {key: value for key, value in told.items() if key != "columns"}

    @field_validator("columns", mode="before")
    @classmethod
    def _short_forms(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {name: {"kind": given} if isinstance(given, str) else given for name, given in value.items()}

    @model_validator(mode="after")
    def _columns_fit(self) -> Self:
        check_columns(self.columns, self.features, list(self.ranges), self.backbone)
        if self.backbone is not None and self.plans:
            raise ValueError("missing: a backbone makes the columns, which have no gaps; use refuse or drop-rows")
        return self

    @field_validator("features", mode="before")
    @classmethod
    def _names(cls, value: object) -> object:
        if not isinstance(value, list):
            return value
        return [name for item in value for name in (_expanded(item) if isinstance(item, str) else [item])]

    @field_validator("ranges", mode="before")
    @classmethod
    def _ranges_of_columns(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {name: limits for key, limits in value.items() for name in _expanded(str(key))}

    @model_validator(mode="after")
    def _leaves_rows(self) -> Self:
        if self.test_fraction + self.validation_fraction > 0.9:  # as the description of each says
            raise ValueError("test_fraction and validation_fraction are more than 0.9 together; leave rows to train on")
        return self

    @model_validator(mode="after")
    def _ranges_fit(self) -> Self:
        for name, (low, high) in self.ranges.items():
            if name == self.target and TASKS[self.task].has_classes:
                raise ValueError(f"ranges: target {name!r} is a class and has no range; remove it")
            if name not in self.features and name != self.target:
                raise ValueError(f"ranges: {name!r} is neither a feature nor the target; remove it or correct the name")
            if not low < high:
                raise ValueError(f"ranges: {name} = [{low:g}, {high:g}] holds no value; write the smaller number first")
        return self

    @model_validator(mode="after")
    def _fits(self) -> Self:
        twice = sorted({c for c in self.features if self.features.count(c) > 1})
        if twice:
            raise ValueError(f"features names {', '.join(twice)} twice; name each column once")
        if self.target in self.features:
            raise ValueError(f"target {self.target!r} is also a feature; remove it from features")
        if self.classes is not None:
            if not TASKS[self.task].has_classes:
                raise ValueError("classes are given but task is regression; remove one of the two")
            if len(set(self.classes)) != len(self.classes) or len(self.classes) < 2:
                raise ValueError("classes must be at least two different names")
            if self.task is LearningTask.BINARY and len(self.classes) != 2:
                raise ValueError(f"task is binary but {len(self.classes)} classes are given; use classification")
        return self


class PrivacySection(Section):
    """What nobody sees of a single client."""

    sums: Literal["clear", "secure"] = Field(
        "clear",
        description="Messages of which the method forms sums: the coordinator sees each client's, or as secure sums "
        "masked terms alone, and their sum. It takes three clients and more.",
    )

    @property
    def secure(self) -> bool:
        """Whether sums are secure sums."""
        return self.sums == "secure"


class FeaturesSection(Section):
    """The feature map that all clients share."""

    kernel: Annotated[Kernel, Only(law=None)] = Field(
        Kernel.GAUSSIAN, description="Kernel that the features approximate."
    )
    form: Annotated[FeatureForm, Only(kernel=RANDOM_KERNELS)] = Field(
        FeatureForm.COSINE,
        description="Map from frequencies to features; nystroem: from landmarks, drawn by the seed, that stand for "
        "standardised rows.",
    )
    num_frequencies: Annotated[int, Only(kernel=RANDOM_KERNELS)] = Field(
        500, ge=1, le=1_000_000, description="Random frequencies, or landmarks."
    )
    lengthscale: Positive | list[Positive] | MedianRule | Literal["columns", "auto"] = Field(
        "median",
        description="One number, one per feature column, or the federated median heuristic, with rows that are "
        "drawn by the job's seed or evenly spaced. columns: the median (drawn rows), for each column times its "
        "deviation within clients over that of all rows, at least a tenth; for random features. auto: of multiples of "
        "the median (drawn rows), from 1/8 to 8, or of `candidates`, the one with which ridge models predict folds of "
        "the clients' training rows best; for random features.",
    )
    candidates: Annotated[list[Positive], Only(lengthscale="auto")] = Field(
        [], max_length=100, description="Lengthscales that auto chooses among; empty: multiples of the median."
    )
    seed: Annotated[int | None, Only(kernel=RANDOM_KERNELS)] = Field(
        None, ge=0, lt=2**63, description="Seed of the frequencies; unset: drawn from the job's."
    )
    law: Annotated[Label | None, Only(form=DRAWN_FORMS)] = Field(
        None,
        description="Law of the random frequencies, by the name under which a package from outside brings it, in place "
        "of a kernel's; coordinator and clients need the package. Unset: that of `kernel`.",
    )
    origin: Annotated[
        Literal["mean", "zero"], Only(kernel=RANDOM_KERNELS, form=(FeatureForm.COSINE, FeatureForm.HALF_COSINE))
    ] = Field(
        "mean",
        description="With `data.standardise = false`: what is subtracted from the columns before the map, their pooled "
        "means or nothing. With the means a shift of all inputs changes no prediction. With `[method.noise]`: nothing.",
    )
    intercept: bool = Field(True, description="Centre features and targets by their pooled means.")

    @model_validator(mode="after")
    def _scales_random_features(self) -> Self:
        if self.lengthscale in (COLUMNS, AUTO) and self.kernel in EXACT_KERNELS:
            raise ValueError(
                f'lengthscale = "{self.lengthscale}" is for random features, and the {self.kernel} map is exact; '
                "remove the key"
            )
        return self


def _expanded(name: str) -> list[str]:
    """Names that a name with a range stands for; the name itself where it has none."""
    found = re.fullmatch(r"(.*)\[(\d{1,7}):(\d{1,7})\]", name)
    if found is None:
        return [name]
    first, end = int(found[2]), int(found[3])
    if not first < end <= first + 1_000_000:
        raise ValueError(f"features: {name!r} stands for no names, or for too many; write e.g. f[0:512]")
    return [f"{found[1]}{i}" for i in range(first, end)]
