"""The facts of a `GlobalModel` in its file, checked as they are read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from kernfed.arrays import Array
from kernfed.artifact_names import MODEL_ARRAYS
from kernfed.columns.plan import ColumnPlan
from kernfed.errors import ConfigError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, FeatureSpec, spec_facts
from kernfed.federation.messages.data import LearningTask
from kernfed.maths.losses import Link
from kernfed.models.columns_fact import columns_fact
from kernfed.models.folder import Pair, canonical

ARRAYS = ("mean", "deviation", "weights", "feature_mean", "target_mean")
"""Arrays of a model, in the order of their declaration."""

FORMAT: Final = "kernfed.model/1"
PAIR = Pair()

_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Features(_Section):
    kernel: Kernel
    form: FeatureForm
    num_columns: int = Field(ge=1)
    lengthscales: tuple[float, ...]
    num_frequencies: int = Field(ge=0)
    seed: int = Field(ge=0)
    num_features: int = Field(ge=1)
    law: str | None = None
    """Left out where the frequencies are the kernel's, as they were in all models of before."""


class _Facts(_Section):
    format: Literal["kernfed.model/1"] = FORMAT
    task: LearningTask
    feature_names: tuple[str, ...]
    target: str
    classes: tuple[str, ...]
    features: _Features
    fingerprint: _Digest
    arrays_sha256: _Digest
    link: Link | None = None
    """Left out where scores are linear, as they were in all models of before."""
    columns: tuple[ColumnPlan, ...] | None = None
    """Left out where the model's columns are those of the table, as they were in all models of before."""
    job: dict[str, JsonValue]


def write(parts: Mapping[str, Any], folder: Path, *, durable: bool) -> None:
    """Write the parts of a `GlobalModel`."""
    spec: FeatureSpec = parts["spec"]
    link: Link = parts["link"]
    told = {
        "format": FORMAT,
        **{name: parts[name] for name in ("task", "feature_names", "target", "classes", "fingerprint")},
        "features": spec_facts(spec),
        "job": dict(parts["job"]),
        **({} if link is Link.IDENTITY else {"link": link}),
        **columns_fact(parts["columns"]),
    }
    PAIR.write(folder, told, {name: parts[name] for name in ARRAYS}, durable=durable)


def read(folder: Path) -> dict[str, Any]:
    """Read the parts of a `GlobalModel`, which checks them against each other.

    Raises:
        ConfigError: A file is missing, damaged, or from another model than its fellow.
    """
    facts, arrays = _load(folder)
    return {
        "task": facts.task,
        "feature_names": facts.feature_names,
        "target": facts.target,
        "classes": facts.classes,
        "spec": FeatureSpec(**facts.features.model_dump(exclude_none=True)),
        "fingerprint": facts.fingerprint,
        "job": facts.job,
        "link": facts.link or Link.IDENTITY,
        "columns": facts.columns or (),
        **_checked(arrays),
    }


def sha256(folder: Path) -> str:
    """Digest of all that predictions depend on: the facts without `job`, which name the digest of the arrays.

    Raises:
        ConfigError: As `read`, as far as the files themselves go.
    """
    facts, _ = _load(folder)
    unset = {name for name in ("link", "columns") if getattr(facts, name) is None}
    told = facts.model_dump(mode="json", exclude={"job", *unset})
    if facts.features.law is None:
        del told["features"]["law"]
    return hashlib.sha256(canonical(told)).hexdigest()


def _load(folder: Path) -> tuple[_Facts, dict[str, Array]]:
    found, arrays = PAIR.read(folder, FORMAT)
    try:
        return _Facts.model_validate_json(canonical(found, allow_nan=True)), arrays
    except ValidationError as err:
        first = err.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"]) or "the file"
        raise PAIR.refuse(folder, f"{key}: {first['msg']}") from err


def _checked(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
    if sorted(arrays) != sorted(ARRAYS):
        raise ConfigError(f"{MODEL_ARRAYS} holds the arrays {sorted(arrays)}, want {sorted(ARRAYS)}")
    for name, array in arrays.items():
        if array.dtype != np.float64:
            raise ConfigError(f"{MODEL_ARRAYS}: {name} is of type {array.dtype}, want float64")
    return arrays
