"""A global model that is a network: saved beside its columns, scales and classes, and loaded to predict with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from kernfed import files
from kernfed.arrays import Floats
from kernfed.artifact_names import JOB_JSON, MODEL_ARRAYS, MODEL_FACTS
from kernfed.errors import ConfigError, DataError
from kernfed.federation.messages.data import LearningTask
from kernfed.models.global_model import GlobalModel, load_model
from kernfed.models.network_spec import NetworkKind, NetworkSpec, layout

if TYPE_CHECKING:
    import pandas as pd


FORMAT = "kernfed.network-model/1"
ARRAYS = ("mean", "deviation", "parameters", "target_mean", "target_deviation")


@dataclass(frozen=True, eq=False)
class NetworkModel:
    """Predicts like `kernfed.models.global_model.GlobalModel`. d columns, C outputs, P parameters. Checked when made.

    Raises:
        ConfigError: A part does not fit the others, or holds NaN or infinity.
    """

    task: LearningTask
    feature_names: tuple[str, ...]
    target: str
    classes: tuple[str, ...]
    """Binary: negative, positive; empty for regression."""
    mean: Floats
    """Shape (d,)."""
    deviation: Floats
    """Shape (d,), above 0."""
    network: NetworkSpec
    parameters: Floats
    """Shape (P,)."""
    target_mean: Floats
    """Shape (C,); zeros for classes."""
    target_deviation: Floats
    """Shape (C,); ones for classes."""
    job: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the parts against each other."""
        layout(self.network)
        d, c = self.network.num_columns, self.network.num_outputs
        shapes = {
            "mean": (d,),
            "deviation": (d,),
            "parameters": (self.network.num_parameters,),
            "target_mean": (c,),
            "target_deviation": (c,),
        }
        for name in ARRAYS:
            array = np.ascontiguousarray(getattr(self, name), dtype=np.float64)
            if array.shape != shapes[name] or not np.isfinite(array).all():
                raise ConfigError(f"model: {name} has shape {array.shape}, want {shapes[name]}, or is not finite")
            object.__setattr__(self, name, array)
        if len(self.feature_names) != d or not (self.deviation > 0).all():
            raise ConfigError(f"model: {len(self.feature_names)} feature names for {d} columns, or a deviation of 0")

    def predict_scores(self, rows: pd.DataFrame | npt.ArrayLike, *, device: str = "cpu") -> Floats:
        """Compute scores of rows in the units of the data, shape (n, C): numbers, or probabilities of classes.

        Args:
            rows: A data frame (columns by name), or numbers of shape (n, d) in the order of `feature_names`.
            device: Where to compute.

        Raises:
            DataError: A column is missing, or a value is not a finite number.
        """
        from kernfed.models.tensors.predict import network_scores  # noqa: PLC0415  # the coordinator has no torch

        x = (self._columns(rows) - self.mean) / self.deviation
        scores = network_scores(x, self.network, self.parameters, device)
        return scores * self.target_deviation + self.target_mean

    def _columns(self, rows: pd.DataFrame | npt.ArrayLike) -> Floats:
        if hasattr(rows, "columns"):  # a data frame, told without loading pandas
            frame = cast("pd.DataFrame", rows)
            missing = [name for name in self.feature_names if name not in frame.columns]
            if missing:
                raise DataError(f"column {missing[0]!r} is missing; the model needs {', '.join(self.feature_names)}")
            rows = frame[list(self.feature_names)].to_numpy(dtype=np.float64)
        x = np.asarray(rows, dtype=np.float64, order="C")
        if x.ndim != 2 or x.shape[1] != len(self.feature_names) or not np.isfinite(x).all():
            raise DataError(
                f"rows of shape {x.shape}, want (rows, {len(self.feature_names)}) finite numbers: columns "
                f"{', '.join(self.feature_names)}, in this order"
            )
        return x

    def save(self, folder: Path | str, *, durable: bool = True) -> None:
        """Write `model.safetensors` and `model.json`; the same model gives the same bytes.

        Args:
            folder: Made where it does not exist.
            durable: Whether to wait for the disk; False where the caller syncs the folder.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        data: bytes = save({name: getattr(self, name) for name in ARRAYS})
        facts = {
            "format": FORMAT,
            "task": self.task.value,
            "feature_names": list(self.feature_names),
            "target": self.target,
            "classes": list(self.classes),
            "network": asdict(self.network),
            "arrays_sha256": hashlib.sha256(data).hexdigest(),
            "job": dict(self.job),
        }
        text = json.dumps(facts, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
        files.replace(folder / MODEL_ARRAYS, data, durable=durable)
        files.replace(folder / MODEL_FACTS, text.encode() + b"\n", durable=durable)


def load_network_model(folder: Path | str) -> NetworkModel:
    """Load what `NetworkModel.save` wrote.

    Raises:
        ConfigError: A file is missing, damaged, or from another model.
    """
    folder = Path(folder)
    try:
        facts = json.loads((folder / MODEL_FACTS).read_bytes())
        data = (folder / MODEL_ARRAYS).read_bytes()
        if facts["format"] != FORMAT or hashlib.sha256(data).hexdigest() != facts["arrays_sha256"]:
            raise ConfigError(f"{folder}: damaged, or files of two models; fetch both again from the job")
        network = dict(facts["network"])
        for name in ("widths", "image"):
            network[name] = tuple(network[name])
        task = LearningTask(facts["task"])
        spec = NetworkSpec(**{**network, "kind": NetworkKind(network["kind"]), "task": LearningTask(network["task"])})
        return NetworkModel(
            task=task,
            feature_names=tuple(facts["feature_names"]),
            target=facts["target"],
            classes=tuple(facts["classes"]),
            network=spec,
            job=facts["job"],
            **{name: array for name, array in load(data).items() if name in ARRAYS},
        )
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as err:
        raise ConfigError(f"{folder} does not hold a network of a job: {err}; fetch both files again") from err


def load_predictor(folder: Path | str) -> GlobalModel | NetworkModel:
    """Load a job's global model, whatever it is.

    Raises:
        ConfigError: It cannot be loaded.
    """
    try:
        text = (Path(folder) / MODEL_FACTS).read_bytes()
        facts = json.loads(text)
    except FileNotFoundError as err:
        if (Path(folder) / JOB_JSON).is_file():
            raise ConfigError(
                f"{folder} holds a job's files and no model: the job failed, or every client keeps a model of its own "
                "(personalise, distill, FedBN), which `kernfed-client predict --job JOB` uses there"
            ) from err
        return load_model(folder)  # which says what is wrong
    except (OSError, ValueError):
        return load_model(folder)
    if isinstance(facts, dict) and facts.get("format") == FORMAT:
        return load_network_model(folder)
    return load_model(folder)
