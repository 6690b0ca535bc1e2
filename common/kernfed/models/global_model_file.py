"""A model on disk: `model.safetensors` holds its arrays, `model.json` all else. Nothing is ever unpickled."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load, save

from kernfed import files
from kernfed.artifact_names import MODEL_ARRAYS, MODEL_FACTS
from kernfed.errors import ConfigError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, FeatureSpec
from kernfed.federation.messages.data import LearningTask
from kernfed.maths.losses import Link

ARRAYS = ("mean", "deviation", "weights", "feature_mean", "target_mean")
"""Arrays of a model, in the order of their declaration."""

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


class _Facts(_Section):
    format: Literal["kernfed.model/1"] = "kernfed.model/1"
    task: LearningTask
    feature_names: tuple[str, ...]
    target: str
    classes: tuple[str, ...]
    features: _Features
    fingerprint: _Digest
    arrays_sha256: _Digest
    link: Link | None = None
    """Left out where scores are linear, as they were in all models of before."""
    job: dict[str, JsonValue]


def write(parts: Mapping[str, Any], folder: Path, *, durable: bool) -> None:
    """Write the parts of a `GlobalModel`, each file atomically; the facts, with the digest of the arrays, last."""
    data: bytes = save({name: parts[name] for name in ARRAYS})
    spec: FeatureSpec = parts["spec"]
    link: Link = parts["link"]
    facts = _Facts(
        task=parts["task"],
        feature_names=parts["feature_names"],
        target=parts["target"],
        classes=parts["classes"],
        features=_Features(
            kernel=spec.kernel,
            form=spec.form,
            num_columns=spec.num_columns,
            lengthscales=spec.lengthscales,
            num_frequencies=spec.num_frequencies,
            seed=spec.seed,
            num_features=spec.num_features,
        ),
        fingerprint=parts["fingerprint"],
        arrays_sha256=hashlib.sha256(data).hexdigest(),
        job=dict(parts["job"]),
        link=None if link is Link.IDENTITY else link,
    )
    folder.mkdir(parents=True, exist_ok=True)
    files.replace(folder / MODEL_ARRAYS, data, durable=durable)
    files.replace(folder / MODEL_FACTS, _canonical(_told(facts), indent=2) + b"\n", durable=durable)


def read(folder: Path) -> dict[str, Any]:
    """Read the parts of a `GlobalModel`, which checks them against each other.

    Raises:
        ConfigError: A file is missing, damaged, or from another model than its fellow.
    """
    facts, data = _load(folder)
    return {
        "task": facts.task,
        "feature_names": facts.feature_names,
        "target": facts.target,
        "classes": facts.classes,
        "spec": FeatureSpec(**dict(facts.features)),
        "fingerprint": facts.fingerprint,
        "job": facts.job,
        "link": facts.link or Link.IDENTITY,
        **_arrays(folder / MODEL_ARRAYS, data),
    }


def sha256(folder: Path) -> str:
    """Digest of all that predictions depend on: the facts without `job`, which name the digest of the arrays.

    Raises:
        ConfigError: As `read`, as far as the files themselves go.
    """
    facts, _ = _load(folder)
    return hashlib.sha256(_canonical(_told(facts, exclude={"job"}))).hexdigest()


def _told(facts: _Facts, exclude: set[str] | None = None) -> dict[str, Any]:
    """Facts as they are written; one that says nothing new is left out, so that older models keep their identity."""
    told = facts.model_dump(mode="json", exclude=exclude)
    if facts.link is None:
        told.pop("link")
    return told


def _load(folder: Path) -> tuple[_Facts, bytes]:
    path = folder / MODEL_FACTS
    try:
        facts = _Facts.model_validate_json(_read_bytes(path))
    except ValidationError as err:
        first = err.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ConfigError(f"{path}: {key}: {first['msg']}; fetch the model again from its job") from err
    data = _read_bytes(folder / MODEL_ARRAYS)
    if hashlib.sha256(data).hexdigest() != facts.arrays_sha256:
        raise ConfigError(
            f"{folder / MODEL_ARRAYS} is damaged or belongs to another {MODEL_FACTS} (digests differ); fetch both "
            "files again from the job"
        )
    return facts, data


def _arrays(path: Path, data: bytes) -> dict[str, Any]:
    try:
        arrays = load(data)
    except (SafetensorError, ValueError, KeyError) as err:
        raise ConfigError(f"{path.name} is not a safetensors file: {err}") from err
    if sorted(arrays) != sorted(ARRAYS):
        raise ConfigError(f"{path.name} holds the arrays {sorted(arrays)}, want {sorted(ARRAYS)}")
    for name, array in arrays.items():
        if array.dtype != np.float64:
            raise ConfigError(f"{path.name}: {name} is of type {array.dtype}, want float64")
    return arrays


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as err:
        raise ConfigError(
            f"{path} cannot be read ({err.strerror}); give the folder that holds {MODEL_FACTS} and {MODEL_ARRAYS}"
        ) from err


def _canonical(facts: Any, indent: int | None = None) -> bytes:
    return json.dumps(facts, indent=indent, sort_keys=True, ensure_ascii=False, allow_nan=False).encode()
