"""What the clients of a job agreed on before round 1: fixed for the job's life, and in all of its checkpoints.

Clients fall out and come back while a job runs. Asked again after a restart of the coordinator, those of that moment
would agree on other scales than the weights were trained with; so nobody agrees anew. A client that has lost what it
was told is told the same again, and one that was left out stays out, or joins by the same values.

P feature columns, M features, C outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from pydantic import ValidationError

from kernfed.adapters import adapter
from kernfed.arrays import Array
from kernfed.columns.plan import ColumnPlan, feature_names
from kernfed.errors import ConfigError, DataError, JobError
from kernfed.features.spec import FeatureSpec, check_spec
from kernfed.jobs.former import AGREEMENT, Former
from kernfed.jobs.job_file import JobFile
from kernfed.jobs.taken_over import absurd, other_features
from kernfed_server.jobs.state import Arrays, State

_ARRAYS = ("mean", "deviation", "feature_mean", "target_mean")
_FACTS = "facts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Values that all clients of a job take, and who they are."""

    classes: tuple[str, ...]
    """In the order of the outputs; empty for regression."""
    mean: Array
    """Subtracted from the columns, (P,)."""
    deviation: Array
    """By which the columns are divided, (P,)."""
    spec: FeatureSpec
    """The feature map, with the agreed lengthscale."""
    bounds: tuple[float, ...] = ()
    """Of the standardised training rows by column, 0: none; empty: none at all."""
    class_order: tuple[int, ...] = ()
    """Places of the classes, that with the most training rows first."""
    fingerprint: str = ""
    """Of the features that were drawn; empty: the method needs none."""
    feature_mean: Array = field(default_factory=lambda: np.zeros(0))
    """Subtracted from the features, (M,); zeros without intercept, empty where there are no features."""
    target_mean: Array = field(default_factory=lambda: np.zeros(0))
    """Added to predictions, (C,); as `feature_mean`."""
    backbone: str = ""
    """Fingerprint of the clients' frozen backbone; empty: none."""
    ridge: float | None = None
    """Of an earlier job whose clients these join; None: it follows from these clients' rows, where there is a rule."""
    target_deviation: float = 0.0
    """Of a regression's targets at a client, the median over clients; 0: classes, or an earlier release agreed."""
    columns: tuple[ColumnPlan, ...] = ()
    """What becomes of the columns of the table; empty: they are the feature columns."""
    num_rows: Mapping[str, int] = field(default_factory=dict)
    """Training rows of each client that passed the preparation."""
    target_moments: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Mean and deviation of a regression's targets, as each of them stated; empty: classes, or an earlier release."""
    descriptions: Mapping[str, str] = field(default_factory=dict)
    """Digests of what each of them stated of its data; see
    `kernfed_server.jobs.start.descriptions.digest`."""

    def to_arrays(self) -> dict[str, Array]:
        """What `of_state` reads."""
        values = {name: getattr(self, name) for name in Agreement.__dataclass_fields__ if name not in _ARRAYS}
        unused = {name for name in ("columns", "target_moments") if not getattr(self, name)}  # as releases before wrote
        facts = adapter(_Facts).dump_json(_Facts(**values), exclude=unused)
        arrays = {name: np.asarray(getattr(self, name), np.float64) for name in _ARRAYS}
        return {**arrays, _FACTS: np.frombuffer(facts, np.uint8)}

    @classmethod
    def of_state(cls, state: State) -> Agreement | None:
        """What `to_arrays` gave; None: there is none.

        Raises:
            JobError: A release that this one cannot read wrote it.
        """
        if _FACTS not in state:
            return None
        try:
            facts = adapter(_Facts).validate_json(state[_FACTS].tobytes())
        except ValidationError as err:
            raise JobError(
                "what the clients agreed on cannot be read from the checkpoint; start the release of kernfed that "
                "began the job, or submit it again"
            ) from err
        values: dict[str, Any] = {name: getattr(facts, name) for name in _Facts.__dataclass_fields__}
        values |= {name: state[name] for name in _ARRAYS}
        return cls(**values)

    def fault(self) -> str:
        """Why these cannot be the values of a job, though they were read; empty: they can. May draw the features."""
        sizes = {"mean": self.spec.num_columns, "deviation": self.spec.num_columns}
        if self.fingerprint:
            sizes["feature_mean"] = self.spec.num_features
            outputs = self.target_mean.size
            sizes["target_mean"] = outputs if outputs == len(self.classes) else 1
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        for name, size in sizes.items():
            if arrays[name].shape != (size,):
                return f"{name} has shape {arrays[name].shape}, not ({size},)"
        if self.columns and len(feature_names(self.columns)) != self.spec.num_columns:
            return "the columns of the table do not make the feature columns"
        if fault := absurd(arrays, self.classes):
            return fault
        if not (self.deviation > 0).all():
            return "deviation holds a number that is not above 0"
        try:
            check_spec(self.spec)
        except ConfigError as err:
            return str(err)
        return other_features(self.spec, self.fingerprint) if self.fingerprint else ""

    @classmethod
    def of_checkpoint(cls, arrays: Arrays) -> Agreement | None:
        """That of the job whose checkpoint holds these arrays; None where an earlier release wrote it.

        Raises:
            JobError: As `of_state`.
        """
        return cls.of_state(State(arrays).part(AGREEMENT))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """An agreement without its arrays, as JSON."""

    classes: tuple[str, ...]
    spec: FeatureSpec
    bounds: tuple[float, ...]
    class_order: tuple[int, ...]
    fingerprint: str
    backbone: str
    ridge: float | None
    num_rows: Mapping[str, int]
    descriptions: Mapping[str, str]
    target_deviation: float = 0.0
    columns: tuple[ColumnPlan, ...] = ()
    target_moments: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Earlier:
    """Agreement of the clients of another job, for a job whose clients take it over."""

    origin: str
    """Whose it is, for people."""
    agreement: Agreement
    column_mean: Array
    """Of the earlier clients' rows: feature columns, and a regression's target; in the units of the data."""
    column_deviation: Array

    @classmethod
    def of_former(cls, former: Former, job: JobFile) -> Earlier:
        """Of the job whose model a job begins with.

        Raises:
            DataError: A release of kernfed ran it that did not keep what its clients agreed on.
        """
        agreement = Agreement.of_checkpoint(former.arrays)
        if agreement is None:
            raise DataError(
                f"start_from: {former.origin} does not say what its clients agreed on; run it again with this release"
            )
        if fault := agreement.fault():
            raise DataError(f"start_from: {former.origin}: {fault}; fetch the job's artifacts again, or begin anew")
        known = job.data is not None and job.data.standardise  # else nobody scaled the columns
        mean, deviation = (agreement.mean, agreement.deviation) if known else (np.zeros(0), np.zeros(0))
        return cls(former.origin, replace(agreement, ridge=None), mean, deviation)
